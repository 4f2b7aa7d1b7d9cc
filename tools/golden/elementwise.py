# SPDX-License-Identifier: MIT
"""Cases of eval_elementwise.txt: functions of one, two and three elements, conversions, bits as another dtype."""
import itertools
import math
import struct
from fractions import Fraction

import numpy as np

from .elements import ALL, FLOATS, INF, INTS, NAN, arr, limits, pick, quiet, round_exact, round_float, vec, whole, wrap

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


WIDTHS = {dtype: int(dtype.lstrip("biuf")) for dtype in ALL if dtype != "bool"}


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


PARTS = (unary, binary, select, cast, bitcast)
