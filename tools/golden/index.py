# SPDX-License-Identifier: MIT
"""Cases of eval_index.txt: gathers and scatters, and what is chosen by data."""
import itertools
from fractions import Fraction

import numpy as np

from .elements import ALL, FLOATS, NAN, arr, pick, rng, vec, whole

SCATTERS = {"set": 0, "add": 1, "mul": 2, "min": 3, "max": 4}


def index(dtype, lo, hi, *shape):
    return arr(dtype, rng.integers(lo, hi, int(np.prod(shape))).tolist(), shape)


def settle(i, n):
    """Counted from the end, then clamped."""
    return min(max(i + n if i < 0 else i, 0), n - 1)


def gathers(g):
    for dtype, ints in zip(ALL, itertools.cycle(("i64", "i32"))):
        x, at = whole(dtype, 3, 4, 2), index(ints, -6, 7, 2, 3)
        clean = vec(lambda i: settle(i, 4), at).astype(np.int64)
        g.case(f"gather {dtype}", "gather", {"axis": 1}, [(dtype, x), (ints, at)], [(dtype, np.take(x, clean, axis=1))])
    for shape, axis, ind in (((5,), 0, ()), ((3, 4), 1, (2,)), ((3, 4), 0, (0,)), ((0, 4), 1, (2,)), ((2, 3, 2), 2, (2, 1, 2))):
        x, at = whole("i32", *shape), index("i64", -shape[axis], shape[axis], *ind)
        g.case(f"gather {shape} {axis} {ind}", "gather", {"axis": axis}, [("i32", x), ("i64", at)],
               [("i32", np.take(x, at.astype(np.int64), axis=axis))])
    extremes = arr("i64", [2**63 - 1, -(2**63), -4, -3, 3])
    g.case("gather extremes", "gather", {"axis": 0}, [("u8", arr("u8", [7, 8, 9])), ("i64", extremes)],
           [("u8", [9, 7, 7, 7, 9])])
    for shape, ind, axis in (((3, 4), (3, 4), 0), ((3, 4), (2, 3), 1), ((3, 4), (5, 2), 0), ((2, 3, 4), (2, 3, 6), 2),
                             ((4,), (0,), 0)):
        x, at = whole("f64", *shape), index("i64", -shape[axis] - 1, shape[axis] + 1, *ind)
        y = np.empty(ind, dtype=object)
        for p in np.ndindex(*ind):
            y[p] = x[p[:axis] + (settle(at[p], shape[axis]),) + p[axis + 1:]]
        g.case(f"gather_elements {shape} {ind} {axis}", "gather_elements", {"axis": axis}, [("f64", x), ("i64", at)],
               [("f64", y)])
    for shape, ind, batch in (((3, 4), (5, 2), 0), ((3, 4), (2, 1), 0), ((2, 3, 4), (2, 3, 1), 1), ((2, 3, 4), (2, 2), 1),
                              ((2, 3, 4), (2, 3, 2, 1), 2), ((3, 4), (0, 2), 0)):
        x, at = whole("i16", *shape), index("i32", -3, 4, *ind)
        lead = ind[:-1]
        y = np.empty(lead + shape[batch + ind[-1]:], dtype=object)
        for p in np.ndindex(*lead):
            y[p] = x[p[:batch] + tuple(settle(i, n) for i, n in zip(at[p], shape[batch:]))]
        g.case(f"gather_nd {shape} {ind} {batch}", "gather_nd", {"batch": batch}, [("i16", x), ("i32", at)], [("i16", y)])


def combine(mode, dtype):
    pick_max = (lambda a, b: pick(max, a, b)) if dtype in FLOATS else max
    pick_min = (lambda a, b: pick(min, a, b)) if dtype in FLOATS else min
    return {"set": lambda a, b: b, "add": lambda a, b: a + b, "mul": lambda a, b: a * b, "min": pick_min,
            "max": pick_max}[mode]


