# SPDX-License-Identifier: MIT
"""Cases of eval_reduce.txt: reductions, pools, running sums, and orders."""
import itertools
import math

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from .elements import ALL, FLOATS, INF, INTS, NAN, arr, limits, pick, whole


def fold(f, start):
    def call(items):
        result = start
        for v in items:
            result = f(result, v)
        return result
    return call


def reducer(op, dtype):
    """The reduction of a list, in exact arithmetic for integers."""
    is_float = dtype in FLOATS
    lo, hi = (-INF, INF) if is_float else limits(dtype)
    return {
        "reduce_sum": (lambda v: math.fsum(v)) if is_float else sum, "reduce_prod": math.prod,
        "reduce_max": fold((lambda a, b: pick(max, a, b)) if is_float else max, lo),
        "reduce_min": fold((lambda a, b: pick(min, a, b)) if is_float else min, hi),
    }[op]


def reduce_over(f, x, axes):
    kept = [d for d in range(x.ndim) if d not in axes]
    rows = x.transpose(kept + list(axes)).reshape([x.shape[d] for d in kept] + [-1 if x.size else
                                                  int(np.prod([x.shape[d] for d in axes]))])
    out = np.empty(rows.shape[:-1], dtype=object)
    for at in np.ndindex(*out.shape):
        out[at] = f(rows[at].tolist())
    return out


REDUCE = ("reduce_sum", "reduce_prod", "reduce_max", "reduce_min")


def reductions(g):
    for dtype in ALL:
        x = whole(dtype, 3, 4)
        for op in REDUCE if dtype != "bool" else REDUCE[2:]:
            f = reducer(op, dtype)
            for axes in ([0], [1], [0, 1]):
                g.case(f"{op} {dtype} {axes}", op, {"axes": axes}, [(dtype, x)], [(dtype, reduce_over(f, x, axes))])
            empty = whole(dtype, 0, 2)
            g.case(f"{op} {dtype} empty", op, {"axes": [0]}, [(dtype, empty)], [(dtype, [f([]), f([])])])
            g.case(f"{op} {dtype} to nothing", op, {"axes": [1]}, [(dtype, empty)], [(dtype, arr(dtype, []))])
            if dtype in INTS:
                lo, hi = limits(dtype)
                ends = arr(dtype, [lo, hi, hi, 3, lo + 1, hi - 1, 5, hi])
                g.case(f"{op} {dtype} wraps", op, {"axes": [0]}, [(dtype, ends)], [(dtype, arr(dtype, f(ends.tolist()), ()))])
    for shape, axes in (((), []), ((2, 3), []), ((2, 3, 4, 5), [1, 3]), ((2, 3, 4, 5), [0, 2]),
                        ((1, 2, 1, 3, 1, 2, 1, 2, 1, 2), [0, 3, 5, 8, 9])):
        x = whole("f32", *shape)
        for op in REDUCE:
            g.case(f"{op} {shape} {axes}", op, {"axes": axes}, [("f32", x)],
                   [("f32", reduce_over(reducer(op, "f32"), x, axes))])
    edges = arr("f32", [1, NAN, INF, 0, -0.0, 0, -INF, INF, 2, -0.0, 0, -0.0, 5, NAN, NAN], (5, 3))
    for op in ("reduce_max", "reduce_min"):
        g.case(f"{op} edges", op, {"axes": [1]}, [("f32", edges)], [("f32", reduce_over(reducer(op, "f32"), edges, [1]))])
    g.case("reduce_sum edges", "reduce_sum", {"axes": [1]}, [("f32", edges[[0, 3, 4]])], [("f32", [NAN, 0.0, NAN])])
    long = arr("f16", [1.0] * 4096)  # would stop at 2048 if it accumulated in f16
    g.case("reduce_sum f16 long", "reduce_sum", {"axes": [0]}, [("f16", long)], [("f16", arr("f16", 4096, ()))])


def sums(g):
    own = np.random.default_rng(17)
    for shape, axes, count in (((3, 4), [0], 2), ((2, 3, 4), [0, 2], 3), ((2, 0), [1], 2)):
        xs = [own.integers(-4, 5, shape) for _ in range(count)]
        g.case(f"reduce_sums {shape} {axes}", "reduce_sums", {"axes": axes, "sums": count}, [("f32", x) for x in xs],
               [("f32", x.sum(axis=tuple(axes))) for x in xs])


def windows(x, axes, kernel, strides, dilations, before, after, fill):
    """[..., kernel...]: the windows of x, by numpy's sliding windows over a padded copy."""
    shape, inside = list(x.shape), [slice(None)] * x.ndim
    for axis, b, a in zip(axes, before, after):
        shape[axis] += b + a
        inside[axis] = slice(b, b + x.shape[axis])
    padded = np.full(shape, fill, dtype=object)
    padded[tuple(inside)] = x
    seen = sliding_window_view(padded, [d * (k - 1) + 1 for k, d in zip(kernel, dilations)], axis=tuple(axes))
    cut = [slice(None)] * x.ndim + [slice(None, None, d) for d in dilations]
    for axis, s in zip(axes, strides):
        cut[axis] = slice(None, None, s)
    return seen[tuple(cut)]


