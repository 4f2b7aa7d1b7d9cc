#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares sizes that are variables with the same sizes as numbers: ashlar against itself.

usage: vary.py [--ashlar PROGRAM] [--threads N[,N]] [--rounds N] [--bounds N[,N]] [--above RATIO] [--sizes N,...] CASE ...

A CASE is a name of those below (a part of it is enough, `all` takes all of them), or a model:

FOLDER:NAME=SIZE,...    the dims NAME of its inputs (several with '+': height+width) take the sizes
FOLDER:2,3=SIZE,...     these axes of its first input, which may be numbers, become variables
FOLDER:@K               all its named dims are as in test_data_set_K

For each size and each bound (that many times the size) a line: the time with numbers, and the ratio of the time with
variables to it, of the medians over the rounds of medians; the sides take turns, a fresh process each. --above prints larger
ratios alone. Needs onnx and numpy.
"""
import argparse
import os
import statistics
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

F32 = TensorProto.FLOAT
RANDOM = np.random.default_rng(1)


def weight(name, *shape):
    return numpy_helper.from_array((RANDOM.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32), name)


def model(nodes, inputs, weights):
    """`inputs`: name to dims; the result is called y."""
    graph = helper.make_graph(nodes, "case", [helper.make_tensor_value_info(k, F32, d) for k, d in inputs.items()],
                              [helper.make_tensor_value_info("y", F32, None)], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def conv(c, o, k, stride=1, groups=1, dims=("h", "w"), **attributes):
    """A convolution, a bias and a relu; padded so that sizes stay, unless attributes say otherwise."""
    if not any(a in attributes for a in ("pads", "auto_pad")):
        attributes["pads"] = [k // 2] * 4
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["z"], kernel_shape=[k, k], strides=[stride] * 2, group=groups,
                              **attributes), helper.make_node("Relu", ["z"], ["y"])]
    return model(nodes, {"x": [1, c, *dims]}, [weight("w", o, c // groups, k, k), weight("b", o)])


def padded(c, o, k, to):
    """An image filled up behind to a multiple of `to`, and then a convolution without padding, as detectors do."""
    number = lambda name, *v: numpy_helper.from_array(np.array(v, np.int64), name)
    nodes = [helper.make_node("Shape", ["x"], ["s"]), helper.make_node("Slice", ["s", "two", "four"], ["hw"]),
             helper.make_node("Neg", ["hw"], ["less"]), helper.make_node("Mod", ["less", "to"], ["more"]),
             helper.make_node("Concat", ["none", "more"], ["pads"], axis=0), helper.make_node("Pad", ["x", "pads"], ["p"]),
             helper.make_node("Conv", ["p", "w"], ["y"], kernel_shape=[k, k])]
    return model(nodes, {"x": [1, c, "h", "w"]}, [weight("w", o, c, k, k), number("two", 2), number("four", 4),
                                                  number("to", to), number("none", 0, 0, 0, 0, 0, 0)])


def pool(kind, k, stride, **attributes):
    node = helper.make_node(kind, ["x"], ["y"], kernel_shape=[k, k], strides=[stride] * 2, **attributes)
    return model([node], {"x": [1, 64, "h", "w"]}, [])


def attention(heads, size):
    """Scores, softmax, values: keys and values as they lie in a cache."""
    nodes = [helper.make_node("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]), helper.make_node("MatMul", ["q", "kt"], ["s"]),
             helper.make_node("Mul", ["s", "scale"], ["t"]), helper.make_node("Softmax", ["t"], ["p"], axis=-1),
             helper.make_node("MatMul", ["p", "v"], ["y"])]
    scale = numpy_helper.from_array(np.float32(size ** -0.5), "scale")
    return model(nodes, {"q": [1, heads, "q", size], "k": [1, heads, "keys", size], "v": [1, heads, "keys", size]}, [scale])


IMAGES = (7, 13, 14, 28, 31, 56)
SPACE = ("h", "w")
CASES = {  # name: model, variables, sizes
    "conv3x3_64": (lambda: conv(64, 64, 3), SPACE, IMAGES),
    "conv3x3_128": (lambda: conv(128, 128, 3), SPACE, IMAGES),
    "conv3x3_256": (lambda: conv(256, 256, 3), SPACE, IMAGES[:5]),
    "conv3x3_512": (lambda: conv(512, 512, 3), SPACE, IMAGES[:4]),
    "conv3x3_s2_128": (lambda: conv(128, 128, 3, 2), SPACE, IMAGES),
    "conv1x1_256": (lambda: conv(256, 256, 1), SPACE, IMAGES),
    "conv5x5_64": (lambda: conv(64, 64, 5), SPACE, IMAGES),
    "depthwise_128": (lambda: conv(128, 128, 3, groups=128), SPACE, IMAGES),
    "same_128": (lambda: conv(128, 128, 3, auto_pad="SAME_UPPER"), SPACE, IMAGES),
    "same_s2_64": (lambda: conv(64, 64, 3, 2, auto_pad="SAME_UPPER"), SPACE, IMAGES),
    "same_s2_lower_64": (lambda: conv(64, 64, 5, 2, auto_pad="SAME_LOWER"), SPACE, IMAGES),
    "same_s2_depthwise": (lambda: conv(128, 128, 3, 2, 128, auto_pad="SAME_UPPER"), SPACE, IMAGES),
    "pad_to_8": (lambda: padded(64, 64, 3, 8), SPACE, IMAGES),
    "pad_to_32": (lambda: padded(64, 64, 3, 32), SPACE, IMAGES),
    "pool_same_s2": (lambda: pool("MaxPool", 3, 2, auto_pad="SAME_UPPER"), SPACE, IMAGES),
    "pool_s2": (lambda: pool("MaxPool", 3, 2, pads=[1, 1, 1, 1]), SPACE, IMAGES),
    "attention_q16": (lambda: attention(12, 64), {"q": (16, 64), "keys": (1024, 1024)}, (16,)),
    "attention_q37": (lambda: attention(12, 64), {"q": (37, 64), "keys": (300, 1024)}, (37,)),
}


class Case:
    """A model in a file, what varies, and the sizes at which it is looked at."""

    def __init__(self, name, text, variables, sizes, folder):
        self.name, self.variables, self.sizes, self.folder, self.given = name, variables, sizes, folder, None
        self.path = os.path.join(folder, name + ".onnx")
        onnx.save(text, self.path)
        self.inputs = {i.name: i.type.tensor_type for i in text.graph.input
                       if i.name not in {w.name for w in text.graph.initializer}}

    def values(self, size, times):
        """Each variable's value and its bound."""
        if isinstance(self.variables, dict):
            return {v: (n, max(n, b) * max(times, 1)) for v, (n, b) in self.variables.items()}
        return {v: (size, size * times) for v in self.variables}

    def files(self, size):
        """An input file for each input, at a size; dims that do not vary and have no number are 1."""
        if self.given:
            return self.given
        out = []
        for name, kind in self.inputs.items():
            values = {v: n for v, (n, _) in self.values(size, 1).items()}
            dims = [d.dim_value if d.HasField("dim_value") else values.get(d.dim_param, 1) for d in kind.shape.dim]
            path = os.path.join(self.folder, f"{self.name}_{name.replace('/', '_')}_{size}.npy")
            if kind.elem_type == F32:
                np.save(path, RANDOM.standard_normal(dims).astype(np.float32))
            else:
                np.save(path, np.zeros(dims, helper.tensor_dtype_to_np_dtype(kind.elem_type)))
            out.append(f"{name}={path}")
        return out

    @staticmethod
    def of_set(label, folder, k, temporary):
        """A model with the inputs of one of its test sets."""
        case = Case(label, onnx.load(os.path.join(folder, "model.onnx")), {}, [k], temporary)
        case.given = []
        for i, (name, kind) in enumerate(case.inputs.items()):
            path = os.path.join(folder, f"test_data_set_{k}", f"input_{i}.pb")
            tensor = onnx.TensorProto()
            with open(path, "rb") as f:
                tensor.ParseFromString(f.read())
            case.given.append(f"{name}={path}")
            for dim, size in zip(kind.shape.dim, tensor.dims):
                if dim.dim_param.isidentifier():
                    case.variables[dim.dim_param] = (size, max(size, 1))
        return case

    def command(self, program, threads, repeat, size, times, extra=()):
        command = [program, "bench", self.path, "--csv", "--threads", str(threads), "--repeat", str(repeat), *extra]
        for file in self.files(size):
            command += ["--input", file]
        for v, (n, bound) in self.values(size, times).items() if times else ():
            command += ["--var", f"{v}={min(n, 1)}..{bound}"]
        return command


