#!/bin/sh
# SPDX-License-Identifier: MIT
# Makes PTX of all kernels of models, and assembles it where the CUDA toolkit's ptxas is installed.
#
#   tools/ptx.sh ASHLAR sm_80 MODEL.onnx...
#
# A line a model: kernels, those that LLVM or ptxas refuse, those whose registers spill, and with how many bytes. Ends
# with 1 when anything was refused, with 77 where there is no ptxas and all of it was made.
set -u
ashlar=$1 sm=$2
shift 2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
bad=0
ptxas=$(command -v ptxas || command -v /usr/local/cuda/bin/ptxas || true)
for model in "$@"; do
    rm -f "$folder"/*
    if ! "$ashlar" inspect asm --device "CUDA:$sm" --no-cache "$model" >"$folder/all"; then
        echo "$model: no PTX"
        bad=1
        continue
    fi
    # "; kernel N" begins each
    awk -v to="$folder" '/^; kernel /{file = to "/" $3 ".ptx"; next} {print > file}' "$folder/all"
    count=0 refused=0 spilled=0 bytes=0
    for ptx in "$folder"/*.ptx; do
        count=$((count + 1))
        if grep -Eq '\.ftz|(mul|add|sub|fma)\.f(32|64)|div\.(approx|full)|sqrt\.approx' "$ptx"; then
            echo "$ptx: arithmetic that is not IEEE's, or that may be contracted"
            bad=1
        fi
        [ -n "$ptxas" ] || continue
        if ! "$ptxas" -v -arch="$sm" -o "$folder/cubin" "$ptx" >"$folder/log" 2>&1; then
            refused=$((refused + 1))
            head -3 "$folder/log"
        fi
        n=$(sed -n 's/.* \([0-9]*\) bytes spill stores.*/\1/p' "$folder/log" | head -1)
        if [ "${n:-0}" -gt 0 ]; then
            spilled=$((spilled + 1)) bytes=$((bytes + n))
        fi
    done
    [ $refused = 0 ] || bad=1
    echo "$model: $count kernels, $refused refused, $spilled spill $bytes bytes"
done
[ $bad = 0 ] || exit 1
[ -n "$ptxas" ] || exit 77
