#!/bin/sh
# SPDX-License-Identifier: MIT
# gpu_check where no GPU is: on the stand-in for the driver all of it passes, and what fails is said.
#
#   tests/gpu_check/run.sh GPU_CHECK STAND_IN CUBLAS
set -u
check=$1 driver=$2
export ASHLAR_CUBLASLT="$3" # a stand-in, too
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
bad=0
fail() {
    echo "FAIL: $*"
    bad=1
}

ASHLAR_CACHE_DIR=
export ASHLAR_CACHE_DIR
ASHLAR_CUDA_DRIVER=$driver "$check" --quick --csv "$folder/csv" >"$folder/out" 2>"$folder/err" || fail "status $?"
cat "$folder/out" "$folder/err"
grep -q ' 0 failed, 0 skipped' "$folder/out" || fail "no sums, or failures"
# every case in every mode, every case's kernels, and as many fields as the head has
for group in $("$check" --list | sed 's/ .*//' | sort -u) copies memory lives; do
    grep -q "^\"$group\",.*\"passed\"" "$folder/csv" || fail "no row of $group"
done
for mode in stream graph multi_stream poisoned eager; do
    rows=$(grep -v '^"lives"' "$folder/csv" | grep -c ",\"$mode\",\"\",\"passed\"")
    [ "$rows" -eq "$("$check" --list | wc -l)" ] || fail "$rows cases in mode $mode"
done
[ "$(grep -c '"timed"' "$folder/csv")" -ge "$("$check" --list | wc -l)" ] || fail "kernels are missing"
awk -F, 'NR == 1 { n = NF } { gsub(/"[^"]*"/, "x") } NF != n { exit 1 }' "$folder/csv" || fail "fields differ in number"

# bits that nobody promises: it fails, and says where
ASHLAR_CUDA_DRIVER=$driver "$check" --quick --exact --only softmax --csv "$folder/csv" >"$folder/out" 2>&1
[ $? -eq 1 ] || fail "status $? where results differ"
grep -q 'FAILED' "$folder/out" || fail "no failure is shown"
grep -q '"failed".*differs from the processor' "$folder/csv" || fail "no failure in the CSV file"

# no driver, no such GPU, nonsense: one line, and an error
for device in CUDA:0 CUDA:7; do
    library=$driver
    [ $device != CUDA:0 ] || library=$folder/none.so
    ASHLAR_CUDA_DRIVER=$library "$check" --device $device >"$folder/out" 2>"$folder/err"
    [ $? -eq 2 ] || fail "status $? without a GPU"
    [ ! -s "$folder/out" ] && [ "$(wc -l <"$folder/err")" -eq 1 ] || fail "not one line without a GPU"
done
"$check" --nonsense 2>/dev/null
[ $? -eq 2 ] || fail "status $? of a wrong option"

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
