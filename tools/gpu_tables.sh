#!/bin/bash
# SPDX-License-Identifier: MIT
# Writes docs/cuda_tables.md, all that tools say of models on GPUs:
#
#     tools/gpu_tables.sh BUILD MODELS > docs/cuda_tables.md
#     tools/gpu_tables.sh BUILD MODELS forecasts|precisions|layers|products|loops...
#
# BUILD is a folder of a build with tests (ashlar, example_resnet50, tests/nest_cuda, tests/ptx/libptx_driver.so), MODELS that of
# the models (squeezenet/model.onnx, with a test_data_set_0 for the stand-in to execute). The second makes some of the tables alone.
# Half an hour and more, of which most is the assemblers' and the stand-in's. What a table lacks a tool for is said in its place:
# $PTXAS, $NVDISASM and $NVCC, or PATH, have the toolkit's. EXPLAINED: a folder where what programs said is kept for another time. GPU_SECONDS (default 600): how long a model may take on the
# stand-in. Status 1 when a tool fails or a kernel spills.
set -u
cd "$(dirname "$0")/.." || exit 2
[ $# -ge 2 ] || { sed -n '3,13s/^# \{0,1\}//p' "$0" >&2; exit 2; }
build=$1 models=$2 ashlar=$1/ashlar
shift 2
failed=0
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export EXPLAINED=${EXPLAINED:-$folder}

all="squeezenet mobilenet_v2 bert_mini bvlc_alexnet inception_v1 resnet50 bert_base vgg19 mlp_120x64 mlp_8x1024 chain_1000x16 chain_100x1m"
large="resnet50 bert_base vgg19"

# What of some models there is in MODELS: their folders, or with "/model.onnx" their files.
found() {
    local file=$1
    shift
    for name in "$@"; do
        [ -f "$models/$name/model.onnx" ] && printf '%s\n' "$models/$name$file" || echo "gpu_tables.sh: no $models/$name/model.onnx" >&2
    done
}

# The file of a resnet50 of 32 images at a time.
batch() {
    local of="$EXPLAINED/resnet50, batch 32"
    mkdir -p "$of"
    [ -f "$of/model.onnx" ] || "$build/example_resnet50" "$of/model.onnx" 32 >/dev/null
    echo "$of/model.onnx"
}

# A command, whose output is a table or several.
table() {
    echo
    "$@"
    local status=$?
    [ $status -eq 77 ] && echo "(left out)" && return
    [ $status -eq 0 ] || failed=1
}

# A heading, and what stands under it.
heading() {
    printf '\n## %s\n\n%s\n' "$1" "$2"
}

forecasts() {
    heading "Forecasts" "Microseconds by \`ashlar plan --explain\`. Kernels are distinct ones, the prologue's too; errors against onnxruntime's
results, and instructions of threads in one execution, are the stand-in's."
    table tools/gpu_table.py --run "${GPU_SECONDS:-600}" "$ashlar" "$build/tests/ptx/libptx_driver.so" $(found "" $all)
}

precisions() {
    heading "Precisions of f32" "Microseconds in mode graph."
    table tools/gpu_table.py --precisions "$ashlar" $(found "" $large)
}

layers() {
    heading "Between the forecast and the roofline" "Microseconds of an H100 in mode graph, f32, by layer. The roofline is the longer of multiply-adds at the GPU's peak
(61.8 TFLOP/s) and bytes at the rate of memory (3.35 TB/s). What is beyond that: launches and what lies between two of them; uneven: blocks are no
multiple of the multiprocessors, which wait for the fullest; all else: in tiles instructions that do not multiply, elsewhere latencies, and
copies through the second-level cache. Tile: rows x columns / slices; split: parts of sums, which an operation behind adds. Rows are operations that are
alike."
    for name in $large; do
        for model in $(found /model.onnx "$name"); do
            printf '\n### %s\n' "$name"
            table tools/gpu_table.py --layers "$ashlar" sm_90 "$model"
        done
    done
    printf '\n### resnet50, batch 32\n'
    table tools/gpu_table.py --layers "$ashlar" sm_90 "$(batch)"
}

products() {
    heading "Products and convolutions beside nvcc" "Of every distinct one: registers of a thread, and the share of multiply-adds among the instructions of the main loop, of
what ptxas makes of our PTX, and of what nvcc makes of the same nest as CUDA C (\`tests/nvcc\`). Tile: rows x columns of a block / slices of its sums; split: parts of
sums, which a kernel behind adds; spills, where there are any, stand behind registers. A layer is a product (rows x terms x columns), or a window, channels, and positions of its result; the same layer with something else behind
it is a row more."
    table tools/ptx_loops.py --products "$ashlar" "$build/tests/nest_cuda" sm_80,sm_90 $(found /model.onnx bert_base resnet50 vgg19)
}

loops() {
    heading "Bounds by counting" "Instructions, multiply-adds and waits of the main loops as often as they run, on the multiprocessor with the most blocks, of an A100
(1410 MHz), an H100 (1830 MHz) and an RTX 5090 (2407 MHz): bounds from below, and no times. \"All\" has the other kernels at the rate of memory, and 1.5 us for each kernel."
    table tools/ptx_loops.py --sums "$ashlar" sm_80,sm_90,sm_120 $(found /model.onnx resnet50 bert_base vgg19 mobilenet_v2) "$(batch)"
}

# shellcheck disable=SC2046,SC2086
if [ $# -eq 0 ]; then
    printf '# Models on GPUs, in tables\n\nMade by `tools/gpu_tables.sh`; [cuda.md](cuda.md) says what they mean. No GPU was asked.\n'
    set -- forecasts precisions layers products loops
fi
for each in "$@"; do
    case $each in
    forecasts | precisions | layers | products | loops) $each ;;
    *) echo "gpu_tables.sh: no table $each" >&2 && exit 2 ;;
    esac
done
exit $failed