POOLS = [  # shape, axes, kernel, strides, dilations, before, after
    ((2, 3, 7), [2], [3], [2], [1], [1], [1]),
    ((1, 2, 6, 7), [2, 3], [2, 3], [1, 2], [1, 2], [0, 2], [1, 3]),
    ((1, 5, 6, 2), [1, 2], [3, 3], [2, 2], [1, 1], [1, 1], [1, 1]),
    ((1, 1, 3, 4, 5), [2, 3, 4], [2, 2, 2], [1, 2, 3], [1, 1, 1], [0, 0, 1], [0, 0, 1]),
    ((4,), [0], [2], [3], [1], [5], [6]),  # some windows lie in the padding alone
]


def pools(g):
    for dtype in (*FLOATS, "i8", "i64", "u8", "u64"):
        for shape, *spec in POOLS:
            x = whole(dtype, *shape)
            if dtype in INTS:
                x.flat[0] = limits(dtype)[0]
            axes, kernel, strides, dilations, before, after = spec
            attrs = dict(zip(("axes", "kernel", "strides", "dilations", "before", "after"), spec))
            for op, reduce_op, fill in (("pool_max", "reduce_max", -INF if dtype in FLOATS else limits(dtype)[0]),
                                        ("pool_sum", "reduce_sum", 0)):
                seen = windows(x, *spec, fill)
                y = reduce_over(reducer(reduce_op, dtype), seen, list(range(x.ndim, seen.ndim)))
                g.case(f"{op} {dtype} {shape} {kernel}", op, attrs, [(dtype, x)], [(dtype, y)])
    spec = {"axes": [0], "kernel": [2], "strides": [1], "dilations": [1], "before": [0], "after": [0]}
    x = arr("f32", [-0.0, 0.0, NAN, 1, -INF, -INF])
    g.case("pool_max edges", "pool_max", spec, [("f32", x)], [("f32", [0.0, NAN, NAN, 1, -INF])])


def scans(g):
    for dtype in [*FLOATS, *INTS]:
        x = whole(dtype, 2, 4, 3)
        for axis, exclusive, reverse in itertools.product(range(3), (0, 1), (0, 1)):
            if dtype not in ("f32", "u8") and axis != 1:
                continue
            v = np.flip(x, axis) if reverse else x
            y = np.cumsum(v, axis)
            if exclusive:
                y = y - v
            y = np.flip(y, axis) if reverse else y
            g.case(f"cumsum {dtype} {axis}{exclusive}{reverse}", "cumsum",
                   {"axis": axis, "exclusive": exclusive, "reverse": reverse}, [(dtype, x)], [(dtype, y)])
    ends = arr("u8", [200, 100, 255, 1])
    g.case("cumsum wraps", "cumsum", {"axis": 0, "exclusive": 0, "reverse": 0}, [("u8", ends)],
           [("u8", np.cumsum(ends))])
    g.case("cumsum empty", "cumsum", {"axis": 1, "exclusive": 0, "reverse": 1}, [("f32", whole("f32", 2, 0))],
           [("f32", np.zeros((2, 0)))])


def descending(v):
    return (0, 0) if isinstance(v, float) and math.isnan(v) else (1, -v)


def ascending(v):
    return (1, 0) if isinstance(v, float) and math.isnan(v) else (0, v)


def topk(x, axis, k, largest):
    moved = np.moveaxis(x, axis, -1)
    values = np.empty(moved.shape[:-1] + (k,), dtype=object)
    indices = np.empty(moved.shape[:-1] + (k,), dtype=object)
    for at in np.ndindex(*moved.shape[:-1]):
        row = moved[at].tolist()
        order = sorted(range(len(row)), key=lambda i: (descending if largest else ascending)(row[i]))[:k]
        values[at], indices[at] = [row[i] for i in order], order
    return np.moveaxis(values, -1, axis), np.moveaxis(indices, -1, axis)


def orders(g):
    edges = arr("f32", [1, NAN, 3, NAN, -0.0, 0.0, -INF, INF, INF, 2, 2, -INF], (3, 4))
    for dtype in ALL[:-1]:
        x = arr("f32", edges.ravel(), (3, 4)) if dtype in FLOATS else arr(dtype, [*limits(dtype), 5, limits(dtype)[1]] * 2 +
                                                                          [limits(dtype)[0], 9, 9, 7], (3, 4))
        for axis, last in itertools.product((0, 1), (0, 1)):
            for op, f in (("argmax", np.argmax), ("argmin", np.argmin)):
                typed = x.astype(np.float64 if dtype in FLOATS else np.uint64 if dtype == "u64" else np.int64)
                y = typed.shape[axis] - 1 - f(np.flip(typed, axis), axis) if last else f(typed, axis)
                g.case(f"{op} {dtype} {axis}{last}", op, {"axis": axis, "last": last}, [(dtype, x)], [("i64", y)])
            for k in (0, 1, x.shape[axis]):
                values, indices = topk(x, axis, k, last)
                g.case(f"topk {dtype} {axis}{last} {k}", "topk", {"axis": axis, "k": k, "largest": last}, [(dtype, x)],
                       [(dtype, values), ("i64", indices)])
    x = whole("f32", 2, 33, 3)
    for largest in (0, 1):
        values, indices = topk(x, 1, 20, largest)
        g.case(f"topk many {largest}", "topk", {"axis": 1, "k": 20, "largest": largest}, [("f32", x)],
               [("f32", values), ("i64", indices)])


PARTS = (reductions, pools, scans, orders, sums)
