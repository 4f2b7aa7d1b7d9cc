#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes tests/data/ptx_cases.txt: instructions of PTX with operands and results, computed here from the manual's words in
exact arithmetic (fractions and integers of any size), so that nothing of the stand-in judges itself.

    tools/ptx_cases.py [FILE]

A case is "case NAME", "do TEXT" (of d, a, b, c), "types D A [B [C]]", "needs sm_N" if that is more than 80, then rows "A B C = D" in hexadecimal. Type p is a
predicate, "nan" is any of them. Products of matrices have "words D A B C" in place of types, how many words of 32 bits each operand is (d0, d1, ...), and a row
for each thread of a warp; their sums are exact in whatever order.
"""
import random
import sys
from fractions import Fraction as F
from math import isqrt

ROUNDS = ("rn", "rz", "rm", "rp")
FORMATS = {"f16": (5, 10), "bf16": (8, 7), "f32": (8, 23), "f64": (11, 52), "tf32": (8, 10)}
BITS = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64, "tf32": 32, "p": 32}
random.seed(20261122)


def bits_of(t):
    return BITS.get(t) or int(t[1:])


class Num:
    """A float: kind 'nan', 'inf' or 'num'; the sign is that of zeros, too."""

    def __init__(self, kind, sign=0, value=F(0)):
        self.kind, self.sign, self.value = kind, sign, value


def decode(t, bits):
    e, m = FORMATS[t]
    if t == "tf32":
        bits >>= 13
    sign, exp, man = bits >> (e + m) & 1, bits >> m & ((1 << e) - 1), bits & ((1 << m) - 1)
    if exp == (1 << e) - 1:
        return Num("nan") if man else Num("inf", sign)
    bias = (1 << (e - 1)) - 1
    mag = F(man) * F(2) ** (1 - bias - m) if exp == 0 else F(man + (1 << m)) * F(2) ** (exp - bias - m)
    return Num("num", sign, -mag if sign else mag)


def encode(t, x, mode="rn"):
    """The bits of a Num; None: not a number, in any form (f64)."""
    e, m = FORMATS[t]
    top = (1 << e) - 1
    shift = 13 if t == "tf32" else 0
    if x.kind == "nan":
        return None if t == "f64" else ((top << m) | ((1 << m) - 1)) << shift
    if x.kind == "inf":
        return (x.sign << (e + m) | top << m) << shift
    if x.value == 0:
        return x.sign << (e + m) << shift
    sign, mag, bias = int(x.value < 0), abs(x.value), (1 << (e - 1)) - 1
    exp = 0
    while mag >= F(2) ** (exp + 1):
        exp += 1
    while mag < F(2) ** exp:
        exp -= 1
    exp = max(exp, 1 - bias)
    scaled = mag / F(2) ** (exp - m)
    kept, rest = scaled.numerator // scaled.denominator, scaled - scaled.numerator // scaled.denominator
    up = {"rn": rest > F(1, 2) or (rest == F(1, 2) and kept & 1), "rna": rest >= F(1, 2), "rz": False,
          "rm": rest > 0 and sign, "rp": rest > 0 and not sign}[mode]
    kept += bool(up)
    if kept >= 1 << (m + 1):
        kept >>= 1
        exp += 1
    if exp > bias:
        outward = mode in ("rn", "rna") or (mode == "rm" and sign) or (mode == "rp" and not sign)
        return (sign << (e + m) | ((top << m) if outward else (top << m) - 1)) << shift
    field = 0 if kept < 1 << m else exp + bias
    return (sign << (e + m) | field << m | (kept & ((1 << m) - 1))) << shift


def zero(sign):
    return Num("num", sign)


def add(x, y, mode="rn"):
    if x.kind == "nan" or y.kind == "nan":
        return Num("nan")
    if x.kind == "inf" or y.kind == "inf":
        if x.kind == y.kind and x.sign != y.sign:
            return Num("nan")
        return x if x.kind == "inf" else y
    s = x.value + y.value
    if s == 0:
        return zero(x.sign if x.sign == y.sign and x.value == 0 and y.value == 0 else int(mode == "rm"))
    return Num("num", int(s < 0), s)


def mul(x, y):
    sign = x.sign ^ y.sign
    if x.kind == "nan" or y.kind == "nan":
        return Num("nan")
    if x.kind == "inf" or y.kind == "inf":
        other = y if x.kind == "inf" else x
        return Num("nan") if other.kind == "num" and other.value == 0 else Num("inf", sign)
    return Num("num", sign, x.value * y.value)


def div(x, y):
    sign = x.sign ^ y.sign
    if x.kind == "nan" or y.kind == "nan" or (x.kind == "inf" and y.kind == "inf"):
        return Num("nan")
    if x.kind == "inf":
        return Num("inf", sign)
    if y.kind == "inf":
        return zero(sign)
    if y.value == 0:
        return Num("nan") if x.value == 0 else Num("inf", sign)
    return Num("num", sign, x.value / y.value)


def sqrt(x):
    if x.kind == "nan" or (x.sign and not (x.kind == "num" and x.value == 0)):
        return Num("nan")
    if x.kind == "inf" or x.value == 0:
        return x
    scale = 1 << 2600  # an even power; far more digits than any format has
    n = x.value.numerator * scale // x.value.denominator
    root = isqrt(n)
    exact = root * root == n and x.value.numerator * scale % x.value.denominator == 0
    return Num("num", 0, (F(root) if exact else F(2 * root + 1, 2)) / F(1 << 1300))


def neg(x):
    return Num(x.kind, 1 - x.sign, -x.value)


def floats(t, n):
    e, m = FORMATS[t]
    shift = 13 if t == "tf32" else 0
    one, inf = ((1 << (e - 1)) - 1) << m, ((1 << e) - 1) << m
    sign = 1 << (e + m)
    fixed = [0, sign, one, one | sign, one + 1, one | 1 << (m - 1), inf, inf | sign, inf | 1 << (m - 1), inf - 1, 1, sign | 1,
             1 << m, (1 << m) - 1, one + (3 << m), sign | (one - (2 << m)) + 3]
    near = [one + random.randrange(-(4 << m), 4 << m) | random.choice((0, sign)) for _ in range(n)]
    return [b << shift for b in fixed + near + [random.randrange(1 << (e + m + 1)) for _ in range(n)]]


def integers(bits, n):
    top = 1 << (bits - 1)
    fixed = [0, 1, 2, 3, 7, 31, 32, 33, top - 1, top, top + 1, 2 * top - 1, 2 * top - 2, 0x5a]
    return [x & (2 * top - 1) for x in fixed + [random.randrange(2 * top) >> random.randrange(bits) for _ in range(n)]]


def signed(x, bits):
    return x - (1 << bits) if x >> (bits - 1) & 1 else x


def value(t, x):
    return signed(x, bits_of(t)) if t[0] == "s" else x


out = []


def case(name, text, types, rows, of, needs=80):
    """`of` gives the bits of the result, None for a NaN in any form."""
    out.append(f"case {name}")
    out.append(f"do {text}")
    out.append("types " + " ".join(types))
    if needs > 80:
        out.append(f"needs sm_{needs}")
    for row in rows:
        result = of(*row)
        mask = (1 << bits_of(types[0])) - 1
        out.append(" ".join(f"{x:x}" for x in row) + " = " + ("nan" if result is None else f"{int(result) & mask:x}"))
    out.append("")


def tuples(lists, n):
    """All lists from their beginnings, shifted against each other, then n random ones."""
    most = max(map(len, lists))
    rows = [tuple(l[(i * (k + 1) + 3 * k) % len(l)] for k, l in enumerate(lists)) for i in range(most)]
    return rows + [tuple(random.choice(l) for l in lists) for _ in range(n)]


def arithmetic():
    for t in ("f32", "f64"):
        for mode in ROUNDS:
            two, three = tuples([floats(t, 8)] * 2, 24), tuples([floats(t, 8)] * 3, 40)
            f = lambda op: lambda *r: encode(t, op(*[decode(t, x) for x in r]), mode)
            case(f"add.{mode}.{t}", f"add.{mode}.{t} d, a, b;", [t] * 3, two, f(lambda x, y: add(x, y, mode)))
            case(f"sub.{mode}.{t}", f"sub.{mode}.{t} d, a, b;", [t] * 3, two, f(lambda x, y: add(x, neg(y), mode)))
            case(f"mul.{mode}.{t}", f"mul.{mode}.{t} d, a, b;", [t] * 3, two, f(mul))
            case(f"fma.{mode}.{t}", f"fma.{mode}.{t} d, a, b, c;", [t] * 4, three, f(lambda x, y, z: add(mul(x, y), z, mode)))
            case(f"div.{mode}.{t}", f"div.{mode}.{t} d, a, b;", [t] * 3, two, f(div))
            case(f"sqrt.{mode}.{t}", f"sqrt.{mode}.{t} d, a;", [t] * 2, [(x,) for x in floats(t, 12)], f(sqrt))
            case(f"rcp.{mode}.{t}", f"rcp.{mode}.{t} d, a;", [t] * 2, [(x,) for x in floats(t, 12)],
                 f(lambda x: div(Num("num", 0, F(1)), x)))
    for t in ("f16", "bf16"):
        two, three = tuples([floats(t, 8)] * 2, 24), tuples([floats(t, 8)] * 3, 60)
        f = lambda op: lambda *r: encode(t, op(*[decode(t, x) for x in r]))
        case(f"fma.rn.{t}", f"fma.rn.{t} d, a, b, c;", [t] * 4, three, f(lambda x, y, z: add(mul(x, y), z)))
        if t == "f16":
            case("add.rn.f16", "add.rn.f16 d, a, b;", [t] * 3, two, f(add))
            case("sub.rn.f16", "sub.rn.f16 d, a, b;", [t] * 3, two, f(lambda x, y: add(x, neg(y))))
            case("mul.rn.f16", "mul.rn.f16 d, a, b;", [t] * 3, two, f(mul))
            pair = lambda op: lambda x, y: (encode(t, op(decode(t, x >> 16), decode(t, y >> 16))) << 16 |
                                            encode(t, op(decode(t, x & 0xffff), decode(t, y & 0xffff))))
            rows = [(a << 16 | b, b << 16 | c) for a, b, c in three]
            case("add.rn.f16x2", "add.rn.f16x2 d, a, b;", ["b32"] * 3, rows, pair(add))
            case("mul.rn.f16x2", "mul.rn.f16x2 d, a, b;", ["b32"] * 3, rows, pair(mul))
    for t in ("f32", "f64", "f16", "bf16"):
        two = tuples([floats(t, 8)] * 2, 24)
        sign = 1 << (bits_of(t) - 1)

        def extreme(least, with_nan):
            def of(a, b):
                x, y = decode(t, a), decode(t, b)
                if x.kind == "nan" or y.kind == "nan":
                    if with_nan or x.kind == y.kind:
                        return encode(t, Num("nan"))
                    return b if x.kind == "nan" else a
                key = lambda z: ((-1 if z.sign else 1) * 2 if z.kind == "inf" else 0, z.value if z.kind == "num" else 0, -z.sign)
                return (a if key(x) <= key(y) else b) if least else (a if key(x) >= key(y) else b)
            return of
        for nan in ("", ".NaN") if t != "f64" else ("",):
            case(f"min{nan}.{t}", f"min{nan}.{t} d, a, b;", [t] * 3, two, extreme(True, nan))
            case(f"max{nan}.{t}", f"max{nan}.{t} d, a, b;", [t] * 3, two, extreme(False, nan))
        numbers = [x for x in floats(t, 8) if decode(t, x).kind != "nan"]
        case(f"abs.{t}", f"abs.{t} d, a;", [t] * 2, [(x,) for x in numbers], lambda x: x & ~sign)
        case(f"neg.{t}", f"neg.{t} d, a;", [t] * 2, [(x,) for x in numbers], lambda x: x ^ sign)
        for how in ("eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"):
            def holds(a, b):
                x, y = decode(t, a), decode(t, b)
                if x.kind == "nan" or y.kind == "nan":
                    return how in ("equ", "neu", "ltu", "leu", "gtu", "geu", "nan")
                key = lambda z: F(2) ** 2000 * (-1 if z.sign else 1) if z.kind == "inf" else z.value
                return {"eq": key(x) == key(y), "ne": key(x) != key(y), "lt": key(x) < key(y), "le": key(x) <= key(y),
                        "gt": key(x) > key(y), "ge": key(x) >= key(y), "nu": True, "na": False}[how[:2]]
            case(f"setp.{how}.{t}", f"setp.{how}.{t} d, a, b;", ["p", t, t], two, holds, 90 if t == "bf16" else 80)
    case("copysign.f32", "copysign.f32 d, a, b;", ["f32"] * 3, tuples([floats("f32", 4)] * 2, 0),
         lambda a, b: (a & 1 << 31) | (b & ~(1 << 31)))
    case("add.sat.f32", "add.sat.f32 d, a, b;", ["f32"] * 3, tuples([floats("f32", 8)] * 2, 8),
         lambda a, b: (lambda x: 0 if x.kind == "nan" or x.sign or x.value < 0 else encode("f32", Num("num", 0, F(1)) if
                       x.kind == "inf" or x.value > 1 else x))(add(decode("f32", a), decode("f32", b))))


def whole():
    for bits in (16, 32, 64):
        two, three = tuples([integers(bits, 10)] * 2, 20), tuples([integers(bits, 10)] * 3, 20)
        for s in "us":
            t = f"{s}{bits}"
            v = lambda x: value(t, x)
            b = f"{'b'}{bits}"
            case(f"add.{t}", f"add.{t} d, a, b;", [t] * 3, two, lambda x, y: x + y)
            case(f"sub.{t}", f"sub.{t} d, a, b;", [t] * 3, two, lambda x, y: x - y)
            if bits > 16:
                carry = lambda *terms: sum(terms) >> bits
                case(f"add.cc.{t}", f"add.cc.{t} d, a, b; addc.{t} d, a, b;", [t] * 3, two,
                     lambda x, y: x + y + carry(x, y))
                case(f"addc.cc.{t}", f"add.cc.{t} d, a, b; addc.cc.{t} d, a, b; addc.{t} d, a, b;", [t] * 3, two,
                     lambda x, y: x + y + carry(x, y, carry(x, y)))
                case(f"sub.cc.{t}", f"sub.cc.{t} d, a, b; subc.{t} d, a, b;", [t] * 3, two,
                     lambda x, y: x - y - (x < y))
                case(f"subc.cc.{t}", f"sub.cc.{t} d, a, b; subc.cc.{t} d, a, b; subc.{t} d, a, b;", [t] * 3, two,
                     lambda x, y: x - y - (x - (x < y) < y))
            case(f"mul.lo.{t}", f"mul.lo.{t} d, a, b;", [t] * 3, two, lambda x, y: v(x) * v(y))
            case(f"mul.hi.{t}", f"mul.hi.{t} d, a, b;", [t] * 3, two, lambda x, y: v(x) * v(y) >> bits)
            case(f"mad.lo.{t}", f"mad.lo.{t} d, a, b, c;", [t] * 4, three, lambda x, y, z: v(x) * v(y) + v(z))
            case(f"mad.hi.{t}", f"mad.hi.{t} d, a, b, c;", [t] * 4, three, lambda x, y, z: (v(x) * v(y) >> bits) + v(z))
            if bits < 64:
                w = f"{s}{2 * bits}"
                case(f"mul.wide.{t}", f"mul.wide.{t} d, a, b;", [w, t, t], two, lambda x, y: v(x) * v(y))
                wide = [(x, y, random.choice(integers(2 * bits, 8))) for x, y in two]
                case(f"mad.wide.{t}", f"mad.wide.{t} d, a, b, c;", [w, t, t, w], wide, lambda x, y, z: v(x) * v(y) + z)
            by = [(x, y) for x, y in two if y and not (s == "s" and x == 1 << (bits - 1) and y == (1 << bits) - 1)]
            quotient = lambda x, y: abs(v(x)) // abs(v(y)) * (-1 if (v(x) < 0) != (v(y) < 0) else 1)
            case(f"div.{t}", f"div.{t} d, a, b;", [t] * 3, by, quotient)
            case(f"rem.{t}", f"rem.{t} d, a, b;", [t] * 3, by, lambda x, y: v(x) - quotient(x, y) * v(y))
            case(f"min.{t}", f"min.{t} d, a, b;", [t] * 3, two, lambda x, y: min(v(x), v(y)))
            case(f"max.{t}", f"max.{t} d, a, b;", [t] * 3, two, lambda x, y: max(v(x), v(y)))
            shifts = [(x, random.choice([0, 1, 5, bits - 1, bits, bits + 1, 255, 2**32 - 1])) for x, _ in two]
            case(f"shr.{t}", f"shr.{t} d, a, b;", [t, t, "u32"], shifts, lambda x, n: v(x) >> min(n, bits))
            for how, op in (("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">="), ("eq", "=="), ("ne", "!=")):
                case(f"setp.{how}.{t}", f"setp.{how}.{t} d, a, b;", ["p", t, t], two,
                     lambda x, y: eval(f"{v(x)} {op} {v(y)}"))
            if bits > 16:
                fields = [(x, random.choice([0, 3, bits - 1, bits, 200]), random.choice([0, 1, 7, bits, 255])) for x, _ in two]

                def bfe(x, pos, n):
                    last = min(pos + n - 1, bits - 1)
                    sign = s == "s" and n and x >> last & 1
                    return sum((x >> (pos + i) & 1 if pos + i < bits else int(sign)) << i for i in range(min(n, bits))) | \
                        (((1 << bits) - 1) << min(n, bits) if sign else 0)
                case(f"bfe.{t}", f"bfe.{t} d, a, b, c;", [t, t, "u32", "u32"], fields, bfe)
                case(f"bfind.{t}", f"bfind.{t} d, a;", ["u32", t], [(x,) for x in integers(bits, 10)],
                     lambda x: (x if v(x) >= 0 or s == "u" else ~v(x)).bit_length() - 1)
        t = f"s{bits}"
        case(f"abs.{t}", f"abs.{t} d, a;", [t] * 2, [(x,) for x in integers(bits, 10)], lambda x: abs(value(t, x)))
        case(f"neg.{t}", f"neg.{t} d, a;", [t] * 2, [(x,) for x in integers(bits, 10)], lambda x: -x)
        b = f"b{bits}"
        case(f"and.{b}", f"and.{b} d, a, b;", [b] * 3, two, lambda x, y: x & y)
        case(f"or.{b}", f"or.{b} d, a, b;", [b] * 3, two, lambda x, y: x | y)
        case(f"xor.{b}", f"xor.{b} d, a, b;", [b] * 3, two, lambda x, y: x ^ y)
        case(f"not.{b}", f"not.{b} d, a;", [b] * 2, [(x,) for x in integers(bits, 10)], lambda x: ~x)
        case(f"shl.{b}", f"shl.{b} d, a, b;", [b, b, "u32"], shifts, lambda x, n: x << n if n < bits else 0)
        if bits == 16:
            continue
        case(f"popc.{b}", f"popc.{b} d, a;", ["u32", b], [(x,) for x in integers(bits, 10)], lambda x: bin(x).count("1"))
        case(f"clz.{b}", f"clz.{b} d, a;", ["u32", b], [(x,) for x in integers(bits, 10)], lambda x: bits - x.bit_length())
        case(f"brev.{b}", f"brev.{b} d, a;", [b, b], [(x,) for x in integers(bits, 10)],
             lambda x: int(f"{x:0{bits}b}"[::-1], 2))
        for pos, n in ((0, 4), (bits - 3, 7), (5, 0), (7, 255), (bits, 3)):
            case(f"bfi.{b} {pos} {n}", f"bfi.{b} d, a, b, {pos}, {n};", [b] * 3, two[:16], lambda x, y: (
                y & ~(((1 << n) - 1) << pos) | (x & ((1 << n) - 1)) << pos) & ((1 << bits) - 1) if pos < bits else y)
    two, three = tuples([integers(32, 10)] * 2, 20), tuples([integers(32, 10)] * 3, 20)
    case("add.sat.s32", "add.sat.s32 d, a, b;", ["s32"] * 3, two,
         lambda x, y: max(-2**31, min(2**31 - 1, signed(x, 32) + signed(y, 32))))
    case("sub.sat.s32", "sub.sat.s32 d, a, b;", ["s32"] * 3, two,
         lambda x, y: max(-2**31, min(2**31 - 1, signed(x, 32) - signed(y, 32))))
    for side in "lr":
        for edge in ("clamp", "wrap"):
            def funnel(x, y, n):
                n = min(n, 32) if edge == "clamp" else n & 31
                both = y << 32 | x
                return both << n >> 32 if side == "l" else both >> n
            case(f"shf.{side}.{edge}.b32", f"shf.{side}.{edge}.b32 d, a, b, c;", ["b32"] * 3 + ["u32"], three, funnel)
    modes = {"f4e": lambda c: [c, c + 1, c + 2, c + 3], "b4e": lambda c: [c, (c - 1) & 7, (c - 2) & 7, (c - 3) & 7],
             "rc8": lambda c: [c] * 4, "ecl": lambda c: [max(i, c) for i in range(4)],
             "ecr": lambda c: [min(i, c) for i in range(4)], "rc16": lambda c: [2 * (c & 1), 2 * (c & 1) + 1] * 2}
    byte = lambda x, y, i: (y << 32 | x) >> 8 * i & 255
    for mode, order in modes.items():
        case(f"prmt.b32.{mode}", f"prmt.b32.{mode} d, a, b, c;", ["b32"] * 4, three, lambda x, y, z: sum(
            byte(x, y, i) << 8 * k for k, i in enumerate(order(z & 3))))
    case("prmt.b32", "prmt.b32 d, a, b, c;", ["b32"] * 4, three, lambda x, y, z: sum(
        ((255 if byte(x, y, z >> 4 * k & 7) & 128 else 0) if z >> 4 * k & 8 else byte(x, y, z >> 4 * k & 7)) << 8 * k
        for k in range(4)))
    for table in (0x80, 0xe8, 0x96, 0x1b):
        case(f"lop3.b32 {table:x}", f"lop3.b32 d, a, b, c, {table};", ["b32"] * 4, three, lambda x, y, z: sum(
            (table >> ((x >> i & 1) << 2 | (y >> i & 1) << 1 | (z >> i & 1)) & 1) << i for i in range(32)))
    for p in "us":
        for q in "us":
            part = lambda s, x, i: signed(x >> 8 * i & 255, 8) if s == "s" else x >> 8 * i & 255
            case(f"dp4a.{p}32.{q}32", f"dp4a.{p}32.{q}32 d, a, b, c;", ["b32", "b32", "b32", "b32"], three,
                 lambda x, y, z: z + sum(part(p, x, i) * part(q, y, i) for i in range(4)))
            half = lambda s, x, i: signed(x >> 16 * i & 65535, 16) if s == "s" else x >> 16 * i & 65535
            for side, first in ("lo", 0), ("hi", 2):
                case(f"dp2a.{side}.{p}32.{q}32", f"dp2a.{side}.{p}32.{q}32 d, a, b, c;", ["b32"] * 4, three,
                     lambda x, y, z: z + sum(half(p, x, i) * part(q, y, first + i) for i in range(2)))
    case("selp", "{ .reg .pred r; setp.ne.u32 r, c, 0; selp.b32 d, a, b, r; }", ["b32"] * 4, three, lambda x, y, z: x if z else y)
    case("selp negated", "{ .reg .pred r, q; setp.ne.u32 r|q, c, 0; selp.b32 d, a, b, q; }", ["b32"] * 4, three,
         lambda x, y, z: y if z else x)
    case("setp and", "{ .reg .pred r; setp.gt.u32 r, c, 40; setp.lt.and.s32 d, a, b, r; }", ["p"] + ["b32"] * 3, three,
         lambda x, y, z: signed(x, 32) < signed(y, 32) and z > 40)
    case("setp or not", "{ .reg .pred r; setp.gt.u32 r, c, 40; setp.lt.or.s32 d, a, b, !r; }", ["p"] + ["b32"] * 3, three,
         lambda x, y, z: signed(x, 32) < signed(y, 32) or not z > 40)
    case("setp xor", "{ .reg .pred r; setp.gt.u32 r, c, 40; setp.eq.xor.s32 d, a, b, r; }", ["p"] + ["b32"] * 3, three,
         lambda x, y, z: (x == y) != (z > 40))
    case("set.lt.u32.s32", "set.lt.u32.s32 d, a, b;", ["b32"] * 3, two, lambda x, y: -(signed(x, 32) < signed(y, 32)))
    case("set.lt.f32.s32", "set.lt.f32.s32 d, a, b;", ["b32"] * 3, two,
         lambda x, y: 0x3f800000 if signed(x, 32) < signed(y, 32) else 0)
    case("xor.pred", "{ .reg .pred r, q; mov.pred q, -1; setp.lt.u32 r, a, b; xor.pred r, r, -1; and.pred r, r, q;"
         " selp.u32 d, 1, 0, r; }", ["b32"] * 3, two, lambda x, y: x >= y)
    case("guard", "{ .reg .pred r; setp.lt.u32 r, a, b; mov.u32 d, c; @r add.u32 d, d, 1; @!r add.u32 d, d, 2; }",
         ["b32"] * 4, three, lambda x, y, z: z + (1 if x < y else 2))
    case("mov packs", "{ .reg .b16 l, h; mov.b32 {l, h}, a; mov.b32 d, {h, l}; }", ["b32"] * 2, [(x,) for x, _ in two],
         lambda x: x >> 16 | x << 16)
    case("mov packs four", "{ .reg .b16 w<4>; mov.b64 {w0, w1, w2, w3}, a; mov.b64 d, {w3, w0, w1, w2}; }", ["b64"] * 2,
         [(x,) for x in integers(64, 10)], lambda x: x >> 48 | x << 16)
    case("loop", "{ .reg .pred r; mov.u32 d, 0; and.b32 a, a, 31; LOOP: add.u32 d, d, b; sub.u32 a, a, 1;"
         " setp.ne.u32 r, a, -1; @r bra LOOP; }", ["b32"] * 3, two, lambda x, y: ((x & 31) + 1) * y)


def conversions():
    ints = [s + b for b in ("8", "16", "32", "64") for s in "us"]
    for a in ints:
        for d in ints:
            if a == d:
                continue
            to, n = bits_of(d), bits_of(a)
            rows = [(x,) for x in integers(n, 6)]
            # Registers have 16 bits at least, and what is narrower is extended in them.
            wide = d if to > 8 else d[0] + "16"
            case(f"cvt.{d}.{a}", f"cvt.{d}.{a} d, a;", [wide, a if n > 8 else a[0] + "16"], rows,
                 lambda x: value(d, value(a, x) & ((1 << to) - 1)))
            low, high = (-(1 << (to - 1)), (1 << (to - 1)) - 1) if d[0] == "s" else (0, (1 << to) - 1)
            if (0 if a[0] == "u" else -(1 << (n - 1))) >= low and ((1 << n) - 1 if a[0] == "u" else (1 << (n - 1)) - 1) <= high:
                continue  # nothing to saturate: no such instruction
            case(f"cvt.sat.{d}.{a}", f"cvt.sat.{d}.{a} d, a;", [wide, a if n > 8 else a[0] + "16"], rows,
                 lambda x: max(low, min(high, value(a, x))))
    for a in ints:
        for d in ("f32", "f64", "f16"):
            for mode in ROUNDS:
                rows = [(x,) for x in integers(bits_of(a), 12)]
                case(f"cvt.{mode}.{d}.{a}", f"cvt.{mode}.{d}.{a} d, a;", [d, a if bits_of(a) > 8 else a[0] + "16"], rows,
                     lambda x: encode(d, Num("num", int(value(a, x) < 0), F(value(a, x))), mode))

    def integral(x, mode):
        n = x.numerator // x.denominator
        rest = x - n
        return n + {"rni": rest > F(1, 2) or (rest == F(1, 2) and n & 1), "rzi": x < 0 and rest > 0, "rmi": 0,
                    "rpi": rest > 0}[mode]
    for a in ("f32", "f64", "f16"):
        for mode in ("rni", "rzi", "rmi", "rpi"):
            for d in ints:
                to = bits_of(d)
                low, high = (-(1 << (to - 1)), (1 << (to - 1)) - 1) if d[0] == "s" else (0, (1 << to) - 1)

                def of(x):
                    x = decode(a, x)
                    if x.kind == "nan":
                        return value(d, 1 << (to - 1)) if a == "f64" or to == 64 else 0
                    if x.kind == "inf":
                        return low if x.sign else high
                    return max(low, min(high, integral(x.value, mode)))
                rows = [(x,) for x in floats(a, 8) if a != "f16" or decode(a, x).kind != "nan"]
                if to > 8:
                    case(f"cvt.{mode}.{d}.{a}", f"cvt.{mode}.{d}.{a} d, a;", [d, a], rows, of)

            def same(x):
                x = decode(a, x)
                if x.kind != "num":
                    return encode(a, x)
                return encode(a, Num("num", x.sign, F(integral(x.value, mode))))
            case(f"cvt.{mode}.{a}.{a}", f"cvt.{mode}.{a}.{a} d, a;", [a, a], [(x,) for x in floats(a, 12)], same)
    for d, a, modes in (("f32", "f64", ROUNDS), ("f16", "f32", ROUNDS[:2]), ("bf16", "f32", ROUNDS[:2]), ("f16", "f64", ROUNDS[:1]),
                        ("tf32", "f32", ("rna",))):
        for mode in modes:
            case(f"cvt.{mode}.{d}.{a}", f"cvt.{mode}.{d}.{a} d, a;", [d, a], [(x,) for x in floats(a, 16)],
                 lambda x: encode(d, decode(a, x), mode))
    for d, a in (("f64", "f32"), ("f32", "f16"), ("f64", "f16")):
        case(f"cvt.{d}.{a}", f"cvt.{d}.{a} d, a;", [d, a], [(x,) for x in floats(a, 16)], lambda x: encode(d, decode(a, x)))
    for d in ("f16", "bf16"):
        case(f"cvt.rn.{d}x2.f32", f"cvt.rn.{d}x2.f32 d, a, b;", ["b32", "f32", "f32"], tuples([floats("f32", 12)] * 2, 12),
             lambda x, y: encode(d, decode("f32", x)) << 16 | encode(d, decode("f32", y)))


def matrices():
    """mma.sync m16n8: thread l has, with g = l / 4 and t = l % 4, word by word, of A rows g, g + 8, g, g + 8 and columns from e t,
    e t, e (t + 4), e (t + 4) on; of B rows from e t and e (t + 4) on, column g; of C rows g, g, g + 8, g + 8 and columns 2 t, 2 t + 1
    in turn."""
    whole_number = lambda t, n: encode(t, Num("num", int(n < 0), F(n)))

    def one(name, k, ta, tb, tc, draw, add_up):
        bits = 32 if ta == "tf32" else bits_of(ta)
        e = 32 // bits
        a, b = [[draw(ta) for _ in range(k)] for _ in range(16)], [[draw(tb) for _ in range(8)] for _ in range(k)]
        c = [[draw(tc) for _ in range(8)] for _ in range(16)]
        d = [[add_up(c[i][j], [(a[i][n], b[n][j]) for n in range(k)]) for j in range(8)] for i in range(16)]
        word = lambda elements: sum((x & ((1 << bits) - 1)) << bits * i for i, x in enumerate(elements))
        out.extend([f"case {name}", f"do mma.sync.aligned.m16n8k{k}.row.col.{tc}.{ta}.{tb}.{tc} {{d0, d1, d2, d3}}, "
                    "{a0, a1, a2, a3}, {b0, b1}, {c0, c1, c2, c3};", "words 4 4 2 4"])
        for lane in range(32):
            g, t = divmod(lane, 4)
            row = [word(a[g + 8 * (r % 2)][e * (t + 4 * (r // 2)) + j] for j in range(e)) for r in range(4)]
            row += [word(b[e * (t + 4 * r) + j][g] for j in range(e)) for r in range(2)]
            place = [(g + 8 * (r // 2), 2 * t + r % 2) for r in range(4)]
            text = lambda words: " ".join(f"{x & 0xffffffff:x}" for x in words)
            out.append(text(row + [c[i][j] for i, j in place]) + " = " + text(d[i][j] for i, j in place))
        out.append("")

    def floats_of(most):
        return lambda t: whole_number(t, random.randint(-most, most))

    def sum_of_floats(ta):
        def of(c, terms):
            x = decode("f32", c)
            for p, q in terms:
                x = add(x, mul(decode(ta, p), decode(ta, q)))
            return encode("f32", x)
        return of
    for t, k, most in (("f16", 16, 900), ("bf16", 16, 250), ("tf32", 8, 1000)):
        for number in range(3):
            one(f"mma.m16n8k{k}.{t} {number}", k, t, t, "f32", floats_of(most), sum_of_floats(t))
        special = lambda u: random.choice(([whole_number(u, n) for n in (0, 1, -1, 2, 0, 0, 0)] * 12 +
                                           [encode(u, Num("inf", 0)), encode(u, Num("inf", 1))]))
        one(f"mma.m16n8k{k}.{t} infinities", k, t, t, "f32", special, sum_of_floats(t))
        tiny = lambda u: whole_number(u, 0) if random.random() < .8 else (1 << 13 if u == "tf32" else 1 if u != "f32" else 0) \
            if random.random() < .5 else whole_number(u, random.choice((1, -2, 4)))
        if t == "f16":  # products of subnormal numbers that f32 has
            one(f"mma.m16n8k{k}.{t} subnormal", k, t, t, "f32", tiny, sum_of_floats(t))
    for ta in ("s8", "u8"):
        for tb in ("s8", "u8"):
            draw = lambda u: random.choice((0, 127, 128, 255, random.randrange(256))) if u != "s32" else \
                random.choice((0, 2**31 - 1, 2**31, random.randrange(2**32)))
            for number in range(2):
                one(f"mma.m16n8k32.{ta}.{tb} {number}", 32, ta, tb, "s32", draw, lambda c, terms: (
                    c + sum(value(ta, p) * value(tb, q) for p, q in terms)))


arithmetic()
whole()
conversions()
matrices()
path = sys.argv[1] if len(sys.argv) > 1 else "tests/data/ptx_cases.txt"
with open(path, "w") as file:
    file.write("\n".join(out))
print(f"{path}: {sum(line.startswith('case') for line in out)} cases, {sum(' = ' in line for line in out)} rows")
