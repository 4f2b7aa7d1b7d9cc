#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Computes the polynomials of generated code: writes src/code/coefficients.h to standard output.

Each is a minimax fit by Remez's exchange in 60-digit arithmetic, of the function `g` with the weight `w`, which makes the
error of the fit the relative error of the whole formula. The comment before each says how good it is with the
coefficients rounded to their format.

    tools/minimax.py > src/code/coefficients.h
"""
import math
import struct
from decimal import Decimal as D, getcontext

getcontext().prec = 60
GRID = 300


# --- functions in high precision ---------------------------------------------------------------------------------------

def series(first, ratio):
    """first * (1 + ratio(1) * (1 + ratio(2) * ...)), until terms vanish."""
    total, term, n = D(0), first, 0
    while abs(term) > D(10) ** -58 * (1 if total == 0 else abs(total)) or n < 4:
        total += term
        n += 1
        term *= ratio(n)
        if n > 4000:
            raise ArithmeticError("series")
    return total


def sin(x):
    return series(x, lambda n: -x * x / ((2 * n) * (2 * n + 1)))


def cos(x):
    return series(D(1), lambda n: -x * x / ((2 * n - 1) * (2 * n)))


def atan(x):
    if abs(x) > D("0.3"):  # halve the angle
        return 2 * atan(x / (1 + (1 + x * x).sqrt()))
    total, power, n = D(0), x, 0
    while abs(power) > D(10) ** -58 * abs(x):
        total += power / (2 * n + 1) * (-1) ** n
        power *= x * x
        n += 1
    return total


def asin(x):
    return atan(x / (1 - x * x).sqrt())


def erf(x):
    total, term, n = D(0), x, 0
    while abs(term) > D(10) ** -58:
        total += term / (2 * n + 1)
        n += 1
        term *= -x * x / n
    return 2 * total / PI.sqrt()


PI = 16 * atan(D(1) / 5) - 4 * atan(D(1) / 239)


# --- Remez -------------------------------------------------------------------------------------------------------------

def solve(matrix, right):
    n = len(right)
    rows = [list(r) + [b] for r, b in zip(matrix, right)]
    for i in range(n):
        pivot = max(range(i, n), key=lambda k: abs(rows[k][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for k in range(i + 1, n):
            f = rows[k][i] / rows[i][i]
            if f:
                rows[k] = [a - f * b for a, b in zip(rows[k], rows[i])]
    x = [D(0)] * n
    for i in reversed(range(n)):
        x[i] = (rows[i][n] - sum(rows[i][k] * x[k] for k in range(i + 1, n))) / rows[i][i]
    return x


def value(coef, x):
    total = D(0)
    for c in reversed(coef):
        total = total * x + c
    return total


def remez(points, degree):
    """points: (x, g, w). Returns the coefficients; each point's error is w * (g - P(x))."""
    table = [(g, w, [x ** k for k in range(degree + 1)]) for x, g, w in points]
    last = len(table) - 1
    at = [round(last * (1 - math.cos(math.pi * k / (degree + 1))) / 2) for k in range(degree + 2)]
    for _ in range(40):
        rows = [table[i][2] + [(-1) ** k / table[i][1]] for k, i in enumerate(at)]
        out = solve(rows, [table[i][0] for i in at])
        coef, level = out[:-1], abs(out[-1])
        errors = [w * (g - sum(c * p for c, p in zip(coef, powers))) for g, w, powers in table]
        peaks = []
        for i, e in enumerate(errors):  # the largest of each run of one sign
            if peaks and (errors[peaks[-1]] < 0) == (e < 0):
                if abs(e) > abs(errors[peaks[-1]]):
                    peaks[-1] = i
            else:
                peaks.append(i)
        while len(peaks) > degree + 2:
            peaks.pop(0 if abs(errors[peaks[0]]) < abs(errors[peaks[-1]]) else -1)
        if len(peaks) < degree + 2 or max(abs(e) for e in errors) <= level * D("1.001"):
            break
        at = peaks
    return coef


def rounded(x, single):
    return D(struct.unpack("f", struct.pack("f", float(x)))[0]) if single else D(float(x))


