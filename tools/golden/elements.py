# SPDX-License-Identifier: MIT
"""Numbers of each dtype as Python's own, in arrays of objects: rounded and wrapped as the dtype has it, random ones, and
functions of them.

`rng` is one stream for all cases in the order of tools/eval_golden.py: a case that draws from it moves those after it. What
is added later has a generator of its own."""
import math
from fractions import Fraction

import numpy as np

FLOATS = {"f64": (53, 1023), "f32": (24, 127), "f16": (11, 15), "bf16": (8, 127)}  # digits, largest exponent
INTS = {k: (int(k[1:]), k[0] == "i") for k in ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")}
ALL = [*FLOATS, *INTS, "bool"]
NAN, INF = math.nan, math.inf
rng = np.random.default_rng(20240607)


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


def pick(how, a, b):
    """IEEE 754-2019 minimum and maximum."""
    if math.isnan(a) or math.isnan(b):
        return NAN
    return how((a, b), key=lambda v: (v, math.copysign(1, v)))
