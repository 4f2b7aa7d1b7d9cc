#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes tests/data/eval_*.txt: operands, attributes and expected results for the reference evaluator.

Needs numpy 2. The expected values come from numpy, from Python's integers and fractions, and from plain definitions; never
from ashlar. The files are committed, so that running the tests needs no Python. A case is

    case NAME
    op NAME
    attr NAME VALUE...
    in DTYPE DIMS... : ELEMENTS...
    out DTYPE DIMS... : ELEMENTS...
    tol RELATIVE                        (absent: bit for bit, the sign of a zero too)
    end

with floating point elements in C's notation, hexadecimal unless they are whole.
"""
import itertools
import math
import struct
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

FLOATS = {"f64": (53, 1023), "f32": (24, 127), "f16": (11, 15), "bf16": (8, 127)}  # digits, largest exponent
INTS = {k: (int(k[1:]), k[0] == "i") for k in ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")}
ALL = [*FLOATS, *INTS, "bool"]
NAN, INF = math.nan, math.inf
SCATTERS = {"set": 0, "add": 1, "mul": 2, "min": 3, "max": 4}
rng = np.random.default_rng(20240607)


# --- elements -------------------------------------------------------------------------------------------------------


def round_exact(dtype, x):
    """A fraction rounded to a dtype, halves to even."""
    if x == 0:
        return 0.0
    digits, emax = FLOATS[dtype]
    exponent = abs(x.numerator).bit_length() - x.denominator.bit_length()
    exponent += abs(x) >= Fraction(2) ** exponent  # now 2^(exponent - 1) <= |x| < 2^exponent
    unit = Fraction(2) ** (max(exponent, 2 - emax) - digits)
    y = round(x / unit) * unit
    if abs(y) > (2 - Fraction(2) ** (1 - digits)) * Fraction(2) ** emax:
        return math.copysign(INF, x)
    return math.copysign(float(y), x)


def round_float(dtype, x):
    x = float(x)
    if not math.isfinite(x) or x == 0 or dtype == "f64":
        return x
    y = round_exact(dtype, Fraction(x))
    numpy_has = {"f32": np.float32, "f16": np.float16}.get(dtype)
    with np.errstate(all="ignore"):
        assert not numpy_has or numpy_has(x) == y, (dtype, x, y)
    return y


def limits(dtype):
    if dtype == "bool":
        return 0, 1
    bits, signed = INTS[dtype]
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)


def wrap(dtype, n):
    """An integer wrapped to the width of a dtype; bool: n != 0."""
    if dtype == "bool":
        return int(n != 0)
    bits, signed = INTS[dtype]
    n = int(n) & ((1 << bits) - 1)
    return n - (1 << bits) if signed and n >> (bits - 1) else n


def fit(dtype, x):
    return round_float(dtype, x) if dtype in FLOATS else wrap(dtype, x)


def arr(dtype, values, shape=None):
    """An array of Python numbers that have the dtype: numpy neither rounds nor wraps them."""
    items = list(values) if np.ndim(values) else [values]
    out = np.empty(len(items), dtype=object)
    out[:] = [fit(dtype, v) for v in items]
    return out.reshape(shape if shape is not None else out.shape)


def whole(dtype, *shape):
    """Random small whole numbers: sums and products of a few are exact in every dtype."""
    lo, hi = (0, 2) if dtype == "bool" else (0, 7) if dtype[0] == "u" else (-4, 5)
    return arr(dtype, rng.integers(lo, hi, int(np.prod(shape))).tolist(), shape)


def vec(f, *arrays):
    """f applied to each element."""
    out = np.empty(arrays[0].shape, dtype=object)
    for at in np.ndindex(*out.shape):
        out[at] = f(*(a[at] for a in arrays))
    return out


def quiet(f):
    """A numpy function of doubles as one of Python's floats."""
    def call(*xs):
        with np.errstate(all="ignore"):
            return float(f(*(np.float64(x) for x in xs)))
    return call


# --- the files ------------------------------------------------------------------------------------------------------


