#!/bin/bash
# SPDX-License-Identifier: MIT
# Builds and tests ashlar in the ways that are named, and prints what was counted:
#
#     tools/test.sh [release] [address] [thread] [machines] [arm] [models] [lint]
#
#   release   gcc, as it is shipped; also installs it and builds programs against it, and checks sources and symbols
#   address   clang, address and undefined-behaviour sanitizers: the same tests but for those of the shipped files; as a
#             processor with AVX2 (tests/machine.c), where this one has more
#   thread    clang, thread sanitizer: the tests that are labelled "threads"
#   machines  the release build once more, as other processors (tests/machine.c): plain x86-64, AVX2 and AVX-512, with
#             first-level caches of 32, 48 and 64 KiB; those that this one cannot be are skipped
#   arm       clang for aarch64, run by qemu (tools/arm): code, kernels, plans, the ONNX backend tests, random graphs
#   models    whole models on the stand-in for the CUDA driver, with all of its checks: minutes (tests/models); what else is
#             run on it, and all kernels that are made there assembled, where ptxas is installed
#   lint      clang-format and clang-tidy
#
# Each build has a folder of its own, build-NAME. The sanitized ones use LLVM's shared library, whose C interface is all
# that ashlar uses. Status 1 when anything failed; what failed stands by name at the end. JOBS: how many at once (default:
# one per core).
set -u
cd "$(dirname "$0")/.." || exit 1
jobs=${JOBS:-$(nproc)}
failed=0
table=$(mktemp) names=$(mktemp)
trap 'rm -f "$table" "$table.log" "$table.err" "$names"' EXIT

say() { printf '\n=== %s\n' "$*"; }

row() { printf '%-18s %8s %8s %8s %8s %8s %7ss\n' "$@" >>"$table"; }

# NAME and a ctest run's log and list of failures: each program that failed, with its cases where it names them.
name_failures() {
    [ -s "$3" ] || return
    awk -v run="$1" 'FILENAME == ARGV[1] { split($0, part, ":"); bad[part[2]] = 1; next }
         /^[0-9]+\/[0-9]+ Test: / { test = $3; if (test in bad && !(test in seen)) { order[++n] = test; seen[test] = 1 } }
         test in bad && /^\[  FAILED  \] [A-Za-z_]/ && $4 !~ /:$/ && !((test, $4) in told) { told[test, $4] = 1; cases[test] = cases[test] " " $4 }
         test in bad && /^(FAIL|==[0-9]+==ERROR|SUMMARY: )/ && ++lines[test] <= 3 { cases[test] = cases[test] "\n        " substr($0, 1, 160) }
         END { for (i = 1; i <= n; i++) printf "  %-9s %s%s\n", run, order[i], cases[order[i]] ? ":" cases[order[i]] : "" }' \
        "$3" "$2" >>"$names"
}

# Builds a tree, or the target of it that is named. On a terminal ninja says how far it is; else a line for each tenth,
# and what is no step.
build_tree() {
    local line tenth last=-1
    if [ -t 1 ]; then
        cmake --build "$1" -j "$jobs" ${2:+--target "$2"}
        return
    fi
    cmake --build "$1" -j "$jobs" ${2:+--target "$2"} 2>&1 | while IFS= read -r line; do
        if [[ $line =~ ^\[([0-9]+)/([0-9]+)\] ]]; then
            tenth=$((10 * BASH_REMATCH[1] / BASH_REMATCH[2]))
            [ "$tenth" -eq "$last" ] && continue
            last=$tenth
        fi
        printf '%s\n' "$line"
    done
}

# NAME, its tree, ctest's arguments as one word: runs the tests, adds a row.
tests() {
    local name=$1 tree=$2 select=$3 start=$4 launch=""
    # The thread sanitizer wants its shadow where address-space randomisation may have put something else.
    [ "$name" = thread ] && setarch -R true 2>/dev/null && launch="setarch -R"
    local log=$tree/Testing/Temporary/LastTest.log bad=$tree/Testing/Temporary/LastTestsFailed.log
    rm -f "$log" "$bad"
    $launch ctest --test-dir "$tree" -j "$jobs" --output-on-failure --no-tests=error $select | tee "$table.log"
    [ "${PIPESTATUS[0]}" -eq 0 ] || failed=1
    sed -n '/^unsupported, by reason:/,/passed.*skipped/p' "$log"
    name_failures "$name" "$log" "$bad"
    local programs counts
    mapfile -t counts < <(awk -f tools/counts.awk "$log")
    for silent in "${counts[@]:1}"; do
        failed=1
        echo "  $name $silent: passed, and counted nothing" >>"$names"
    done
    programs=$(sed -n 's/.* \([0-9]*\) tests failed out of \([0-9]*\)/\1 \2/p' "$table.log")
    set -- $programs
    row "$name" "$((${2:-0} - ${1:-0}))" "${1:-?}" ${counts[0]} $((SECONDS - start))
}