def named(path, axes):
    """A model whose first input's axes become variables; shapes that follow from the old ones are dropped."""
    text = onnx.load(path)
    given = {w.name for w in text.graph.initializer}
    dims = next(i for i in text.graph.input if i.name not in given).type.tensor_type.shape.dim
    for axis in axes:
        dims[axis].ClearField("dim_value")
        dims[axis].dim_param = f"d{axis}"
    del text.graph.value_info[:]
    for out in text.graph.output:
        out.type.tensor_type.ClearField("shape")
    return text


def find_cases(names, folder):
    for name in names:
        if ":" not in name:
            for key in CASES:
                if name in key or name == "all":
                    make, variables, sizes = CASES[key]
                    yield Case(key, make(), variables, sizes, folder)
            continue
        path, what = name.split(":")
        if what.startswith("@"):
            yield Case.of_set(os.path.basename(os.path.normpath(path)), path, int(what[1:]), folder)
            continue
        variables, sizes = what.split("=")
        sizes = [int(s) for s in sizes.split(",")]
        at = os.path.join(path, "model.onnx")
        label = os.path.basename(os.path.normpath(path))
        if variables.replace(",", "").isdigit():
            axes = [int(a) for a in variables.split(",")]
            yield Case(label, named(at, axes), [f"d{a}" for a in axes], sizes, folder)
        else:
            yield Case(label, onnx.load(at), variables.split("+"), sizes, folder)