class Golden:
    def __init__(self, folder):
        self.folder, self.lines, self.names = folder, [], set()

    def case(self, name, op, attrs, ins, outs, tol=None):
        """`ins` and `outs` are (dtype, array) pairs; expected values are rounded or wrapped to their dtype here."""
        assert name not in self.names, name
        self.names.add(name)
        self.lines += [f"case {name}", f"op {op}"]
        for key, value in attrs.items():
            items = value if isinstance(value, (list, tuple)) else [value]
            self.lines.append(" ".join(["attr", key, *map(str, items)]))
        for role, tensors in (("in", ins), ("out", outs)):
            for dtype, t in tensors:
                t = np.asarray(t, dtype=object)
                elements = [self.text(dtype, fit(dtype, v)) for v in t.ravel()]
                self.lines.append(" ".join([role, dtype, *map(str, t.shape), ":", *elements]))
        if tol is not None:
            self.lines.append(f"tol {tol}")
        self.lines.append("end")

    @staticmethod
    def text(dtype, v):
        if dtype not in FLOATS:
            return str(v)
        if math.isfinite(v) and v == int(v) and abs(v) < 1e6:
            return "-0" if v == 0 and math.copysign(1, v) < 0 else str(int(v))
        if not math.isfinite(v):
            return str(v)
        mantissa, exponent = v.hex().split("p")
        return mantissa.rstrip("0").rstrip(".") + "p" + exponent

    def write(self, name):
        path = self.folder / f"eval_{name}.txt"
        path.write_text("\n".join(self.lines) + "\n")
        print(f"{path}: {sum(line.startswith('case') for line in self.lines)} cases, {path.stat().st_size} bytes")
        self.lines = []


# --- elementwise ----------------------------------------------------------------------------------------------------

UNARY_EXACT = {
    "neg": np.negative, "abs": np.abs, "sign": np.sign, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc,
    "round": np.rint, "sqrt": np.sqrt,
}
UNARY_NEAR = {
    "exp": np.exp, "log": np.log, "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos,
    "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh,
    "atanh": np.arctanh, "erf": math.erf, "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}
UNARY_INT = {"neg": lambda v: -v, "abs": abs, "sign": lambda v: (v > 0) - (v < 0), "not": lambda v: ~v}
TOL = {"f64": 2e-15, "f32": 1.3e-7, "f16": 1e-3, "bf16": 8e-3}  # one unit in the last place or a little more
EDGES = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 1.5, -1.5, 2.5, -2.5, 0.1, -0.3, 3.7, -9.6, 1e-3, 30.0, -30.0, 200.25, 1e4, 1e-40,
         3e38, -3e38, INF, -INF, NAN]


def unary(g):
    for dtype in FLOATS:
        x = arr(dtype, EDGES)
        for op, f in UNARY_EXACT.items():
            g.case(f"{op} {dtype}", op, {}, [(dtype, x)], [(dtype, vec(quiet(f), x))])
        for op, f in UNARY_NEAR.items():
            g.case(f"{op} {dtype}", op, {}, [(dtype, x)], [(dtype, vec(quiet(f), x))], TOL[dtype])
    for dtype in INTS:
        lo, hi = limits(dtype)
        x = arr(dtype, sorted(v for v in {lo, lo + 1, -2, -1, 0, 1, 2, 77, hi - 1, hi} if v >= lo))
        for op, f in UNARY_INT.items():
            g.case(f"{op} {dtype}", op, {}, [(dtype, x)], [(dtype, vec(f, x))])
    g.case("not bool", "not", {}, [("bool", arr("bool", [0, 1]))], [("bool", arr("bool", [1, 0]))])
    for shape in ((), (0,), (3, 0, 2), (1,) * 10, (2, 1) * 5):
        x = whole("i32", *shape)
        g.case(f"neg shape {shape}", "neg", {}, [("i32", x)], [("i32", vec(lambda v: -v, x))])


def div(a, b):
    return 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def int_pow(a, b):
    if b >= 0:
        return pow(a, b, 1 << 64)
    return int(Fraction(1) / Fraction(a) ** min(-b, 64 + b % 2)) if a else 0


def pick(how, a, b):
    """IEEE 754-2019 minimum and maximum."""
    if math.isnan(a) or math.isnan(b):
        return NAN
    return how((a, b), key=lambda v: (v, math.copysign(1, v)))


FLOAT_BINARY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "mod": np.mod, "rem": np.fmod,
    "min": lambda a, b: pick(min, a, b), "max": lambda a, b: pick(max, a, b),
}
INT_BINARY = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "div": div,
    "mod": lambda a, b: a % b if b else 0, "rem": lambda a, b: a - b * div(a, b) if b else 0, "pow": int_pow,
    "min": min, "max": max, "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b,
}
COMPARE = {"eq": lambda a, b: a == b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b}


def pairs(dtype, values):
    both = list(itertools.product(values, repeat=2))
    return arr(dtype, [a for a, _ in both]), arr(dtype, [b for _, b in both])


def binary_cases(g, dtype, ops, a, b):
    for op, f in ops.items():
        result = "bool" if op in COMPARE else dtype
        tol = TOL[dtype] if op == "pow" and dtype in FLOATS else None
        g.case(f"{op} {dtype}", op, {}, [(dtype, a), (dtype, b)], [(result, vec(f, a, b))], tol)


