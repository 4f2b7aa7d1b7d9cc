#!/bin/sh
# SPDX-License-Identifier: MIT
# An environment in build/bench with what the comparisons need: the Python packages onnx, numpy and onnxruntime.
set -eu
cd "$(dirname "$0")/.."
[ -x build/bench/bin/python ] || python3 -m venv build/bench
build/bench/bin/pip install --quiet onnx numpy onnxruntime
echo "build/bench/bin/python bench/compare.py FOLDER"
