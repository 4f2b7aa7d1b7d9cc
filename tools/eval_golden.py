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

with floating point elements in C's notation, hexadecimal unless they are whole. The cases are in tools/golden, a module for
each file.
"""
import math
from pathlib import Path

import numpy as np

from golden import contract, convert, elementwise, index, movement, reduce
from golden.elements import FLOATS, fit


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


def main():
    folder = Path(__file__).resolve().parent.parent / "tests" / "data"
    g = Golden(folder)
    for name, module in {"elementwise": elementwise, "movement": movement, "reduce": reduce, "contract": contract,
                         "index": index}.items():
        for part in module.PARTS:
            part(g)
        g.write(name)
    convert.conversions(folder)


if __name__ == "__main__":
    main()
