#!/bin/bash
# SPDX-License-Identifier: MIT
# Random graphs through everything, for a time:
#
#     tools/fuzz.sh [SECONDS]                                7200 without a word
#
# A half of it random graphs as plans are used, a quarter the same with clang's address and undefined-behaviour sanitizers,
# a quarter random ONNX models against onnxruntime, where its Python package is installed. Seeds go on where the clock says, so that each run sees other graphs. What fails is printed with its seed and
# written, made small, to build-fuzz/found/SEED.txt: such a file, moved to tests/data/fuzz, is a test. Status 1 when
# anything failed.
set -u
cd "$(dirname "$0")/.." || exit 1
seconds=${1:-7200}
found=build-fuzz/found
failed=0

# NAME, TARGET, then cmake's arguments
build() {
    local tree=build-fuzz/$1 target=$2
    shift 2
    cmake -S . -B "$tree" -G Ninja --log-level=WARNING -DASHLAR_LLVM=shared -DASHLAR_WERROR=ON "$@" >/dev/null &&
        cmake --build "$tree" --target "$target" | tail -n 3
}

# NAME, SECONDS, then cmake's arguments
run() {
    local name=$1 time=$2
    shift 2
    build "$name" fuzz "$@" &&
        "build-fuzz/$name/tests/fuzz" --seconds "$time" --first "$(date +%s)000000" --out "$found" || failed=1
}

mkdir -p "$found"
run plain $((seconds / 2))
run address $((seconds / 4)) -DCMAKE_C_COMPILER=clang-19 -DCMAKE_CXX_COMPILER=clang++-19 \
    -DASHLAR_SANITIZE=address,undefined
if python3 -c 'import numpy, onnx, onnxruntime' 2>/dev/null; then
    build plain conformance && tools/fuzz_onnx.py build-fuzz/plain/tests/conformance "$found" --seconds $((seconds / 4)) || failed=1
else
    echo "SKIPPED: random ONNX models, since Python's onnx and onnxruntime are not installed (pip install onnx onnxruntime)"
fi
ls "$found"
exit $failed
