#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What onnxruntime makes of the networks of tests/nets.h, for test_ptx_models.

    tools/nets_expected.py build-dev/tests/test_ptx_models > tests/data/nets.txt

The program writes the models and their inputs. A line for each output: "NET; OUTPUT; STEP; numbers", which are every
STEP-th, from the first on."""
import os, subprocess, sys, tempfile

import numpy
import onnxruntime

TYPES = {"tensor(float)": numpy.float32, "tensor(int64)": numpy.int64}
ABOUT = 128  # numbers of an output


def main(program):
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([program, "--write", folder], check=True)
        for model in sorted(f for f in os.listdir(folder) if f.endswith(".onnx")):
            name = model.removesuffix(".onnx")
            session = onnxruntime.InferenceSession(os.path.join(folder, model), providers=["CPUExecutionProvider"])
            feed = {i.name: numpy.fromfile(os.path.join(folder, f"{name}.{i.name}"), TYPES[i.type]).reshape(i.shape)
                    for i in session.get_inputs()}
            for output, array in zip(session.get_outputs(), session.run(None, feed)):
                step = array.size // ABOUT | 1  # odd: columns of each kind
                numbers = " ".join(f"{v:.9g}" for v in array.reshape(-1)[::step])
                print(f"{name}; {output.name}; {step}; {numbers}")


main(sys.argv[1])
