#!/bin/sh
# SPDX-License-Identifier: MIT
# Makes PTX of all kernels of models, and assembles it where the CUDA toolkit's ptxas is installed.
#
#   tools/ptx.sh ASHLAR sm_80[,sm_90...] [--OPTION=VALUE...] MODEL.onnx...
#
# Options are those of `ashlar inspect`, for all models that follow: --var=height=320.
# A line for each model and kind of GPU: kernels, those that LLVM or ptxas refuses, those that have a stack frame and how many
# bytes the largest has, those whose registers spill and how many bytes. What is not right stands by number in lines before
# it. Ends with 1 when anything was refused, spills, or has a stack frame: what a thread keeps there is in memory; with 77
# where there is no ptxas and all of it was made.
set -u
ashlar=$1 kinds=$(echo "$2" | tr , ' ')
shift 2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
bad=0
ptxas=$(command -v "${PTXAS:-ptxas}" || command -v /usr/local/cuda/bin/ptxas || true)

# MODEL KIND
one() {
    rm -f "$folder"/*
    if ! "$ashlar" inspect asm --device "CUDA:$2" --no-cache $options "$1" >"$folder/all"; then
        echo "$1, $2: no PTX"
        bad=1
        return
    fi
    # "; kernel N" begins each
    awk -v to="$folder" '/^; kernel /{file = to "/" $3 ".ptx"; next} {print > file}' "$folder/all"
    count=0 refused=0 framed=0 most=0 spilled=0 bytes=0
    for ptx in "$folder"/*.ptx; do
        count=$((count + 1)) number=$(basename "$ptx" .ptx)
        if grep -Eq '\.ftz|(mul|add|sub|fma)\.f(32|64)|div\.(approx|full)|sqrt\.approx' "$ptx"; then
            echo "$1, $2, kernel $number: arithmetic that is not IEEE's, or that may be contracted"
            bad=1
        fi
        [ -n "$ptxas" ] || continue
        if ! "$ptxas" -v -arch="$2" -o "$folder/cubin" "$ptx" >"$folder/log" 2>&1; then
            refused=$((refused + 1))
            echo "$1, $2, kernel $number: refused"
            head -3 "$folder/log"
        fi
        # "N bytes stack frame, N bytes spill stores, N bytes spill loads"
        frame=0 spill=0
        set -- "$1" "$2" $(sed -n 's/^ *\([0-9]*\) bytes stack frame, \([0-9]*\) bytes spill stores.*/\1 \2/p' "$folder/log")
        frame=${3:-0} spill=${4:-0}
        if [ "$frame" -gt 0 ] || [ "$spill" -gt 0 ]; then
            echo "$1, $2, kernel $number: a stack frame of $frame bytes, $spill bytes spill"
            framed=$((framed + 1))
            [ "$frame" -gt "$most" ] && most=$frame
        fi
        [ "$spill" -gt 0 ] && spilled=$((spilled + 1)) bytes=$((bytes + spill))
    done
    [ $((refused + framed)) = 0 ] || bad=1
    echo "$1, $2: $count kernels, $refused refused, $framed with a stack frame of up to $most bytes, $spilled spill $bytes bytes"
}

options=""
for model in "$@"; do
    case $model in
    --*) options="$options $model" ;;
    *) for kind in $kinds; do one "$model" "$kind"; done ;;
    esac
done
[ $bad = 0 ] || exit 1
[ -n "$ptxas" ] || exit 77
