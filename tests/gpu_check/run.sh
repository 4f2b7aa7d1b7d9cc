#!/bin/sh
# SPDX-License-Identifier: MIT
# gpu_check where no GPU is: on the stand-in for the driver all of it passes, and what fails is said. In each section a
# defect of the stand-in (tests/ptx/ptx.h) is found, by the row that is about it and by no other.
#
#   tests/gpu_check/run.sh GPU_CHECK STAND_IN GPU_TABLE CUBLAS
set -u
check=$1 driver=$2 table=$3
export ASHLAR_CUBLASLT="$4" # a stand-in, too
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
bad=0
fail() {
    echo "FAIL: $*"
    bad=1
}

ASHLAR_CACHE_DIR='' ASHLAR_CUDA_DRIVER=$driver
export ASHLAR_CACHE_DIR ASHLAR_CUDA_DRIVER
"$check" --quick --csv "$folder/csv" --json "$folder/json" >"$folder/out" 2>"$folder/err" || fail "status $?"
cat "$folder/out" "$folder/err"
grep -q ' 0 failed, 0 skipped' "$folder/out" || fail "no sums, or failures"
# every case in every mode, every case's kernels, and as many fields as the head has
for group in $("$check" --list | sed 's/ .*//' | sort -u) peaks instructions copies memory lives random; do
    grep -q "^\"$group\",.*\"passed\"" "$folder/csv" || fail "no row of $group"
done
for mode in stream graph multi_stream poisoned eager; do
    rows=$(grep -Ev '^"(lives|random)"' "$folder/csv" | grep -c ",\"$mode\",\"\",\"passed\"")
    [ "$rows" -eq "$("$check" --list | wc -l)" ] || fail "$rows cases in mode $mode"
done
[ "$(grep -c '"timed"' "$folder/csv")" -ge "$("$check" --list | wc -l)" ] || fail "kernels are missing"
awk -F, 'NR == 1 { n = NF } { gsub(/"[^"]*"/, "x") } NF != n { exit 1 }' "$folder/csv" || fail "fields differ in number"

# the same as JSON, with numbers for all peaks; each instruction, and each random graph in each mode, has a row
"$table" "$folder/json" "$folder/csv" || fail "the JSON is not the table"
tail -n +3 "$folder/json" >"$folder/broken"
"$table" "$folder/broken" "$folder/csv" >/dev/null && fail "what is no JSON is taken"
sed 's/"off": true/"off": false/' "$folder/json" >"$folder/broken"
"$table" "$folder/broken" "$folder/csv" >/dev/null && fail "a mark that is wrong is taken"
grep -v '"softmax","stream",""' "$folder/csv" >"$folder/broken"
"$table" "$folder/json" "$folder/broken" >/dev/null && fail "a row that is missing is taken"
cases=$(grep -c '^case ' "$(dirname "$0")/../data/ptx_cases.txt")
rows=$(grep -c '^"instructions",.*"passed"' "$folder/csv")
[ "$rows" -eq $((cases + 1)) ] || fail "$rows rows of $cases instructions"
[ "$(grep -c '^"peaks",.*"passed"' "$folder/csv")" -eq 13 ] || fail "peaks are missing"
for mode in processor stream graph multi_stream poisoned eager; do
    [ "$(grep -c "^\"random\",\"seed [0-9]*\",\"$mode\",\"\",\"passed\"" "$folder/csv")" -eq 4 ] ||
        fail "not four random graphs in mode $mode"
done

