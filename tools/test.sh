#!/bin/bash
# Builds and tests ashlar in the ways that are named, and prints what was counted:
#
#     tools/test.sh [release] [address] [thread] [lint]
#
#   release   gcc, as it is shipped; also installs it and builds programs against it, and checks sources and symbols
#   address   clang, address and undefined-behaviour sanitizers: the same tests but for those of the shipped files
#   thread    clang, thread sanitizer: the tests that are labelled "threads"
#   lint      clang-format and clang-tidy
#
# Each build has a folder of its own, build-NAME. The sanitized ones use LLVM's shared library, whose C interface is all
# that ashlar uses. Status 1 when anything failed. JOBS: how many at once (default: one per core).
set -u
cd "$(dirname "$0")/.." || exit 1
jobs=${JOBS:-$(nproc)}
failed=0
table=$(mktemp)
trap 'rm -f "$table"' EXIT

say() { printf '\n=== %s\n' "$*"; }

row() { printf '%-9s %8s %8s %8s %8s %8s %7ss\n' "$@" >>"$table"; }

# Sums what the programs of a ctest run printed: cmocka's lines, and "N passed, N failed, N skipped" of the others.
count() {
    awk '/^\[  PASSED  \] [0-9]+ test/ { p += $4 }
         /^\[  SKIPPED \] [0-9]+ test/ { s += $4 }
         /^\[  FAILED  \] [0-9]+ test/ { f += $4 }
         /^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped/ { p += $1; f += $3; s += $5 }
         END { print p + 0, f + 0, s + 0 }' "$1"
}

# NAME, ctest's arguments as one word, then cmake's arguments
run() {
    local name=$1 select=$2 tree=build-$1 start=$SECONDS launch=""
    shift 2
    say "$name: build"
    if ! { cmake -S . -B "$tree" -G Ninja --log-level=WARNING "$@" >"$table.log" || { cat "$table.log"; false; }; } ||
        ! cmake --build "$tree" -j "$jobs" | tail -n 40; then
        failed=1
        row "$name" "no build" - - - - $((SECONDS - start))
        return
    fi
    say "$name: test"
    # The thread sanitizer wants its shadow where address-space randomisation may have put something else.
    [ "$name" = thread ] && setarch -R true 2>/dev/null && launch="setarch -R"
    local log=$tree/Testing/Temporary/LastTest.log
    rm -f "$log"
    $launch ctest --test-dir "$tree" -j "$jobs" --output-on-failure --no-tests=error $select | tee "$table.log"
    [ "${PIPESTATUS[0]}" -eq 0 ] || failed=1
    sed -n '/^unsupported, by reason:/,/passed.*skipped/p' "$log"
    local programs
    programs=$(sed -n 's/.* \([0-9]*\) tests failed out of \([0-9]*\)/\1 \2/p' "$table.log")
    set -- $programs
    row "$name" "$((${2:-0} - ${1:-0}))" "${1:-?}" $(count "$log") $((SECONDS - start))
}

set -o pipefail
export UBSAN_OPTIONS=print_stacktrace=1 TSAN_OPTIONS=suppressions=$PWD/tools/thread.supp
for name in "${@:-release}"; do
    case $name in
    release) run release "" ;;
    address) run address "" -DCMAKE_C_COMPILER=clang-19 -DCMAKE_CXX_COMPILER=clang++-19 -DASHLAR_LLVM=shared \
        -DASHLAR_SANITIZE=address,undefined ;;
    thread) run thread "-L threads" -DCMAKE_C_COMPILER=clang-19 -DCMAKE_CXX_COMPILER=clang++-19 -DASHLAR_LLVM=shared \
        -DASHLAR_SANITIZE=thread ;;
    lint)
        start=$SECONDS
        say "lint"
        if tools/lint.sh check; then row lint 1 0 - - - $((SECONDS - start)); else
            failed=1
            row lint 0 1 - - - $((SECONDS - start))
        fi
        ;;
    *) echo "usage: tools/test.sh [release] [address] [thread] [lint]" >&2; exit 2 ;;
    esac
done
rm -f "$table.log"

printf '\n%-9s %17s %26s\n' "" "programs" "cases"
printf '%-9s %8s %8s %8s %8s %8s %8s\n' "" passed failed passed failed skipped time
cat "$table"
awk -v bad=$failed '{ p += $4; f += $5; s += $6 } END { printf "\n%d passed, %d failed, %d skipped%s\n", p, f, s, bad ? "   NOT GOOD: see above" : "" }' "$table"
exit $failed