def fit(single, low, high, degree, g, w):
    low, high = D(low), D(high)
    xs = [low + (high - low) * (1 - D(math.cos(math.pi * (k + 0.5) / GRID))) / 2 for k in range(GRID)]
    points = [(x, g(x), abs(w(x))) for x in xs]
    coef = [rounded(c, single) for c in remez(points, degree)]
    error = max(abs(w * (g - value(coef, x))) for x, g, w in points)
    return coef, error


def root(f):
    """A fit in the square of the argument."""
    return lambda z: f(z.sqrt())


LN2_2 = D(2).ln() / 2 * D("1.0001")
PI_4 = PI / 4 * D("1.0001")
PI_8 = (D(2).sqrt() - 1) * D("1.0001")
S_LOG = (D(2).sqrt() - 1) / (D(2).sqrt() + 1) * D("1.0001")


def atanh2(s):
    return ((1 + s) / (1 - s)).ln()


FITS = [
    # name, single, low, high, degree, g, w, formula
    ("exp_f32", True, -LN2_2, LN2_2, 4, lambda r: (r.exp() - 1 - r) / r ** 2, lambda r: r ** 2 / r.exp(),
     "e^r = 1 + r + r^2 P(r), |r| <= ln(2)/2"),
    ("log_f32", True, "-0.3334", "0.3334", 9, lambda f: ((1 + f).ln() - f) / f ** 2, lambda f: f ** 2 / (1 + f).ln(),
     "log(1 + f) = f + f^2 P(f), |f| <= 1/3"),
    ("sin_f32", True, "1e-9", PI_4 ** 2, 2, root(lambda r: (sin(r) - r) / r ** 3), root(lambda r: r ** 3 / sin(r)),
     "sin r = r + r^3 P(r^2), |r| <= pi/4"),
    ("cos_f32", True, "1e-9", PI_4 ** 2, 2, lambda z: (cos(z.sqrt()) - 1 + z / 2) / z ** 2,
     lambda z: z ** 2 / cos(z.sqrt()), "cos r = 1 - r^2/2 + r^4 P(r^2), |r| <= pi/4"),
    ("erf_f32", True, "1e-6", "3.93", 10, lambda t: -(1 - erf(t)).ln() / t - 1, lambda t: t * (1 - erf(t)) / erf(t),
     "erf t = 1 - exp(-t - t P(t)), 0 <= t <= 3.93"),
    ("exp_f64", False, -LN2_2, LN2_2, 10, lambda r: (r.exp() - 1 - r) / r ** 2, lambda r: r ** 2 / r.exp(),
     "e^r = 1 + r + r^2 P(r), |r| <= ln(2)/2"),
    ("log_f64", False, "1e-12", S_LOG ** 2, 6, root(lambda s: (atanh2(s) / s - 2) / s ** 2),
     root(lambda s: s ** 3 / atanh2(s)), "log(1 + f) = 2s + s z P(z), s = f / (2 + f), z = s^2, |f| <= sqrt(2) - 1"),
    ("sin_f64", False, "1e-9", PI_4 ** 2, 4, root(lambda r: (sin(r) - r) / r ** 3), root(lambda r: r ** 3 / sin(r)),
     "sin r = r + r^3 P(r^2), |r| <= pi/4"),
    ("cos_f64", False, "1e-9", PI_4 ** 2, 4, lambda z: (cos(z.sqrt()) - 1 + z / 2) / z ** 2,
     lambda z: z ** 2 / cos(z.sqrt()), "cos r = 1 - r^2/2 + r^4 P(r^2), |r| <= pi/4"),
    ("atan_f64", False, "1e-9", PI_8 ** 2, 8, root(lambda x: (atan(x) - x) / x ** 3), root(lambda x: x ** 3 / atan(x)),
     "atan x = x + x^3 P(x^2), |x| <= tan(pi/8)"),
    ("asin_f64", False, "1e-9", "0.25001", 9, root(lambda x: (asin(x) - x) / x ** 3), root(lambda x: x ** 3 / asin(x)),
     "asin x = x + x^3 P(x^2), |x| <= 1/2"),
    # functions of f64
    ("sin_wide", False, "1e-9", PI_4 ** 2, 5, root(lambda r: (sin(r) - r) / r ** 3), root(lambda r: r ** 3 / sin(r)),
     "sin r = r + r^3 P(r^2), |r| <= pi/4"),
    ("cos_wide", False, "1e-9", PI_4 ** 2, 5, lambda z: (cos(z.sqrt()) - 1 + z / 2) / z ** 2,
     lambda z: z ** 2 / cos(z.sqrt()), "cos r = 1 - r^2/2 + r^4 P(r^2), |r| <= pi/4"),
    ("atan_wide", False, "1e-9", PI_8 ** 2, 11, root(lambda x: (atan(x) - x) / x ** 3), root(lambda x: x ** 3 / atan(x)),
     "atan x = x + x^3 P(x^2), |x| <= tan(pi/8)"),
    ("asin_wide", False, "1e-9", "0.25001", 13, root(lambda x: (asin(x) - x) / x ** 3), root(lambda x: x ** 3 / asin(x)),
     "asin x = x + x^3 P(x^2), |x| <= 1/2"),
    ("log_wide", False, "1e-12", S_LOG ** 2, 6, root(lambda s: ((atanh2(s) / s - 2) / s ** 2 - D(2) / 3) / s ** 2),
     root(lambda s: s ** 5 / atanh2(s)),
     "log(1 + f) = 2s + 2/3 s^3 + s^5 P(s^2), s = f / (2 + f), |f| <= sqrt(2) - 1"),
    ("erf_near", False, "1e-9", "1.001", 12, root(lambda x: erf(x) / x - 1), root(lambda x: x / erf(x)),
     "erf x = x + x P(x^2), |x| <= 1"),
    ("erf_far", False, "-1", "3.95", 22, lambda v: -(1 - erf(v + 2)).ln(), lambda v: (1 - erf(v + 2)) / erf(v + 2),
     "erf t = 1 - exp(-P(t - 2)), 1 <= t <= 5.95"),
]