# DEFECT WORDS OPTIONS...: what is left out or wrong is found; the rows that failed, and why, have the words, and no others did
# shellcheck disable=SC2317
finds() {
    defect=$1 words=$2
    shift 2
    env "$defect" "$check" --quick --csv "$folder/csv" "$@" >"$folder/out" 2>&1
    [ $? -eq 1 ] || fail "$defect: status is not 1"
    grep ',"failed",' "$folder/csv" >"$folder/failed"
    grep -Eq "$words" "$folder/failed" || fail "$defect: not found"
    if grep -Evq "$words" "$folder/failed"; then
        fail "$defect: others fail"
        cat "$folder/failed"
    fi
    grep -q 'FAILED' "$folder/out" || fail "$defect: it is not shown"
}
finds PTX_WRONG=bfind '"bfind\.[us](32|64)"|4 cases do not' --only instructions
finds PTX_WRONG=fma 'f32 multiply-adds.*thread 0 has' --only peaks
finds PTX_WRONG=mma.sync 'tensor cores, .*thread 0 has' --only peaks
finds 'PTX_LEAVE_OUT=cuMemcpyHtoDAsync_v2 6' 'memory.*other bytes came back' --only peaks
finds 'PTX_LEAVE_OUT=cuLaunchKernel 18' '"a launch".*9 kernels ran, and not 10' --only peaks
finds 'PTX_LEAVE_OUT=edge 2' '"a node of a graph"' --only peaks
finds 'PTX_LEAVE_OUT=cuStreamWaitEvent 3' 'another stream.s event' --only peaks
finds 'PTX_LEAVE_OUT=cuMemcpyHtoDAsync_v2 2' '"copies","1 bytes.*other bytes came back' --only copies
finds 'PTX_LEAVE_OUT=cuMemAlloc_v2 3' '"1 MiB more' --only memory
finds 'PTX_LEAVE_OUT=cuMemcpyHtoDAsync_v2 2' '"lives".*other bits than alone' --only lives
finds PTX_WRONG=sqrt 'differs from the processor' --only arithmetic
finds 'PTX_WRONG=sqrt 16' 'other bits when it is computed once more' --only arithmetic --repeat 3
finds 'PTX_LEAVE_OUT=bar.sync 3' '"extrema","stream"' --only extrema # the GPU is lost, and opened again
finds PTX_WRONG=neg 'seed 2",|of them are not right' --only random --seed 2 --graphs 1
# near enough, but not the bits that are promised: seed 29 has a function of floats
finds PTX_WRONG=fma 'seed 29","stream".*other bits than on the processor|1 of them' --only random --seed 29 --graphs 1
# one wrong sum, of the times that a random graph is computed: which of them is in a result, depends on its kernels
for n in 400 440 480 360 520 320 560 600 640 680 720 760 800 none; do
    PTX_WRONG="add $n" "$check" --quick --only random --seed 2 --graphs 1 --repeat 3 >"$folder/out" 2>&1
    grep -q 'other bits than before' "$folder/out" && break
done
[ "$n" != none ] || fail "a random graph that has other results once more is not found"

# bits that nobody promises: it fails, and says where
"$check" --quick --exact --only softmax --csv "$folder/csv" >"$folder/out" 2>&1
[ $? -eq 1 ] || fail "status $? where results differ"
grep -q 'FAILED' "$folder/out" || fail "no failure is shown"
grep -q '"failed".*differs from the processor' "$folder/csv" || fail "no failure in the CSV file"

# no time: nothing is begun, and it is said of each case
"$check" --quick --seconds 0 --only products >"$folder/out" 2>&1 || fail "status $? without time"
grep -q '^0 passed, 0 failed, [1-9][0-9]* skipped' "$folder/out" || fail "cases are begun without time"

# a GPU that has neither the matrices nor the instructions of the table: skipped, and said
PTX_SM=75 "$check" --quick --only peaks >"$folder/out" 2>&1 || fail "status $? on sm_75"
grep -q '^9 passed, 0 failed, 4 skipped' "$folder/out" || fail "peaks on sm_75"
PTX_SM=75 "$check" --quick --only instructions >"$folder/out" 2>&1 || fail "status $? on sm_75"
grep -q "^0 passed, 0 failed, $((cases + 1)) skipped" "$folder/out" || fail "instructions on sm_75"

# what does not come to an end in time: a failure, and files that are whole
"$check" --seconds 3 --only squeezenet --csv "$folder/csv" --json "$folder/json" >"$folder/out" 2>&1
[ $? -eq 1 ] || fail "status $? of what takes too long"
grep -q '"time",.*"failed".*end"$' "$folder/csv" || fail "it is not said that it takes too long"
tail -1 "$folder/json" | grep -q '"failed": 1, "skipped": 0}$' || fail "the JSON of what takes too long has no end"

# no driver, no such GPU, nonsense: one line, and an error
for device in CUDA:0 CUDA:7; do
    library=$driver
    [ $device != CUDA:0 ] || library=$folder/none.so
    ASHLAR_CUDA_DRIVER=$library "$check" --device $device >"$folder/out" 2>"$folder/err"
    [ $? -eq 77 ] || fail "status $? without a GPU"
    [ ! -s "$folder/out" ] && [ "$(wc -l <"$folder/err")" -eq 1 ] || fail "not one line without a GPU"
done
for options in --nonsense '--repeat 0' '--seed x' '--seed' '--device CPU' '--device CUDA:sm_90'; do
    # shellcheck disable=SC2086
    "$check" $options >/dev/null 2>&1
    [ $? -eq 2 ] || fail "status $? of $options"
done

# as it is given away: at most 64 MiB, and nothing of a toolchain
if ! ldd "$check" | grep -Eq 'libLLVM|libasan|libtsan'; then
    size=$(wc -c <"$check")
    [ "$size" -le $((64 << 20)) ] || fail "$size bytes"
    needs=$(ldd "$check" | grep -Ev 'linux-vdso|ld-linux|lib(c|m|dl|pthread|rt)\.so')
    [ -z "$needs" ] || fail "needs $needs"
    newest=$(objdump -T "$check" | sed -n 's/.*(GLIBC_\([0-9.]*\)).*/\1/p' | sort -V | tail -1)
    [ "$(printf '%s\n2.35\n' "$newest" | sort -V | tail -1)" = 2.35 ] || fail "needs glibc $newest"
fi
exit $bad