def time_of(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else str(done.returncode))
    return int(done.stdout.strip().splitlines()[-1].split(",")[2])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="+")
    parser.add_argument("--ashlar", default=os.path.join(os.path.dirname(__file__), "..", "build", "ashlar"))
    parser.add_argument("--threads", default="1")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bounds", default="1,2,4")
    parser.add_argument("--above", type=float, default=0)
    parser.add_argument("--sizes", default="")
    parser.add_argument("--prepare", action="store_true", help="only fill the cache of kernels")
    parser.add_argument("--list", action="store_true", help="print the commands of the cases")
    args = parser.parse_args()
    bounds = [int(b) for b in args.bounds.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        if not os.environ.get("ASHLAR_CACHE_DIR"):
            os.environ["ASHLAR_CACHE_DIR"] = os.path.join(folder, "kernels")
        for case in find_cases(args.cases, folder):
            for size in [int(s) for s in args.sizes.split(",")] if args.sizes else case.sizes:
                for threads in [int(t) for t in args.threads.split(",")]:
                    measure(args, case, size, threads, bounds)


def measure(args, case, size, threads, bounds):
    ways = [0, *bounds]
    try:
        for times in ways:  # fills the kernel cache
            time_of(case.command(args.ashlar, threads, 1, size, times))
        if args.prepare:
            return
        once = time_of(case.command(args.ashlar, threads, 3, size, 0))
        repeat = max(5, min(300, int(3e7 / once)))
        times = {w: [] for w in ways}
        for _ in range(args.rounds):
            for w in ways:
                times[w].append(time_of(case.command(args.ashlar, threads, repeat, size, w)))
    except RuntimeError as error:
        print(f"{case.name:20} {size:4} {threads}: {error}", flush=True)
        return
    middle = {w: statistics.median(t) for w, t in times.items()}
    ratios = [middle[w] / middle[0] for w in bounds]
    if max(ratios) >= args.above:
        print(f"{case.name:20} {size:4} {threads} thread(s) {middle[0] * 1e-3:10.1f} us  " +
              "  ".join(f"x{w} {r:5.2f}" for w, r in zip(bounds, ratios)), flush=True)


if __name__ == "__main__":
    sys.exit(main())
