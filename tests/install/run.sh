#!/bin/bash
# SPDX-License-Identifier: MIT
# Installs a build into a folder of its own, moves it, and builds and runs programs outside the tree against it:
#
#     tests/install/run.sh BUILD
#
# examples/mlp.c and, as C++, main.cc, each linked by pkg-config (shared), pkg-config --static, and CMake (both targets);
# the installed program; plug-ins with the archive inside, in a host that has an LLVM of its own; and a project that has
# ashlar among its folders. Prints "N passed, N failed, N skipped".
set -u
build=$(realpath "$1")
source=$(realpath "$(dirname "$0")/../..")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
passed=0 failed=0 skipped=0

try() { # what it is, a command
    local name=$1
    shift
    if "$@" >"$folder/log" 2>&1; then passed=$((passed + 1)); else
        failed=$((failed + 1))
        echo "FAIL $name: $*"
        cat "$folder/log"
    fi
}

skip() { # what it is, why
    skipped=$((skipped + 1))
    echo "SKIP $1: $2"
}

# A build for development has LLVM as a shared library, which what is linked with it needs then.
llvm_is_shared=$(grep -c '^ASHLAR_LLVM:[A-Z]*=shared' "$build/CMakeCache.txt")

export ASHLAR_CACHE_DIR= # not the user's
cd "$folder" || exit 2
try "install" cmake --install "$build" --prefix "$folder/first"
mv first prefix # nothing installed may know where it was
cp "$source/examples/mlp.c" "$source/tests/install/main.cc" "$source/tests/install/plugin.c" "$source/tests/install/CMakeLists.txt" .
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
try "static needs no libashlar.so" bash -c '! ldd c_pkg_static cmake/cc_static | grep libashlar'
if [ "$llvm_is_shared" -eq 0 ]; then
    try "static needs no libLLVM" bash -c '! ldd c_pkg_static cmake/cc_static | grep libLLVM'
    try "shared needs no libLLVM" bash -c '! ldd prefix/lib/libashlar.so | grep libLLVM'
else
    skip "static needs no libLLVM" "LLVM is linked as a shared library"
    skip "shared needs no libLLVM" "LLVM is linked as a shared library"
fi
try "the program" prefix/bin/ashlar --help
try "headers stand alone" bash -c 'for h in prefix/include/ashlar/*.h; do
    cc -std=c17 -pedantic -Wall -Wextra -Werror -fsyntax-only -x c $h && c++ -std=c++14 -pedantic -Wall -Wextra -Werror -fsyntax-only -x c++ $h || exit 1
done'

# Plug-ins, as pkg-config and CMake link them: they show nothing but their own function, and live beside any LLVM.
cp "$source/tests/install/host.c" .
try "host" cc -Wall -Wextra -Werror host.c -ldl -o host
try "plug-in, pkg-config" cc -shared -fPIC -Wall -Wextra -Werror plugin.c $static -o plugin_pkg.so
for plugin in ./plugin_pkg.so cmake/plugin.so; do
    try "$plugin shows its function alone" bash -c '! nm -D --defined-only $1 | grep -vE " (plugin_run|__bss_start|_edata|_end|_init|_fini)$"' - $plugin
done
libraries() { ls /usr/lib/*/libLLVM-[0-9]*.so.1 /usr/lib/*/libLLVM.so.[0-9]* /usr/lib/*/libLLVM-[0-9][0-9].so /usr/lib/llvm-*/lib/libLLVM.so.1 2>/dev/null; }
same="" other=""
for library in $(libraries); do
    case $(readlink -f "$library") in *19.1*) same=$library ;; *) other=$library ;; esac
done
for plugin in ./plugin_pkg.so cmake/plugin.so; do
    if [ -z "$same" ]; then skip "$plugin in a host with the same LLVM" "no libLLVM 19 is installed"
    else try "$plugin in a host with $same" ./host "$same" $plugin; fi
    if [ -z "$other" ]; then skip "$plugin in a host with another LLVM" "no other libLLVM is installed"
    elif [ "$llvm_is_shared" -ne 0 ]; then skip "$plugin in a host with another LLVM" "LLVM is linked as a shared library"
    else try "$plugin in a host with $other" ./host "$other" $plugin; fi
done

# Among the folders of another project: only the libraries are built, as that project says.
try "within: configure" cmake -S "$source/tests/install/within" -B within -G Ninja -DASHLAR="$source"
try "within: build" cmake --build within
for program in within/c_static within/c_shared; do try "$program" "./$program"; done
try "within: nothing to install" bash -c 'cmake --install within --prefix "$PWD/none" >/dev/null && [ ! -e none ]'

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