def binary(g):
    for dtype in FLOATS:
        ops = {op: quiet(f) for op, f in FLOAT_BINARY.items()} | {"pow": quiet(np.power)} | COMPARE
        binary_cases(g, dtype, ops, *pairs(dtype, [0.0, -0.0, 1.0, -2.5, 3.3, -0.1, 65000.0, INF, -INF, NAN]))
    for dtype, (bits, signed) in INTS.items():
        lo, hi = limits(dtype)
        few = dtype in ("i16", "u16", "u32")
        values = [lo, -1, 0, 3, hi] if few else [lo, -7, -2, -1, 0, 1, 2, 5, 100, hi]
        values = sorted({v for v in values if lo <= v})
        binary_cases(g, dtype, INT_BINARY | COMPARE, *pairs(dtype, values))
        if signed:
            continue
        n = arr(dtype, [0, 1, bits - 1, bits, bits + 1, hi])
        shifts = {"shl": lambda v, c, w=bits: v << c if c < w else 0, "shr": lambda v, c, w=bits: v >> c if c < w else 0}
        binary_cases(g, dtype, shifts, arr(dtype, [hi - 2] * len(n)), n)
    ops = {op: INT_BINARY[op] for op in ("and", "or", "xor")} | {"eq": COMPARE["eq"]}
    binary_cases(g, "bool", ops, *pairs("bool", [0, 1]))


def select(g):
    for dtype in ALL:
        cond, a, b = whole("bool", 2, 3), whole(dtype, 2, 3), whole(dtype, 2, 3)
        g.case(f"select {dtype}", "select", {}, [("bool", cond), (dtype, a), (dtype, b)],
               [(dtype, np.where(cond.astype(bool), a, b))])
    x = arr("f16", [-0.0, NAN, INF])
    g.case("select edges", "select", {}, [("bool", arr("bool", [1, 1, 0])), ("f16", x), ("f16", x)], [("f16", x)])


def cast_value(src, dst, v):
    if dst in FLOATS:
        return round_float(dst, v) if src in FLOATS else round_exact(dst, Fraction(v))
    if src not in FLOATS:
        return wrap(dst, v)
    if dst == "bool":
        return int(v != 0)
    lo, hi = limits(dst)
    return 0 if math.isnan(v) else lo if v <= lo else hi if v >= hi else int(v)


def cast(g):
    floats = [0.0, -0.0, 0.5, -0.5, 0.99, -1.5, 2.5, 100.7, 127.0, 128.0, -128.0, -129.0, 255.5, 256.0, 65519.0, 65520.0,
              2.0**31, -2.0**31, 2.0**32, 2.0**63, -2.0**63, 2.0**63.5, 2.0**64, 3e38, 1e-42, 5.96e-8, 2.98e-8, 2.99e-8,
              1.0 + 2.0**-11, 1.0 + 2.0**-11 + 2.0**-40, 1.0 + 2.0**-8, 1.0 + 3 * 2.0**-8, INF, -INF, NAN]
    whole_numbers = [-2, -1, 0, 1, 2, 127, 128, 255, 256, 2049, 2051, 65519, 65520, 2**24 + 1, 2**24 + 3, 2**53 + 1,
                     2**53 + 2**29 + 1, 2**62 + 2**38 + 1, 2**62 + 2**38, 2**62 + 2**54 + 1, -(2**62) - 2**38 - 1]
    for src in ALL:
        lo, hi = (None, None) if src in FLOATS else limits(src)
        x = floats if lo is None else sorted({v for v in [lo, lo + 1, *whole_numbers, hi - 1, hi] if lo <= v <= hi})
        x = arr(src, x)
        for dst in ALL:
            y = vec(lambda v: cast_value(src, dst, v), x)
            g.case(f"cast {src} {dst}", "cast", {"dtype": dst}, [(src, x)], [(dst, y)])


def pattern_of(dtype, v):
    """The bits of a number, of which no NaN is one."""
    if dtype not in FLOATS:
        return int(v) & (1 << WIDTHS[dtype]) - 1
    if dtype == "bf16":
        return struct.unpack("<I", struct.pack("<f", v))[0] >> 16
    return int.from_bytes(struct.pack({"f16": "<e", "f32": "<f", "f64": "<d"}[dtype], v), "little")