# --- the header --------------------------------------------------------------------------------------------------------

def polynomial(name, single, low, high, degree, g, w, formula):
    coef, error = fit(single, low, high, degree, g, w)
    bits = error.ln() / D(2).ln()
    print(f"/* {formula}: relative error 2^{bits:.1f} */")
    print(f"static const double {name}[] = {{")
    for c in coef:
        print(f"    {float(c).hex()},")
    print("};\n")


def pi_bits():
    """2/pi as an integer times 2^-200, in bytes, lowest first, with 8 bytes of zeros above."""
    bits = int(2 / PI_LONG() * D(2) ** 200)
    data = bits.to_bytes(25 + 8, "little")
    print("/* 2/pi * 2^200, rounded down: bytes, lowest first, then 8 of zeros */")
    print("static const uint8_t two_over_pi[] = {")
    for i in range(0, len(data), 11):
        print("    " + ", ".join(f"0x{b:02x}" for b in data[i:i + 11]) + ",")
    print("};\n")


def pi_words():
    """The same times 2^1216, in words, with a word of zeros above."""
    bits = int(2 / PI_LONG() * D(2) ** 1216)
    words = [bits >> 64 * i & (1 << 64) - 1 for i in range(19 + 1)]
    print("/* 2/pi * 2^1216, rounded down: words, lowest first, then one of zeros */")
    print("static const uint64_t two_over_pi_wide[] = {")
    for i in range(0, len(words), 4):
        print("    " + ", ".join(f"0x{w:016x}" for w in words[i:i + 4]) + ",")
    print("};\n")


def PI_LONG():
    getcontext().prec = 400
    x = 16 * long_atan(D(1) / 5) - 4 * long_atan(D(1) / 239)
    return x


def long_atan(x):
    total, power, n = D(0), x, 0
    while abs(power) > D(10) ** -398:
        total += power / (2 * n + 1) * (-1) ** n
        power *= x * x
        n += 1
    return total


def main():
    print("/* SPDX-License-Identifier: MIT */")
    print("/* Generated by tools/minimax.py, which says how. Coefficients are in ascending order. */")
    print("#ifndef ASH_COEFFICIENTS_H\n#define ASH_COEFFICIENTS_H\n\n#include <stdint.h>\n")
    for f in FITS:
        polynomial(*f)
    pi_bits()
    pi_words()
    print("#endif")


main()
