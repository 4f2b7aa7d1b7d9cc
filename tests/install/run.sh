#!/bin/bash
# Installs a build into a folder of its own, moves it, and builds and runs programs outside the tree against it:
#
#     tests/install/run.sh BUILD
#
# examples/mlp.c and, as C++, main.cc, each linked by pkg-config (shared), pkg-config --static, and CMake (both targets);
# and the installed program. Prints "N passed, N failed, N skipped".
set -u
build=$(realpath "$1")
source=$(realpath "$(dirname "$0")/../..")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
passed=0 failed=0

try() { # what it is, a command
    local name=$1
    shift
    if "$@" >"$folder/log" 2>&1; then passed=$((passed + 1)); else
        failed=$((failed + 1))
        echo "FAIL $name: $*"
        cat "$folder/log"
    fi
}

cd "$folder" || exit 2
try "install" cmake --install "$build" --prefix "$folder/first"
mv first prefix # nothing installed may know where it was
cp "$source/examples/mlp.c" "$source/tests/install/main.cc" "$source/tests/install/CMakeLists.txt" .
export PKG_CONFIG_PATH=$folder/prefix/lib/pkgconfig
# cc takes the shared library of two with one name; the archive is asked for by its file's name.
shared=$(pkg-config --cflags --libs ashlar)
static=$(pkg-config --static --cflags --libs ashlar | sed 's/-lashlar/-l:libashlar.a/')

try "pkg-config, C" cc -Wall -Wextra -Werror mlp.c $shared -o c_pkg
try "pkg-config, C++" c++ -Wall -Wextra -Werror main.cc $shared -o cc_pkg
try "pkg-config --static, C" cc -Wall -Wextra -Werror mlp.c $static -o c_pkg_static
try "pkg-config --static, C++" c++ -Wall -Wextra -Werror main.cc $static -o cc_pkg_static
try "CMake: configure" cmake -S . -B cmake -DCMAKE_PREFIX_PATH="$folder/prefix"
try "CMake: build" cmake --build cmake
for program in c_pkg cc_pkg c_pkg_static cc_pkg_static cmake/c_shared cmake/c_static cmake/cc_shared cmake/cc_static; do
    case $program in
    *static) try "$program" "./$program" ;;
    *) try "$program" env LD_LIBRARY_PATH="$folder/prefix/lib" "./$program" ;;
    esac
done
try "static needs no libashlar.so" bash -c '! ldd c_pkg_static cmake/cc_static | grep -E "libashlar|libLLVM"'
try "shared needs no libLLVM" bash -c '! ldd prefix/lib/libashlar.so | grep -E "libLLVM"'
try "the program" prefix/bin/ashlar --help
try "headers stand alone" bash -c 'for h in prefix/include/ashlar/*.h; do
    cc -std=c17 -pedantic -Wall -Wextra -Werror -fsyntax-only -x c $h && c++ -std=c++14 -pedantic -Wall -Wextra -Werror -fsyntax-only -x c++ $h || exit 1
done'

echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
