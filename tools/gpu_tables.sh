#!/bin/bash
# SPDX-License-Identifier: MIT
# The tables of docs/cuda.md that tools make, in its order, each under the command that it stands for:
#
#     tools/gpu_tables.sh ASHLAR MODELS [STAND_IN] [forecasts|precisions|layers|loops|nvcc]...
#
# ASHLAR is the program, MODELS the folder of the models (squeezenet/model.onnx, with a test_data_set_0 where STAND_IN, the
# library libptx_driver.so, is to execute them). RESNET50: a file of it whose batch is a variable, as example_resnet50 writes,
# for the tables of batch 32. Without names all of it is made: most of an hour, of which most is the
# assembler's and the stand-in's. What a table lacks a tool for is said in its place. GPU_SECONDS (default 600): how long a
# model may take on the stand-in. Status 1 when a tool fails or a kernel spills.
set -u
cd "$(dirname "$0")/.." || exit 2
[ $# -ge 2 ] || { sed -n '3,12s/^# \{0,1\}//p' "$0" >&2; exit 2; }
ashlar=$1 models=$2
shift 2
stand_in=()
case ${1-} in *.so) stand_in=("$1") && shift ;; esac
failed=0

all="squeezenet mobilenet_v2 bert_mini bvlc_alexnet inception_v1 resnet50 bert_base vgg19 mlp_120x64 mlp_8x1024 chain_1000x16 chain_100x1m"
large="resnet50 bert_base vgg19"

folders() {
    for name in "$@"; do
        [ -f "$models/$name/model.onnx" ] && printf '%s\n' "$models/$name" || echo "gpu_tables.sh: no $models/$name/model.onnx" >&2
    done
}

# A command, whose output is a table or several.
table() {
    printf '\n<!-- %s -->\n\n' "$(basename "$1") ${*:2}"
    "$@"
    local status=$?
    [ $status -eq 77 ] && echo "(left out)" && return
    [ $status -eq 0 ] || failed=1
}

forecasts() {
    local run=()
    [ ${#stand_in[@]} -eq 0 ] || run=(--run "${GPU_SECONDS:-600}")
    table tools/gpu_table.py "${run[@]}" "$ashlar" "${stand_in[@]}" $(folders $all)
}

precisions() {
    table tools/gpu_table.py --precisions "$ashlar" $(folders $large)
}

layers() {
    for name in resnet50 bert_base; do
        [ -f "$models/$name/model.onnx" ] || continue
        table tools/gpu_table.py --layers "$ashlar" sm_90 "$models/$name/model.onnx"
    done
    [ -z "${RESNET50-}" ] || table tools/gpu_table.py --layers "$ashlar" sm_90 "$RESNET50" --var batch=32
}

loops() {
    for name in resnet50 bert_base vgg19 mobilenet_v2; do
        [ -f "$models/$name/model.onnx" ] || continue
        table tools/ptx_loops.py "$ashlar" sm_80,sm_90,sm_120 "$models/$name/model.onnx"
    done
    [ -z "${RESNET50-}" ] || table tools/ptx_loops.py "$ashlar" sm_90 "$RESNET50" -- --var batch=32
}

nvcc() {
    table tools/ptx_loops.py --nvcc sm_80,sm_90,sm_120
}

for name in "${@:-forecasts precisions layers loops nvcc}"; do
    for each in $name; do
        case $each in
        forecasts | precisions | layers | loops | nvcc) $each ;;
        *) echo "gpu_tables.sh: no table $each" >&2 && exit 2 ;;
        esac
    done
done
exit $failed
