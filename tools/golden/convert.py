# SPDX-License-Identifier: MIT
"""Writes eval_convert.txt: doubles, and the bits of the nearest f16 and bf16."""
import math
from fractions import Fraction

import numpy as np

from .elements import FLOATS, INF, rng, round_float


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
