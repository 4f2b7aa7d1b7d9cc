# SPDX-License-Identifier: MIT
"""Cases of eval_movement.txt: elements that change places, are repeated, cut out, joined, surrounded or counted."""
import numpy as np

from .elements import ALL, FLOATS, INTS, arr, whole


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


PARTS = (movement,)