def number_of(dtype, bits):
    if dtype not in FLOATS:
        signed = dtype[0] == "i" and bits >> WIDTHS[dtype] - 1
        return bits - (1 << WIDTHS[dtype]) if signed else bits
    if dtype == "bf16":
        return struct.unpack("<f", struct.pack("<I", bits << 16))[0]
    size = WIDTHS[dtype] // 8
    return struct.unpack({"f16": "<e", "f32": "<f", "f64": "<d"}[dtype], bits.to_bytes(size, "little"))[0]


WIDTHS = {dtype: int(dtype.lstrip("biuf")) for dtype in ALL if dtype != "bool"}


def bitcast(g):
    for src, width in WIDTHS.items():
        patterns = [0, 1, 2, (1 << width - 1) - 1 - (1 << width - 4), 1 << width - 1, (1 << width - 1) + 1, 5 << width - 5,
                    3 << width - 3 | 0x55 << max(width - 12, 0) & (1 << width - 4) - 1]
        for dst in (d for d, w in WIDTHS.items() if w == width and d != src):
            kept = [p & (1 << width) - 1 for p in patterns]
            kept = [p for p in kept if not any(math.isnan(number_of(t, p)) for t in (src, dst) if t in FLOATS)]
            x, y = ([number_of(t, p) for p in kept] for t in (src, dst))
            assert [pattern_of(src, v) for v in x] == kept
            g.case(f"bitcast {src} {dst}", "bitcast", {"dtype": dst}, [(src, arr(src, x))], [(dst, arr(dst, y))])


# --- movement -------------------------------------------------------------------------------------------------------


def move_case(g, name, op, attrs, dtype, x, y, *more):
    g.case(name, op, attrs, [(dtype, x), *more], [(dtype, y)])


def movement(g):
    for dtype in ALL:
        x = whole(dtype, 2, 3, 4)
        move_case(g, f"reshape {dtype}", "reshape", {"dims": [4, 6]}, dtype, x, x.reshape(4, 6))
        move_case(g, f"transpose {dtype}", "transpose", {"perm": [2, 0, 1]}, dtype, x, x.transpose(2, 0, 1))
    for old, new in (((), (1, 1)), ((1,), ()), ((0, 3), (3, 2, 0)), ((4, 2), (1,) * 8 + (2, 4))):
        x = whole("f32", *old)
        move_case(g, f"reshape {old} {new}", "reshape", {"dims": list(new)}, "f32", x, x.reshape(new))
    for shape, perm in (((), ()), ((3,), (0,)), ((3, 5), (1, 0)), ((2, 0, 3), (2, 1, 0)),
                        ((1, 2, 1, 2, 1, 2, 1, 2, 1, 3), (9, 1, 7, 3, 5, 0, 2, 4, 6, 8))):
        x = whole("i32", *shape)
        move_case(g, f"transpose {shape}", "transpose", {"perm": list(perm)}, "i32", x, x.transpose(perm))
    for old, new in (((), ()), ((), (2, 3)), ((3,), (2, 3)), ((2, 1), (2, 3)), ((1, 3, 1), (2, 2, 3, 2)), ((1,), (0,)),
                     ((2, 1, 2), (2, 0, 2)), ((1,) * 9 + (2,), (2, 1) * 4 + (2, 2))):
        x = whole("f64", *old)
        move_case(g, f"broadcast {old} {new}", "broadcast", {"dims": list(new)}, "f64", x, np.broadcast_to(x, new))
    slices = [((), []), ((5,), [slice(1, 4)]), ((5,), [slice(4, None, -1)]), ((5,), [slice(3, None, -2)]),
              ((4, 5), [slice(0, 4, 3), slice(1, 5, 2)]), ((4, 5), [slice(2, 2), slice(0, 5)]), ((0,), [slice(0, 0)]),
              ((3, 4, 5), [slice(2, 3), slice(3, None, -3), slice(0, 5)])]
    for shape, cuts in slices:
        x = whole("i64", *shape)
        bounds = [cut.indices(n) for cut, n in zip(cuts, shape)]
        y = x[(*cuts, ...)]
        move_case(g, f"slice {shape} {bounds}", "slice", {"starts": [b[0] for b in bounds], "steps": [b[2] for b in bounds],
                                                          "dims": list(y.shape)}, "i64", x, y)
    pads(g)
    for shapes, axis in (([(2, 3)], 1), ([(2, 3), (4, 3)], 0), ([(2, 1), (2, 0), (2, 3)], 1),
                         ([(2, 2, 3), (2, 1, 3), (2, 4, 3)], 1), ([(0,), (0,)], 0)):
        xs = [whole("f16", *s) for s in shapes]
        g.case(f"concat {shapes} {axis}", "concat", {"axis": axis}, [("f16", x) for x in xs],
               [("f16", np.concatenate(xs, axis))])
    for dtype in [*FLOATS, *INTS]:
        y = np.broadcast_to(np.arange(3).reshape(3, 1), (2, 3, 2))
        g.case(f"iota {dtype}", "iota", {"dtype": dtype, "dims": [2, 3, 2], "axis": 1}, [], [(dtype, y)])
    for dtype in ("u8", "i8", "bf16"):
        g.case(f"iota {dtype} long", "iota", {"dtype": dtype, "dims": [300], "axis": 0}, [], [(dtype, np.arange(300))])
    g.case("iota empty", "iota", {"dtype": "i64", "dims": [2, 0], "axis": 1}, [], [("i64", np.zeros((2, 0)))])


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