def scatters(g):
    for dtype, mode in itertools.product(("f32", "bf16", "i8", "u64", "i64", "bool"), SCATTERS):
        if dtype == "bool" and mode != "set":
            continue
        f = combine(mode, dtype)
        for shape, ind, axis in (((3, 4), (3, 4), 0), ((3, 4), (2, 6), 1), ((5,), (0,), 0)):
            x, at, updates = whole(dtype, *shape), index("i64", -5, 6, *ind), whole(dtype, *ind)
            if dtype == "u64" and updates.size:
                updates.flat[0] = 2**64 - 1
            y = x.copy()
            for p in np.ndindex(*ind):
                to = p[:axis] + (settle(at[p], shape[axis]),) + p[axis + 1:]
                y[to] = f(y[to], updates[p])
            g.case(f"scatter_elements {dtype} {mode} {shape} {ind}", "scatter_elements",
                   {"axis": axis, "mode": SCATTERS[mode]}, [(dtype, x), ("i64", at), (dtype, updates)], [(dtype, y)])
        for shape, ind in (((3, 4), (7, 2)), ((3, 4), (2, 3, 1)), ((3, 2), (0, 1))):
            x, at, updates = whole(dtype, *shape), index("i32", -5, 6, *ind), whole(dtype, *ind[:-1], *shape[ind[-1]:])
            y = x.copy()
            for p in np.ndindex(*ind[:-1]):
                to = tuple(i + n if i < 0 else i for i, n in zip(at[p], shape))
                if any(i < 0 or i >= n for i, n in zip(to, shape)):
                    continue
                for rest in np.ndindex(*shape[len(to):]):
                    y[to + rest] = f(y[to + rest], updates[p + rest])
            g.case(f"scatter_nd {dtype} {mode} {shape} {ind}", "scatter_nd", {"mode": SCATTERS[mode]},
                   [(dtype, x), ("i32", at), (dtype, updates)], [(dtype, y)])
    nan = arr("f32", [NAN, 1, -0.0])
    for mode in ("min", "max"):
        updates = arr("f32", [1, NAN, 0.0])
        g.case(f"scatter_nd edges {mode}", "scatter_nd", {"mode": SCATTERS[mode]},
               [("f32", nan), ("i64", arr("i64", [0, 1, 2], (3, 1))), ("f32", updates)],
               [("f32", vec(combine(mode, "f32"), nan, updates))])


def overlap(a, b):
    """The intersection's share of the union, as a fraction; 0 for boxes that have no area."""
    area = [(Fraction(c[2]) - Fraction(c[0])) * (Fraction(c[3]) - Fraction(c[1])) for c in (a, b)]
    sides = [min(Fraction(a[i + 2]), Fraction(b[i + 2])) - max(Fraction(a[i]), Fraction(b[i])) for i in (0, 1)]
    common = max(sides[0], 0) * max(sides[1], 0)
    return common / (sum(area) - common) if common > 0 and min(area) > 0 else Fraction(0)


def nms(boxes, scores, most, least, k):
    chosen, counts = np.zeros(scores.shape[:2] + (k,), int), np.zeros(scores.shape[:2], int)
    for b, c in np.ndindex(*scores.shape[:2]):
        kept = []
        for i in sorted(range(scores.shape[2]), key=lambda i: -scores[b, c, i]):
            if scores[b, c, i] > least and len(kept) < k and all(overlap(boxes[b, i], boxes[b, j]) <= most for j in kept):
                kept.append(i)
        chosen[b, c, :len(kept)], counts[b, c] = kept, len(kept)
    return chosen, counts


def choices(g):
    own = np.random.default_rng(5)  # so that the numbers of the other cases stay what they are
    for shape in ((), (1,), (7,), (3, 4), (2, 3, 5), (2, 0, 3)):
        for share in (0, 0.4, 1):
            x = own.random(shape) < share
            found = np.flatnonzero(x)
            padded = np.zeros(x.size, int)
            padded[:found.size] = found
            g.case(f"nonzero {shape} {share}", "nonzero", {}, [("bool", x)], [("i64", padded), ("i64", arr("i64", found.size, ()))])
    for dtype in ("f32", "f64", "f16"):
        for b, c, n, k in ((1, 1, 1, 1), (2, 3, 12, 5), (1, 2, 30, 30), (1, 1, 5, 0)):
            low, size = own.integers(0, 12, (b, n, 2)), own.integers(0, 9, (b, n, 2))
            boxes, scores = np.concatenate([low, low + size], 2), own.integers(-8, 9, (b, c, n)) / 8
            chosen, counts = nms(boxes, scores, Fraction(1, 4), -0.5, k)
            g.case(f"nms {dtype} {n} {k}", "nms", {"k": k}, [(dtype, boxes), (dtype, scores), (dtype, arr(dtype, 0.25, ())),
                   (dtype, arr(dtype, -0.5, ()))], [("i64", chosen), ("i64", counts)])


PARTS = (gathers, scatters, choices)
