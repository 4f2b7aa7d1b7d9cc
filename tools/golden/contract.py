# SPDX-License-Identifier: MIT
"""Cases of eval_contract.txt: products and convolutions, in blocks, of few bits, by other algorithms; attention."""
import itertools

import numpy as np

from .elements import FLOATS, INF, INTS, NAN, arr, limits, whole
from .reduce import windows


def blocked(x, axis, block):
    """Splits an axis into [ceil(n/block)] where it is and [block] at the end, zeros past its end."""
    n = x.shape[axis]
    width = [(0, 0)] * x.ndim
    width[axis] = (0, -n % block)
    x = np.pad(x, width, constant_values=0)
    x = x.reshape(x.shape[:axis] + (x.shape[axis] // block, block) + x.shape[axis + 1:])
    return np.moveaxis(x, axis + 1, -1)


def products(g):
    for dtype in [*FLOATS, *INTS]:
        a, b = whole(dtype, 2, 3, 5), whole(dtype, 2, 5, 4)
        g.case(f"matmul {dtype}", "matmul", {"n": 0, "b_block": 0}, [(dtype, a), (dtype, b)], [(dtype, a @ b)])
        lo, hi = (0, 0) if dtype in FLOATS else limits(dtype)
        if dtype in INTS:
            a, b = arr(dtype, [lo, hi, hi, 3], (2, 2)), arr(dtype, [hi, hi, lo, 7], (2, 2))
            g.case(f"matmul {dtype} wraps", "matmul", {"n": 0, "b_block": 0}, [(dtype, a), (dtype, b)], [(dtype, a @ b)])
    for lead, m, k, n in (((), 1, 1, 1), ((), 4, 7, 5), ((2, 3), 3, 4, 6), ((), 2, 0, 3), ((), 0, 2, 3), ((0,), 2, 2, 2),
                          ((1,) * 8, 2, 3, 2)):
        a, b = whole("f32", *lead, m, k), whole("f32", *lead, k, n)
        y = np.zeros(lead + (m, n), dtype=object) if 0 in (*lead, m, k, n) else np.matmul(a, b)
        g.case(f"matmul {lead} {m} {k} {n}", "matmul", {"n": 0, "b_block": 0}, [("f32", a), ("f32", b)], [("f32", y)])
        if len(lead) > 7 or 0 in (*lead, m, k, n):
            continue
        for block in (1, 4, 16):
            g.case(f"matmul {lead} {m} {k} {n} block {block}", "matmul", {"n": n, "b_block": block},
                   [("f32", a), ("f32", np.moveaxis(blocked(b, len(lead) + 1, block), len(lead) + 1, len(lead)))],
                   [("f32", y)])
    a, b = arr("f32", [0, 1, INF, 1], (2, 2)), arr("f32", [INF, 1, 2, NAN], (2, 2))
    g.case("matmul edges", "matmul", {"n": 0, "b_block": 0}, [("f32", a), ("f32", b)], [("f32", [[NAN, NAN], [INF, NAN]])])


CONVS = [  # x, output channels, groups, kernel, strides, dilations, before, after
    ((1, 1, 5), 1, 1, [3], [1], [1], [0], [0]),
    ((2, 3, 9), 4, 1, [3], [2], [2], [2], [1]),
    ((2, 4, 6, 7), 6, 1, [3, 3], [1, 1], [1, 1], [1, 1], [1, 1]),
    ((1, 4, 7, 6), 4, 2, [3, 2], [2, 1], [1, 2], [0, 3], [2, 0]),
    ((1, 6, 5, 5), 6, 6, [3, 3], [2, 2], [1, 1], [1, 1], [0, 1]),  # depthwise
    ((1, 4, 5, 5), 8, 4, [2, 2], [1, 1], [1, 1], [0, 0], [0, 0]),
    ((1, 8, 4, 4), 8, 1, [1, 1], [1, 1], [1, 1], [0, 0], [0, 0]),
    ((1, 2, 3, 4, 5), 4, 1, [2, 2, 3], [1, 2, 1], [1, 1, 2], [1, 0, 0], [0, 1, 1]),
    ((1, 2, 2, 2), 2, 1, [1, 1], [3, 3], [1, 1], [4, 4], [4, 4]),  # some windows lie in the padding alone
    ((0, 2, 4), 2, 1, [3], [1], [1], [0], [0]),
]


def conv(x, w, groups, strides, dilations, before, after):
    n, c = x.shape[:2]
    o, space = w.shape[0], x.ndim - 2
    axes = list(range(2, x.ndim))
    seen = windows(x, axes, w.shape[2:], strides, dilations, before, after, 0)
    outs = seen.shape[2:2 + space]
    if n == 0:
        return np.zeros((0, o) + outs, dtype=object)
    columns = np.moveaxis(seen, 1, 1 + space)  # [n, outs..., c, kernel...]
    y = np.empty((n, o) + outs, dtype=object)
    for group in range(groups):
        part = columns.reshape((n,) + outs + (groups, -1))[..., group, :]
        kernels = w.reshape(groups, o // groups, -1)[group]
        y[:, group * (o // groups):(group + 1) * (o // groups)] = np.moveaxis(part @ kernels.T, -1, 1)
    return y


def block_weights(w, groups, x_block, w_block):
    """[groups, ceil(og/B), cg/I, kernel..., I, B], or [o/B, kernel..., B] for a depthwise convolution."""
    o, cg = w.shape[:2]
    if cg == 1 and o == groups:
        return np.moveaxis(w[:, 0].reshape((o // w_block, w_block) + w.shape[2:]), 1, -1)
    i = x_block or 1
    grouped = w.reshape((groups, o // groups) + w.shape[1:])
    outs = blocked(grouped, 1, w_block)  # [groups, ceil(og/B), cg, kernel..., B]
    split = outs.reshape(outs.shape[:2] + (cg // i, i) + outs.shape[3:])
    return np.moveaxis(split, 3, -2)


def convolutions(g):
    for dtype in ("f32", "f16", "f64", "bf16", "i8", "i64", "u64"):
        for shape, o, groups, kernel, *spec in CONVS if dtype == "f32" else CONVS[1:4]:
            x, w = whole(dtype, *shape), whole(dtype, o, shape[1] // groups, *kernel)
            if dtype == "i8":
                x.flat[0] = -128
            y = conv(x, w, groups, *spec)
            attrs = dict(zip(("strides", "dilations", "before", "after"), spec)) | {"groups": groups}
            name = f"conv {dtype} {shape} {o} {groups} {kernel}"
            g.case(name, "conv", attrs | {"o": 0, "x_block": 0, "y_block": 0, "w_block": 0}, [(dtype, x), (dtype, w)],
                   [(dtype, y)])
            if dtype not in ("f32", "i8"):
                continue
            for xb, yb, wb in itertools.product((0, 2), (0, 2), (0, 2, 4)):
                cg, og = shape[1] // groups, o // groups
                if (xb and (shape[1] % xb or (wb and cg != 1 and cg % xb))) or (yb and o % yb) or (xb + yb + wb == 0):
                    continue
                if wb and cg == 1 and (o % wb if og == 1 else xb):
                    continue
                ins = [(dtype, blocked(x, 1, xb) if xb else x), (dtype, block_weights(w, groups, xb, wb) if wb else w)]
                g.case(f"{name} blocks {xb} {yb} {wb}", "conv",
                       attrs | {"o": o if wb else 0, "x_block": xb, "y_block": yb, "w_block": wb}, ins,
                       [(dtype, blocked(y, 1, yb) if yb else y)])


def extremes(g):
    """Strides, steps and interior padding that nothing is reached by, so that their size must not matter."""
    huge = 2**63 - 1
    x = whole("i32", 3, 1, 2)
    g.case("slice huge steps", "slice", {"starts": [2, 0, 1], "steps": [huge, -huge, 1 - huge], "dims": [1, 1, 1]},
           [("i32", x)], [("i32", x[2:, :, 1:])])
    x = whole("f32", 1, 2, 1)
    g.case("pad huge interior", "pad", {"before": [0, 0, 1], "after": [0, 0, 0], "interior": [huge, 0, huge]},
           [("f32", x), ("f32", arr("f32", 9, ()))], [("f32", np.pad(x, ((0, 0), (0, 0), (1, 0)), constant_values=9))])
    x, w = whole("f32", 1, 2, 4, 4), whole("f32", 1, 2, 2, 2)
    y = conv(x, w, 1, [4, 4], [1, 1], [1, 0], [0, 0])
    window = {"strides": [huge, huge], "dilations": [1, 1], "before": [1, 0], "after": [0, 0]}
    g.case("conv huge strides", "conv", window | {"groups": 1, "o": 0, "x_block": 0, "y_block": 0, "w_block": 0},
           [("f32", x), ("f32", w)], [("f32", y[:, :, :1, :1])])
    g.case("pool huge strides", "pool_sum", window | {"axes": [2, 3], "kernel": [2, 2]}, [("f32", x)],
           [("f32", conv(x, np.ones((2, 1, 2, 2), dtype=object), 2, [4, 4], [1, 1], [1, 0], [0, 0])[:, :, :1, :1])])


def winograds(g):
    """What Winograd's algorithm computes is a convolution."""
    own = np.random.default_rng(7)
    for tile, (h, w), before, after, (xb, yb, wb), o in (
            (2, (5, 4), [1, 1], [1, 1], (1, 2, 2), 2), (2, (4, 7), [0, 2], [1, 0], (2, 2, 4), 6),
            (4, (6, 9), [1, 1], [1, 1], (2, 2, 2), 4), (4, (3, 3), [0, 0], [0, 0], (4, 3, 3), 3),
            (6, (9, 8), [1, 0], [2, 1], (2, 4, 4), 4)):
        x = arr("f32", own.integers(1, 5, 2 * 4 * h * w).tolist(), (2, 4, h, w))  # positive: nothing cancels
        kernels = arr("f32", own.integers(1, 5, o * 4 * 9).tolist(), (o, 4, 3, 3))
        y = conv(x, kernels, 1, [1, 1], [1, 1], before, after)
        g.case(f"winograd {tile} {h}x{w}", "winograd", {"before": before, "after": after, "y_block": yb, "o": o, "tile": tile},
               [("f32", blocked(x, 1, xb)), ("f32", block_weights(kernels, 1, xb, wb))], [("f32", blocked(y, 1, yb))])


def weights_gradients(g):
    """What weights have at each place is a product of the gradient and of what meets it there."""
    own = np.random.default_rng(13)
    for n, c, o, size, out, strides, dilations, before, kernel, xb, yb in (
            (2, 4, 6, (5, 4), (5, 4), [1, 1], [1, 1], [1, 1], [3, 3], 2, 2),
            (1, 3, 4, (7, 6), (4, 3), [2, 2], [1, 1], [1, 0], [3, 2], 0, 4),
            (2, 2, 2, (9,), (4,), [2], [2], [1], [3], 2, 1), (0, 2, 2, (3,), (3,), [1], [1], [0], [1], 0, 2)):
        x, dy = (own.integers(-3, 4, (n, channels) + sizes) for channels, sizes in ((c, size), (o, out)))
        ends = [max(b + s * (p - 1) + d * (k - 1) + 1, b + whole) for b, s, p, d, k, whole in
                zip(before, strides, out, dilations, kernel, size)]
        padded = np.zeros((n, c) + tuple(ends), dtype=int)
        padded[(slice(None), slice(None)) + tuple(slice(b, b + whole) for b, whole in zip(before, size))] = x
        y = np.zeros(tuple(kernel) + (c, o), dtype=int)
        for place in np.ndindex(*kernel):
            met = padded[(slice(None), slice(None)) + tuple(
                slice(k * d, k * d + s * (p - 1) + 1, s) for k, d, s, p in zip(place, dilations, strides, out))]
            y[place] = np.moveaxis(met, 1, 0).reshape(c, -1) @ np.moveaxis(dy, 1, 0).reshape(o, -1).T
        g.case(f"conv_weights {n} {size} {strides}", "conv_weights",
               {"strides": strides, "dilations": dilations, "before": before, "kernel": kernel, "x_block": xb, "y_block": yb},
               [("f32", blocked(x, 1, xb) if xb else x), ("f32", blocked(dy, 1, yb))], [("f32", y)])


def wide_sums(g):
    """Products and convolutions of half floats whose sums, in f32, are no half floats."""
    own = np.random.default_rng(19)
    numbers = lambda dtype, *shape: arr(dtype, own.integers(-100, 101, int(np.prod(shape))).tolist(), shape)
    for dtype in "f16", "bf16":
        a, b = numbers(dtype, 2, 3, 9), numbers(dtype, 2, 9, 4)
        g.case(f"matmul_wide {dtype}", "matmul_wide", {"n": 0, "b_block": 0}, [(dtype, a), (dtype, b)], [("f32", a @ b)])
        x, w = numbers(dtype, 1, 8, 5, 4), numbers(dtype, 6, 4, 3, 2)
        spec = [1, 2], [1, 1], [1, 0], [1, 1]
        y = conv(x, w, 2, *spec)
        attrs = dict(zip(("strides", "dilations", "before", "after"), spec)) | {"groups": 2}
        for xb, wb in (0, 0), (2, 4):
            g.case(f"conv_wide {dtype} blocks {xb} {wb}", "conv_wide",
                   attrs | {"o": 6 if wb else 0, "x_block": xb, "y_block": 0, "w_block": wb},
                   [(dtype, blocked(x, 1, xb) if xb else x), (dtype, block_weights(w, 2, xb, wb) if wb else w)], [("f32", y)])


def library_products(g):
    """What a library of the device does: products like any other."""
    own = np.random.default_rng(29)
    numbers = lambda dtype, *shape: arr(dtype, own.integers(-9, 10, int(np.prod(shape))).tolist(), shape)
    for dtype in "f32", "f16":
        a, b = numbers(dtype, 2, 3, 5), numbers(dtype, 2, 5, 4)
        g.case(f"matmul_library {dtype}", "matmul_library", {"n": 0, "b_block": 0, "library": 1}, [(dtype, a), (dtype, b)],
               [(dtype, a @ b)])


def paired_terms(g):
    """The same with two terms side by side in the weights."""
    own = np.random.default_rng(23)
    numbers = lambda *shape: arr("bf16", own.integers(-100, 101, int(np.prod(shape))).tolist(), shape)
    a, b, block = numbers(2, 3, 9), numbers(2, 9, 6), 4
    whole_b = np.zeros((2, 10, 8), dtype=b.dtype)
    whole_b[:, :9, :6] = b
    packed = whole_b.reshape(2, 5, 2, 2, block).transpose(0, 3, 1, 4, 2).reshape(2, 2, 5, 2 * block)
    g.case("matmul_pairs", "matmul_pairs", {"n": 6, "b_block": block}, [("bf16", a), ("bf16", packed)], [("f32", a @ b)])
    x, w = numbers(1, 8, 5, 4), numbers(6, 4, 3, 2)
    spec = [1, 2], [1, 1], [1, 0], [1, 1]
    attrs = dict(zip(("strides", "dilations", "before", "after"), spec)) | {"groups": 2}
    weights = block_weights(w, 2, 4, block)  # [..., I, B]
    weights = np.swapaxes(weights.reshape(weights.shape[:-2] + (2, 2, block)), -1, -2)
    g.case("conv_pairs", "conv_pairs", attrs | {"o": 6, "x_block": 4, "y_block": 0, "w_block": block},
           [("bf16", blocked(x, 1, 4)), ("bf16", weights.reshape(weights.shape[:-3] + (2, 2 * block)))], [("f32", conv(x, w, 2, *spec))])


def few_bits(g):
    """Weights of few bits, packed as ops.def says from the numbers that the product is computed with."""
    own = np.random.default_rng(11)
    for bits, m, k, n, block, span, zero in ((4, 2, 19, 6, 4, 8, "u8"), (4, 1, 16, 5, 4, 16, None), (2, 3, 40, 3, 2, 32, "f32"),
                                             (8, 2, 9, 4, 4, 4, "u8"), (8, 1, 6, 3, 2, 8, None)):
        terms, blocks, groups = 32 // bits, -(-n // block), -(-k // span)
        whole_numbers = lambda low, high, *shape: own.integers(low, high, shape)
        a, numbers = whole_numbers(-4, 5, m, k), whole_numbers(0, 1 << bits, k, n)
        scales, zeros = whole_numbers(1, 5, groups, n), whole_numbers(0, 1 << bits, groups, n) if zero else np.full((groups, n), 1 << (bits - 1))
        spread = lambda t: np.repeat(t, span, axis=0)[:k]
        y = a @ ((numbers - spread(zeros)) * spread(scales))

        def columns(t):
            t = np.pad(t, [(0, 0), (0, blocks * block - n)])
            return t.reshape(len(t), blocks, block).transpose(1, 0, 2)

        padded = np.pad(numbers, [(0, -k % terms), (0, 0)]).reshape(-1, terms, n)
        words = (padded << (np.arange(terms) * bits)[:, None]).sum(1)
        ins = [("f32", a), ("u32", columns(words)), ("f32", columns(scales))] + ([(zero, columns(zeros))] if zero else [])
        g.case(f"matmul_bits {bits} {m} {k} {n}", "matmul_bits", {"n": n, "b_block": block, "bits": bits, "span": span},
               [(dtype, arr(dtype, t.reshape(-1).tolist(), t.shape)) for dtype, t in ins],
               [("f32", arr("f32", y.reshape(-1).tolist(), y.shape))])


def attention(g):
    """Scores of 0 and -inf alone, so that all weights of a row are one power of two."""
    own = np.random.default_rng(12)
    for m, k, n, empty in ((5, 4, 3, 0), (3, 8, 1, 1), (2, 1, 2, 1), (2, 0, 2, 0)):
        for batch in ((), (2,)):
            s, v = np.full(batch + (m, k), -INF), 8 * own.integers(-4, 5, batch + (k, n)).astype(float)
            y = np.zeros(batch + (m, n))
            for row in np.ndindex(*batch, m):
                seen = own.permutation(k)[:(0 if row[-1] == 0 else 1 << int(own.integers(0, max(k, 1).bit_length())))]
                s[row][seen] = 0
                if k:
                    y[row] = v[row[:-1]][seen].mean(axis=0) if len(seen) else 0.0 if empty else NAN
            g.case(f"attend {m} {k} {n} {empty} {len(batch)}", "attend", {"keys": 16, "empty": empty},
                   [("f32", arr("f32", t.reshape(-1).tolist(), t.shape)) for t in (s, v)],
                   [("f32", arr("f32", y.reshape(-1).tolist(), y.shape))])


PARTS = (products, convolutions, extremes, winograds, few_bits, weights_gradients, attention, wide_sums, paired_terms,
         library_products)