def pads(g):
    for shape, before, after, interior in (((), [], [], []), ((3,), [2], [1], [0]), ((3,), [0], [1], [2]),
                                           ((0,), [2], [1], [3]), ((2, 3), [1, 0], [0, 2], [0, 1]),
                                           ((2, 1, 2), [0, 1, 2], [1, 0, 0], [1, 4, 1])):
        x = whole("f32", *shape)
        dims = [b + a + n + max(n - 1, 0) * i for n, b, a, i in zip(shape, before, after, interior)]
        y = np.full(dims, 9, dtype=object)
        for at in np.ndindex(*shape):
            y[tuple(b + i * (step + 1) for i, b, step in zip(at, before, interior))] = x[at]
        g.case(f"pad {shape} {before}", "pad", {"before": before, "after": after, "interior": interior},
               [("f32", x), ("f32", arr("f32", 9, ()))], [("f32", y)])


# --- reductions, pools, scans, orders -------------------------------------------------------------------------------


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


# --- contractions ---------------------------------------------------------------------------------------------------


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


# --- indexed access ---------------------------------------------------------------------------------------------------


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


# --- conversions ------------------------------------------------------------------------------------------------------


def bits_of(dtype, y):
    """The bit pattern of a number that has the dtype, by the definition of the format."""
    digits, emax = FLOATS[dtype]
    sign = 0x8000 if math.copysign(1, y) < 0 else 0
    if math.isinf(y):
        return sign | (2 * emax + 1) << (digits - 1)
    exponent = max(math.frexp(y)[1] - 1, 1 - emax) if y else 1 - emax
    mantissa = int(abs(Fraction(y)) / Fraction(2) ** (exponent - digits + 1))
    field = exponent + emax if mantissa >> (digits - 1) else 0
    bits = sign | field << (digits - 1) | mantissa & ((1 << (digits - 1)) - 1)
    assert dtype == "bf16" or np.float16(y).view(np.uint16) == bits
    return bits


def conversions(folder):
    """eval_convert.txt: a double, and the bits of the nearest f16 and bf16."""
    xs = [0.0, -0.0, INF, -INF, 65504.0, 65519.99, 65520.0, -65520.0, 2.0**-24, 2.0**-25, 2.0**-25 * 1.0000001, 6.1e-5,
          2.0**-14 * (1 - 2.0**-12), 1 + 2.0**-11, 1 + 3 * 2.0**-11, 1 + 2.0**-11 + 2.0**-52, 1 + 2.0**-8, 1 + 3 * 2.0**-8,
          1 + 2.0**-8 + 2.0**-33, 2.0**-133, 2.0**-134, 2.0**-134 * 1.01, 3.3895e38, 3.39e38, 3.4028e38, 1e300, 5e-324]
    xs += (rng.normal(size=60) * 2.0 ** rng.integers(-30, 17, 60)).tolist()
    xs += (rng.normal(size=60) * 2.0 ** rng.integers(-140, 129, 60)).tolist()
    lines = [f"{x.hex()} {bits_of('f16', round_float('f16', x)):#06x} {bits_of('bf16', round_float('bf16', x)):#06x}"
             for x in xs]
    (folder / "eval_convert.txt").write_text("\n".join(lines) + "\n")


# --- sizes that depend on data --------------------------------------------------------------------------------------


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


def main():
    folder = Path(__file__).resolve().parent.parent / "tests" / "data"
    g = Golden(folder)
    for name, parts in {"elementwise": (unary, binary, select, cast, bitcast), "movement": (movement,),
                        "reduce": (reductions, pools, scans, orders, sums), "contract": (products, convolutions, extremes, winograds, few_bits, weights_gradients, attention, wide_sums, paired_terms,
                                     library_products),
                        "index": (gathers, scatters, choices)}.items():
        for part in parts:
            part(g)
        g.write(name)
    conversions(folder)


if __name__ == "__main__":
    main()
