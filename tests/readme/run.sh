#!/bin/bash
# SPDX-License-Identifier: MIT
# Builds the C programs of README.md as they stand there, and runs them:
#
#     tests/readme/run.sh BUILD
#
# The first on a ResNet-50, on a SqueezeNet with a batch and on a BERT with a batch and a sequence that the files leave open;
# the second, which gives these bounds, on the BERT. Prints "N passed, N failed, N skipped".
set -u
build=$(realpath "$1")
source=$(realpath "$(dirname "$0")/../..")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
passed=0 failed=0

try() { # what it is, a text that the output must have, a command
    local name=$1 text=$2
    shift 2
    if "$@" >"$folder/log" 2>&1 && { [ -z "$text" ] || grep -qE "$text" "$folder/log"; }; then passed=$((passed + 1)); else
        failed=$((failed + 1))
        echo "FAIL $name: $*"
        cat "$folder/log"
    fi
}

cd "$folder" || exit 2
awk '/^```c$/ { n++; inside = 1; next } /^```$/ { inside = 0 } inside { print > ("program" n ".c") }' "$source/README.md"
link="-I$source/include -L$build -lashlar -lm -Wl,-rpath,$build"
for program in program1 program2; do
    try "$program compiles" "" cc -Wall -Wextra -Werror -x c $program.c $link -o $program
done
try "no other programs" "^2$" bash -c 'ls program*.c | wc -l'
try "the SqueezeNet's generator" "" cc -Wall -Wextra -Werror -x c "$source/tests/readme/models.c" $link -o models
try "SqueezeNet is written" "" ./models squeezenet.onnx
try "ResNet-50 is written" "" "$build/example_resnet50" resnet50.onnx
bert=$source/tests/data/onnx/bert_like/model.onnx
# Nothing is laid out for thousands of images: arenas are small.
try "ResNet-50" "^[0-9]{7} bytes of arena" ./program1 resnet50.onnx
try "SqueezeNet with a batch" "^[0-9]{7} bytes of arena" ./program1 squeezenet.onnx
try "SqueezeNet's result" "^probabilities: 4000 bytes" ./program1 squeezenet.onnx
try "BERT with a batch and a sequence" "^[0-9]{4,6} bytes of arena" ./program1 "$bert"
try "BERT with bounds" "^length 64: " ./program2 "$bert"
try "a file that is not there" "" bash -c '! ./program1 none.onnx'

echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
