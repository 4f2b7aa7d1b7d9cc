#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the small ONNX models that the tests import: tests/data/onnx/NAME/model.onnx with test_data_set_*.

usage: onnx_fixtures.py OUTDIR [NAME...]        (the results are committed; onnx, numpy and onnxruntime are needed only here)

Inputs are seeded; expected outputs come from onnxruntime, or from ONNX's reference where a name ends in _spec. The folder
layout is that of the ONNX backend tests, so the program `conformance` runs them. Models are small cousins of real
architectures, of several operator sets, and a few with what the backend tests lack: variable dims, computed shapes, external
data, typed data fields. They are described in tools/fixtures, by kind.
"""
import sys

from fixtures import data_sizes, dtypes, fused, images, networks, operators, quantised, sizes, structure
from fixtures.folder import write

KINDS = [networks, structure, operators, dtypes, quantised, fused, images, sizes, data_sizes]


def main():
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        sys.exit(__doc__)
    for kind in KINDS:
        for fixture in kind.FIXTURES:
            if len(sys.argv) == 2 or fixture.__name__ in sys.argv[2:]:
                write(sys.argv[1], fixture)


if __name__ == "__main__":
    main()