# A tree and cmake's arguments. Where the compiler is found elsewhere than before, cmake forgets all others: once more.
configure() {
    local tree=$1 again
    shift
    for again in 1 2; do
        cmake -S . -B "$tree" -G Ninja --log-level=WARNING -DASHLAR_WERROR=ON "$@" >"$table.log" 2>"$table.err" || {
            cat "$table.log" "$table.err"
            return 1
        }
        grep -q "require your cache to be deleted" "$table.err" || break
    done
    cat "$table.err" >&2
}

# NAME, then cmake's arguments: builds it; of what the thread sanitizer looks at, only that
build() {
    local name=$1 tree=build-$1 start=$SECONDS target=""
    [ "$name" = thread ] && target=test_threads
    shift
    say "$name: build"
    if configure "$tree" "$@"; then
        build_tree "$tree" $target && return
    fi
    failed=1
    row "$name" "no build" - - - - $((SECONDS - start))
    echo "  $name no build" >>"$names"
    return 1
}

# NAME, ctest's arguments as one word, then cmake's arguments
run() {
    local name=$1 select=$2 start=$SECONDS
    shift 2
    build "$name" "$@" || return
    say "$name: test"
    tests "$name" "build-$name" "$select" "$start"
}

# Those of the processor: qemu takes ten to twenty times as long.
arm="^(test_(attend|bytes|code_[a-z]+|few_bits|grad|index|lookup|loop|lower|pairs|runtime_(graph|run|state|streams)|target|tile|winograd)\
|conformance(_fixtures)?_plan|fuzz_cases|fuzz_plans)\$"

# The tests that depend on the processor, as each of these.
machines() {
    build release || return
    export ASHLAR_FUZZ_COUNT=200 # of the random graphs: each is run on every level of x86-64 anyhow
    for machine in x86-64,32,256 x86-64,64,512 x86-64-v3,32,512 x86-64-v3,48,2048 x86-64-v4,48,2048; do
        say "as $machine: test"
        ASHLAR_TEST_MACHINE=$machine tests "$machine" build-release \
            "-FA modules -E ^(check_|modules_|test_cli|test_ir|test_memory|test_onnx_wire|test_pack|test_pool|test_profile)" $SECONDS
    done
    unset ASHLAR_FUZZ_COUNT
}

set -o pipefail
# Blocks that are freed wait in 16 MB, not 256, before they are given out again: those stay in the caches. Uses of a frame
# after its return, a fifth of the time, are looked for by the tests that reach all of the library (tests/CMakeLists.txt).
export ASAN_OPTIONS=quarantine_size_mb=16:detect_stack_use_after_return=0 UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS=suppressions=$PWD/tools/thread.supp
for name in "${@:-release}"; do
    case $name in
    release) run release "" ;;
    address)
        grep -qsw avx512f /proc/cpuinfo && export ASHLAR_TEST_MACHINE=x86-64-v3,32,512
        run address "" -DCMAKE_C_COMPILER=clang-19 -DCMAKE_CXX_COMPILER=clang++-19 -DASHLAR_LLVM=shared \
            -DASHLAR_SANITIZE=address,undefined
        unset ASHLAR_TEST_MACHINE
        ;;
    thread) run thread "-L threads" -DCMAKE_C_COMPILER=clang-19 -DCMAKE_CXX_COMPILER=clang++-19 -DASHLAR_LLVM=shared \
        -DASHLAR_SANITIZE=thread ;;
    machines) machines ;;
    arm) tools/arm/setup.sh && run arm "--timeout 3600 -R $arm" -DCMAKE_TOOLCHAIN_FILE=tools/arm/toolchain.cmake -DASHLAR_LLVM=shared ;;
    models) build release && ASSEMBLE_SECONDS=0 tests models build-release "-C models -L models|gpu" $SECONDS ;;
    lint)
        start=$SECONDS
        say "lint"
        if tools/lint.sh check; then row lint 1 0 - - - $((SECONDS - start)); else
            failed=1
            echo "  lint" >>"$names"
            row lint 0 1 - - - $((SECONDS - start))
        fi
        ;;
    *) echo "usage: tools/test.sh [release] [address] [thread] [machines] [arm] [models] [lint]" >&2; exit 2 ;;
    esac
done
printf '\n%-18s %17s %26s\n' "" "programs" "cases"
printf '%-18s %8s %8s %8s %8s %8s %8s\n' "" passed failed passed failed skipped time
cat "$table"
awk -v bad=$failed '{ p += $4; f += $5; s += $6 } END { printf "\n%d passed, %d failed, %d skipped%s\n", p, f, s, bad ? "   NOT GOOD:" : "" }' "$table"
cat "$names"
exit $failed
