#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks the models that ashlar writes with other readers: onnx's checker, with its inference of shapes, and onnxruntime,
whose results must be those of the model that was read.

    build/tests/conformance -w WRITTEN FOLDER...
    tools/written.py WRITTEN FOLDER...

FOLDER is a test (model.onnx, test_data_set_*), or holds some, as for `conformance`. Prints a row for each: its nodes, those of
bodies in brackets, and the largest difference from the original's results, as a part of the largest number, or what is wrong. What
ashlar refused to write has no file; the model is then named as missing, and why is what `conformance` said. The exit status is 1 when
a file is wrong.
"""
import glob
import os
import sys

import numpy as np
import onnx
import onnxruntime as ort
from onnx import numpy_helper

TOLERANCE = 1e-4
ort.set_default_logger_severity(4)


def tests(folder):
    """The folders at any depth that have a model."""
    for path, folders, files in sorted(os.walk(folder)):
        folders.sort()
        if "model.onnx" in files:
            yield path


def count(graph):
    """Nodes of a graph, and of all bodies in it."""
    inner = 0
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                inner += sum(count(attribute.g))
    return len(graph.node), inner


def session(path):
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL  # what the file says, no more
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def feeds(folder, names):
    """The tensors of a set, by the names in the files, or by their places."""
    out = {}
    for place, path in enumerate(sorted(glob.glob(f"{folder}/input_*.pb"), key=lambda p: int(p[:-3].rsplit("_", 1)[1]))):
        tensor = onnx.TensorProto.FromString(open(path, "rb").read())
        name = tensor.name if tensor.name in names else names[place] if place < len(names) else None
        if name:
            out[name] = numpy_helper.to_array(tensor)
    return out


def difference(have, want):
    """Of all results, the largest; infinite where shapes, types, or what is no finite number differ."""
    most = 0.0
    for a, b in zip(have, want):
        if isinstance(a, list) or isinstance(b, list):  # a sequence of tensors
            return np.inf
        a, b = np.asarray(a), np.asarray(b)
        if a.shape != b.shape or a.dtype != b.dtype:
            return np.inf
        if a.dtype.kind not in "fc":
            most = max(most, float(np.any(a != b)))
            continue
        finite = np.isfinite(b)
        if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
            return np.inf
        if finite.any():
            scale = max(float(np.max(np.abs(b[finite]))), 1e-6)
            most = max(most, float(np.max(np.abs(a[finite].astype(np.float64) - b[finite]))) / scale)
    return most


def fits(model, given):
    """Whether the file is for these sizes: one that was read with given sizes (conformance -g) has numbers for dims."""
    return all(not isinstance(a, int) or a == b for v in model.get_inputs() for a, b in zip(v.shape, given[v.name].shape))


def check(written, folder):
    """What to print, and whether it is right."""
    if not os.path.exists(written):
        return "missing", True
    try:
        onnx.checker.check_model(written, full_check=True)
        model = onnx.load(written)
        mine = session(written)
    except Exception as error:  # whatever the readers say
        return f"wrong: {str(error).strip().splitlines()[0][:300]}", False
    try:
        theirs = session(f"{folder}/model.onnx")
    except Exception as error:
        theirs = None
        note = f" (against the test's data: {str(error).strip().splitlines()[0][:80]})"
    outer, inner = count(model.graph)
    most, sets = 0.0, 0
    for data in sorted(glob.glob(f"{folder}/test_data_set_*")):
        try:
            given = feeds(data, [v.name for v in (theirs or mine).get_inputs()])
            if theirs:
                want, note = theirs.run(None, given), ""
            else:
                paths = glob.glob(f"{data}/output_*.pb")
                want = [numpy_helper.to_array(onnx.TensorProto.FromString(open(p, "rb").read())) for p in sorted(paths)]
            if not fits(mine, given):
                continue
            have = mine.run(None, {v.name: given[v.name] for v in mine.get_inputs()})
        except Exception as error:
            return f"wrong: {str(error).strip().splitlines()[0][:300]}", False
        most, sets = max(most, difference(have, want)), sets + 1
    return f"{outer} ({inner}) nodes, {sets} sets, off by {most:.1e}{note if sets else ''}", most <= TOLERANCE


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    right = True
    for folder in [path for argument in sys.argv[2:] for path in tests(argument)]:
        name = os.path.basename(os.path.normpath(folder))
        said, good = check(f"{sys.argv[1]}/{name}.onnx", folder)
        print(f"{'    ' if good else 'BAD '}{name:32} {said}", flush=True)
        right &= good
    sys.exit(not right)


if __name__ == "__main__":
    main()
