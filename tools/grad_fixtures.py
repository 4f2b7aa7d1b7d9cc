#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes tests/data/grad_torch.txt: gradients as PyTorch's autograd has them, for tests/test_grad_torch.c.

    python3 tools/grad_fixtures.py > tests/data/grad_torch.txt        (needs torch and numpy)

A case is a graph in the text form with one output, then the numbers of its inputs in order, of which the last, `seed`, is
the gradient of the output, and then the gradients of those that are f64 ("-": of integers there is none):

    === name
    graph "case"
    %0: f64[3] = input "x0"
    ...
    --- in
    1 2.5 -3
    --- gradients
    0.5 0 1

Cases that were thought of come first; then each rule has random shapes, until it has 20.

With --train it writes tests/data/train_torch.txt instead, for tests/test_train.c: a small classifier, and a line for each
optimiser with the losses of 20 steps.
"""
import collections
import math
import random
import sys

import torch
import torch.nn.functional as F

torch.manual_seed(12)
D = torch.float64
LEAST = 20  # shapes a rule
cases = collections.Counter()  # graphs in which a rule's operator is


def text(numbers):
    return " ".join(repr(round(v, 12)) if isinstance(v, float) else str(int(v)) for v in numbers) or ""


class Case:
    """A graph and what PyTorch makes of it, side by side."""

    def __init__(self, name):
        self.name, self.lines, self.inputs, self.count, self.rules = name, [], [], 0, set()

    def line(self, tensor, rest):
        dtype = {D: "f64", torch.float32: "f32", torch.int64: "i64", torch.bool: "bool"}[tensor.dtype]
        self.lines.append(f"%{self.count}: {dtype}[{', '.join(map(str, tensor.shape))}] = {rest}")
        tensor.id = self.count
        self.count += 1
        return tensor

    def input(self, tensor):
        tensor = tensor.detach().clone()
        if tensor.dtype == D:
            tensor.requires_grad_()
        self.inputs.append(tensor)
        return self.line(tensor, f'input "x{len(self.inputs) - 1}"')

    def random(self, *shape, steps=1000, low=-1.0, high=1.0):
        """Few steps: ties."""
        return self.input(torch.round((torch.rand(shape, dtype=D) * (high - low) + low) * steps) / steps)

    def numbers(self, *values):
        return self.input(torch.tensor(values, dtype=D))

    def indices(self, low, high, *shape):
        return self.input(torch.randint(low, high, tuple(shape)))

    def constant(self, value):
        return self.line(torch.tensor(float(value), dtype=D), f"constant {{{value}}}")

    def op(self, result, name, operands, attrs=""):
        self.rules.add(name)
        return self.line(result, f"{name}({', '.join(f'%{o.id}' for o in operands)}) {attrs}".rstrip())

    def topk(self, x, values, axis, k, largest):
        """Of its two results the one that is differentiated."""
        self.rules.add("topk")
        dims = list(values.shape)
        self.lines.append(f"%{self.count}: f64{dims}, %{self.count + 1}: i64{dims} = "
                          f"topk(%{x.id}) axis={axis} k={k} largest={int(largest)}")
        values.id = self.count
        self.count += 2
        return values

    def broadcast(self, x, shape):
        return self.op(x.expand(shape), "broadcast", [x], f"dims={list(shape)}")

    def end(self, y, steps=100):
        cases.update(self.rules)
        seed = torch.round((torch.rand(y.shape, dtype=D) * 2 - 1) * steps) / steps
        xs = [x for x in self.inputs if x.requires_grad]
        found = torch.autograd.grad(y, xs, seed, allow_unused=True)
        seed = self.line(seed, 'input "seed"')
        print(f"=== {self.name}")
        print('graph "case"')
        print("\n".join(self.lines))
        print(f'output "y" = %{y.id}')
        print("--- in")
        for x in self.inputs + [seed]:
            print(text(x.detach().reshape(-1).tolist()))
        print("--- gradients")
        found = iter(found)
        for x in self.inputs:
            if not x.requires_grad:
                print("-")
                continue
            g = next(found)
            print(text((torch.zeros_like(x) if g is None else g).reshape(-1).tolist()))


# --- training ------------------------------------------------------------------------------------------

def train():
    """The network and the data of tests/test_train.c, in f32: 20 -> 32 -> 32 -> 5, 16 rows."""
    def made(number, scale, *shape):
        count = math.prod(shape)
        return torch.tensor([math.sin(0.7 * k * k + k + number) * scale for k in range(count)]).reshape(shape)

    optimizers = {
        "sgd": lambda p: torch.optim.SGD(p, 0.1),
        "sgd momentum": lambda p: torch.optim.SGD(p, 0.05, momentum=0.9),
        "sgd nesterov decay": lambda p: torch.optim.SGD(p, 0.05, momentum=0.8, nesterov=True, weight_decay=0.01),
        "sgd clip": lambda p: torch.optim.SGD(p, 0.5),
        "adam": lambda p: torch.optim.Adam(p, 0.01),
        "adam decay": lambda p: torch.optim.Adam(p, 0.01, betas=(0.8, 0.99), eps=1e-6, weight_decay=0.05),
        "adamw": lambda p: torch.optim.AdamW(p, 0.01),
    }
    for name, make in optimizers.items():
        shapes = [(20, 32), (32,), (32, 32), (32,), (32, 5), (5,)]
        ps = [made(i, 0.3, *shape) if len(shape) == 2 else torch.zeros(shape) for i, shape in enumerate(shapes)]
        for p in ps:
            p.requires_grad_()
        x, labels = made(10, 1, 16, 20), torch.tensor([k * k % 5 for k in range(16)])
        optimizer, losses = make(ps), []
        for step in range(20):
            h = torch.relu(x @ ps[0] + ps[1])
            h = torch.relu(h @ ps[2] + ps[3])
            loss = F.cross_entropy(h @ ps[4] + ps[5], labels)
            optimizer.zero_grad()
            loss.backward()
            if "clip" in name:
                torch.nn.utils.clip_grad_norm_(ps, 0.25)
            optimizer.step()
            losses.append(loss.item())
        print(f"{name}: {text(losses)}")


def train_lstm():
    """The network of tests/test_grad_loop.c, in f32: 64 steps of 4 texts in 12 letters, 8 -> LSTM of 16 -> 12; weights as
    ONNX has them, gates in the order i, o, f, c."""
    def made(number, scale, *shape):
        count = math.prod(shape)
        return torch.tensor([math.sin(0.7 * k * k + k + number) * scale for k in range(count)]).reshape(shape)

    def gates(w):
        i, o, f, c = w.chunk(4)
        return torch.cat([i, f, c, o])

    letters = torch.tensor([[(t * t + 5 * b * t + b) % 12 for b in range(4)] for t in range(65)])
    lstm, bias = torch.nn.LSTM(8, 16), made(3, 0.1, 128)
    with torch.no_grad():
        lstm.weight_ih_l0.copy_(gates(made(1, 0.3, 64, 8)))
        lstm.weight_hh_l0.copy_(gates(made(2, 0.3, 64, 16)))
        lstm.bias_ih_l0.copy_(gates(bias[:64]))
        lstm.bias_hh_l0.copy_(gates(bias[64:]))
    table, out = made(0, 0.5, 12, 8).requires_grad_(), made(4, 0.3, 16, 12).requires_grad_()
    optimizer, losses = torch.optim.SGD([table, out, *lstm.parameters()], 0.5), []
    for step in range(20):
        h, _ = lstm(table[letters[:64]])
        loss = F.cross_entropy((h @ out).reshape(-1, 12), letters[1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(f"lstm of 64 steps: {text(losses)}")


if "--train" in sys.argv:
    train()
    train_lstm()
    sys.exit()

# --- elementwise ---------------------------------------------------------------------------------------

UNARY = {"neg": torch.neg, "abs": torch.abs, "sign": torch.sign, "floor": torch.floor, "ceil": torch.ceil,
         "trunc": torch.trunc, "round": torch.round, "sqrt": torch.sqrt, "exp": torch.exp, "log": torch.log,
         "sin": torch.sin, "cos": torch.cos, "tan": torch.tan, "asin": torch.asin, "acos": torch.acos,
         "atan": torch.atan, "sinh": torch.sinh, "cosh": torch.cosh, "tanh": torch.tanh, "asinh": torch.asinh,
         "acosh": torch.acosh, "atanh": torch.atanh, "erf": torch.erf, "sigmoid": torch.sigmoid}
RANGE = {"sqrt": (0.1, 4), "log": (0.1, 4), "asin": (-0.9, 0.9), "acos": (-0.9, 0.9), "acosh": (1.1, 4),
         "atanh": (-0.9, 0.9)}
for name, function in UNARY.items():
    low, high = RANGE.get(name, (-3, 3))
    c = Case(name)
    x = c.random(7, low=low, high=high)
    c.end(c.op(function(x), name, [x]))
for name in ("abs", "sign", "sigmoid", "tanh", "erf", "exp"):  # at 0, and far from it
    c = Case(name + " at edges")
    x = c.numbers(0.0, -0.0, 20.0, -20.0, 1e-9)
    c.end(c.op(UNARY[name](x), name, [x]))

BINARY = {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div, "mod": torch.remainder,
          "rem": torch.fmod, "pow": torch.pow, "min": torch.minimum, "max": torch.maximum}
for name, function in BINARY.items():
    c = Case(name)
    positive = name == "pow"
    a, b = c.random(3, 4, low=0.1 if positive else -2, high=2), c.random(3, 4, low=0.3, high=2)
    c.end(c.op(function(a, b), name, [a, b]))
for name in ("min", "max"):  # equal ones share
    c = Case(name + " with ties")
    a, b = c.random(4, 5, steps=2), c.random(4, 5, steps=2)
    c.end(c.op(BINARY[name](a, b), name, [a, b]))
c = Case("pow at zeros")
a, b = c.numbers(0.0, 0.0, 0.0, 2.0, 3.0), c.numbers(0.0, 1.0, 2.0, 0.0, -1.0)
c.end(c.op(torch.pow(a, b), "pow", [a, b]))
c = Case("relu at 0: the constant has all")
x = c.numbers(-1.0, 0.0, 2.0, -0.0)
zero = c.broadcast(c.constant(0.0), [4])
c.end(c.op(torch.relu(x), "max", [x, zero]))
c = Case("hardtanh at its bends")
x = c.numbers(-2.0, -1.0, 0.0, 1.0, 2.0)
low, high = c.broadcast(c.constant(-1.0), [5]), c.broadcast(c.constant(1.0), [5])
inner = c.op(torch.maximum(x, low), "max", [x, low])
y = F.hardtanh(x)
c.end(c.op(y, "min", [inner, high]))
c = Case("select")
a, b, s = c.random(3, 4), c.random(3, 4), c.random(3, 4)
less = c.op(s < a, "lt", [s, a])
c.end(c.op(torch.where(less, a, b), "select", [less, a, b]))
c = Case("one value as both operands")
x = c.random(5)
y = c.op(x * x, "mul", [x, x])
c.end(c.op(y * x, "mul", [y, x]))

# --- movement ------------------------------------------------------------------------------------------

c = Case("reshape")
x = c.random(2, 3, 4)
c.end(c.op(x.reshape(6, 4), "reshape", [x], "dims=[6, 4]"))
c = Case("transpose")
x = c.random(2, 3, 4)
c.end(c.op(x.permute(2, 0, 1), "transpose", [x], "perm=[2, 0, 1]"))
for shape, to in (((), (3,)), ((1,), (3,)), ((3,), (2, 3)), ((2, 1, 3), (4, 2, 5, 3)), ((1, 1), (2, 3)), ((2, 1), (2, 0))):
    c = Case(f"broadcast {shape} to {to}")
    c.end(c.broadcast(c.random(*shape), to))
c = Case("slice")
x = c.random(7, 6)
c.end(c.op(x[1:6:2, 5:6].flip(0), "slice", [x], "starts=[5, 5] steps=[-2, 1] dims=[3, 1]"))
c = Case("pad")
x = c.random(3, 2)
v = c.random()
gaps = torch.stack([x[0], v.expand(2), x[1], v.expand(2), x[2]])
y = torch.cat([v.expand(1, 2), gaps, v.expand(2, 2)])
c.end(c.op(torch.cat([y, v.expand(8, 1)], 1), "pad", [x, v], "before=[1, 0] after=[2, 1] interior=[1, 0]"))
c = Case("concat")
a, b = c.random(2, 3), c.random(2, 2)
c.end(c.op(torch.cat([a, b, a], 1), "concat", [a, b, a], "axis=1"))

# --- reductions ----------------------------------------------------------------------------------------

for axes in ([0], [1], [0, 2], [0, 1, 2]):
    c = Case(f"reduce_sum {axes}")
    x = c.random(2, 3, 4)
    c.end(c.op(x.sum(axes), "reduce_sum", [x], f"axes={axes}"))
    for name, function in (("reduce_max", torch.amax), ("reduce_min", torch.amin)):
        for steps in (1000, 1):
            c = Case(f"{name} {axes}" + (" with ties" if steps == 1 else ""))
            x = c.random(2, 3, 4, steps=steps)
            c.end(c.op(function(x, axes), name, [x], f"axes={axes}"))
for values in ((2.0, 3.0, -4.0), (0.0, 3.0, -4.0), (0.0, 0.0, 5.0), (7.0,), ()):
    c = Case(f"reduce_prod of {list(values)}")
    x = c.numbers(*values)
    c.end(c.op(x.prod(0), "reduce_prod", [x], "axes=[0]"))
c = Case("reduce_prod of rows")
x = c.random(3, 4, steps=3)
c.end(c.op(x.prod(1), "reduce_prod", [x], "axes=[1]"))
c = Case("reduce_sum of nothing")
x = c.random(2, 0)
c.end(c.op(x.sum(1), "reduce_sum", [x], "axes=[1]"))
c = Case("cumsum")
x = c.random(3, 4)
c.end(c.op(x.cumsum(1), "cumsum", [x], "axis=1 exclusive=0 reverse=0"))
c = Case("cumsum from the end")
x = c.random(3, 4)
c.end(c.op(x.flip(0).cumsum(0).flip(0), "cumsum", [x], "axis=0 exclusive=0 reverse=1"))
for k, largest in ((1, 1), (3, 0), (3, 1)):
    c = Case(f"topk {k} {largest}")
    x = c.random(2, 5)
    y, at = x.topk(k, 1, bool(largest))
    c.end(c.topk(x, y, 1, k, largest))

# --- contractions and windows --------------------------------------------------------------------------

for batch, m, k, n in (([], 2, 3, 4), ([2], 3, 2, 2), ([2, 3], 1, 2, 1), ([], 2, 0, 3)):
    c = Case(f"matmul {batch} {m} {k} {n}")
    a, b = c.random(*batch, m, k), c.random(*batch, k, n)
    c.end(c.op(a @ b, "matmul", [a, b], "b_block=0 n=0"))

CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
for space, size, kernel, stride, dilation, pad, groups, ins, outs in (
        (1, [9], [3], [1], [1], [0], 1, 2, 3), (1, [9], [3], [2], [1], [1], 1, 2, 3), (1, [10], [2], [3], [2], [0], 2, 2, 4),
        (2, [5, 5], [3, 3], [1, 1], [1, 1], [1, 1], 1, 2, 2), (2, [6, 5], [3, 2], [2, 1], [1, 1], [1, 0], 1, 2, 3),
        (2, [6, 6], [3, 3], [2, 2], [1, 1], [1, 1], 4, 4, 4), (2, [7, 6], [2, 3], [2, 3], [3, 1], [2, 1], 2, 4, 6),
        (2, [5, 5], [1, 1], [1, 1], [1, 1], [0, 0], 1, 3, 2), (2, [5, 6], [1, 1], [2, 2], [1, 1], [0, 0], 1, 3, 2),
        (2, [4, 4], [2, 2], [1, 1], [1, 1], [3, 3], 1, 1, 2), (2, [6, 6], [3, 3], [1, 1], [2, 2], [2, 2], 3, 3, 6),
        (3, [3, 4, 3], [2, 2, 2], [1, 2, 1], [1, 1, 2], [1, 1, 1], 1, 2, 2), (3, [3, 3, 3], [2, 1, 3], [1, 1, 1], [1, 1, 1], [0, 0, 1], 2, 2, 2)):
    c = Case(f"conv{space}d {size} kernel {kernel} stride {stride} dilation {dilation} pad {pad} groups {groups}")
    x, w = c.random(2, ins, *size, steps=100), c.random(outs, ins // groups, *kernel, steps=100)
    y = CONV[space](x, w, None, stride, pad, dilation, groups)
    c.end(c.op(y, "conv", [x, w], f"strides={stride} dilations={dilation} before={pad} after={pad} groups={groups} "
                                  "x_block=0 y_block=0 w_block=0 o=0"))

for kernel, stride, pad, dilation in (([2, 2], [2, 2], [0, 0], [1, 1]), ([3, 3], [2, 2], [1, 1], [1, 1]), ([3, 2], [1, 1], [1, 1], [1, 1]),
                                      ([2, 3], [2, 1], [0, 1], [2, 1]), ([5, 5], [1, 1], [0, 0], [1, 1])):
    for steps in (1000, 1):
        c = Case(f"pool_max {kernel} stride {stride} pad {pad} dilation {dilation}" + (" with ties" if steps == 1 else ""))
        x = c.random(1, 2, 5, 6, steps=steps)
        y = F.max_pool2d(x, kernel, stride, pad, dilation)
        c.end(c.op(y, "pool_max", [x], f"axes=[2, 3] kernel={kernel} strides={stride} dilations={dilation} before={pad} after={pad}"))
    if dilation == [1, 1]:
        c = Case(f"pool_sum {kernel} stride {stride} pad {pad}")
        x = c.random(1, 2, 5, 6)
        y = F.avg_pool2d(x, kernel, stride, pad, divisor_override=1)
        c.end(c.op(y, "pool_sum", [x], f"axes=[2, 3] kernel={kernel} strides={stride} dilations=[1, 1] before={pad} after={pad}"))

# --- indices -------------------------------------------------------------------------------------------

for axis, shape in ((0, (4,)), (1, (2, 3)), (2, ()), (0, (0,))):
    c = Case(f"gather {axis} {shape}")
    x, at = c.random(5, 4, 3), c.indices(0, 3, *shape)
    y = x.index_select(axis, at.reshape(-1)).reshape(list(x.shape[:axis]) + list(shape) + list(x.shape[axis + 1:]))
    c.end(c.op(y, "gather", [x, at], f"axis={axis}"))
for axis in (0, 1):
    c = Case(f"gather_elements {axis}")
    x, at = c.random(3, 4), c.indices(0, 3, 3, 4)
    c.end(c.op(x.gather(axis, at), "gather_elements", [x, at], f"axis={axis}"))
    c = Case(f"scatter_elements {axis} add")
    x, at, u = c.random(3, 4), c.indices(0, 3, 3, 4), c.random(3, 4)
    c.end(c.op(x.scatter_add(axis, at, u), "scatter_elements", [x, at, u], f"axis={axis} mode=1"))
    for mode, reduce in ((3, "amin"), (4, "amax")):
        c = Case(f"scatter_elements {axis} {reduce} with ties")
        x, at, u = c.random(3, 4, steps=2), c.indices(0, 3, 3, 4), c.random(3, 4, steps=2)
        c.end(c.op(x.scatter_reduce(axis, at, u, reduce), "scatter_elements", [x, at, u], f"axis={axis} mode={mode}"))
c = Case("scatter_elements set, each place once")
x, u = c.random(4, 3), c.random(2, 3)
at = c.input(torch.tensor([[0, 3, 1], [2, 0, 2]]))
c.end(c.op(x.scatter(0, at, u), "scatter_elements", [x, at, u], "axis=0 mode=0"))
c = Case("gather_nd")
x, at = c.random(3, 4, 2), c.input(torch.tensor([[0, 1], [2, 3], [0, 1]]))
c.end(c.op(x[at[:, 0], at[:, 1]], "gather_nd", [x, at], "batch=0"))
c = Case("scatter_nd add")
x, at, u = c.random(3, 4), c.input(torch.tensor([[0], [2], [0]])), c.random(3, 4)
c.end(c.op(x.index_put((at[:, 0],), u, accumulate=True), "scatter_nd", [x, at, u], "mode=1"))

# --- compositions --------------------------------------------------------------------------------------

c = Case("softmax")
x = c.random(3, 4)
largest = c.op(x.amax(1), "reduce_max", [x], "axes=[1]")
column = c.op(largest.reshape(3, 1), "reshape", [largest], "dims=[3, 1]")
e = c.op(torch.exp(x), "sub", [x, c.broadcast(column, [3, 4])])
e = c.op(e, "exp", [e])
total = c.op(e.sum(1), "reduce_sum", [e], "axes=[1]")
column = c.op(total.reshape(3, 1), "reshape", [total], "dims=[3, 1]")
whole = c.broadcast(column, [3, 4])
c.end(c.op(torch.softmax(x, 1), "div", [e, whole]))

# --- random shapes, until each rule has enough -----------------------------------------------------------

draw = random.Random(12)


def shape(least=0, most=3):
    """Of so many dims, seldom one that is empty."""
    return [draw.choice((1, 1, 2, 2, 3, 3, 4, 5, 7)) if draw.random() > 0.02 else 0 for _ in range(draw.randint(least, most))]


def axes_of(rank):
    return sorted(draw.sample(range(rank), draw.randint(1, rank)))


def more(rule):
    """The cases that the rule needs yet."""
    while cases[rule] < LEAST:
        c = Case(f"{rule} {cases[rule]}")
        yield c


def nonempty(least=1, most=3):
    return [max(n, 1) for n in shape(least, most)]


for name, function in UNARY.items():
    for c in more(name):
        low, high = RANGE.get(name, (-3, 3))
        x = c.random(*shape(), low=low, high=high)
        c.end(c.op(function(x), name, [x]))
for name, function in BINARY.items():
    for c in more(name):
        to, steps = shape(), draw.choice((1000, 1000, 3)) if name in ("min", "max") else 1000
        a = c.random(*to, low=0.1 if name == "pow" else -2, high=2, steps=steps)
        b = c.random(*to, low=0.3, high=2, steps=steps)
        c.end(c.op(function(a, b), name, [a, b]))
for c in more("select"):
    to = shape()
    a, b, s = c.random(*to), c.random(*to), c.random(*to)
    less = c.op(s < a, "lt", [s, a])
    c.end(c.op(torch.where(less, a, b), "select", [less, a, b]))
for c in more("cast"):
    x = c.random(*shape())
    half = c.op(x.to(torch.float32), "cast", [x], "dtype=f32")
    c.end(c.op(half.to(D), "cast", [half], "dtype=f64"), steps=64)  # f32 has them all
for c in more("reshape"):
    to = shape()
    x, flat = c.random(*to), draw.choice((True, False))
    dims = [math.prod(to)] if flat else to[::-1]
    c.end(c.op(x.reshape(dims), "reshape", [x], f"dims={dims}"))
for c in more("transpose"):
    to = shape(1, 4)
    perm = draw.sample(range(len(to)), len(to))
    x = c.random(*to)
    c.end(c.op(x.permute(perm), "transpose", [x], f"perm={perm}"))
for c in more("broadcast"):
    to = shape(1, 3)
    kept = to[draw.randint(0, len(to)):]
    c.end(c.broadcast(c.random(*(1 if draw.random() < 0.5 else n for n in kept)), to))
for c in more("slice"):
    to = nonempty()
    x, at, starts, steps, dims = c.random(*to), [], [], [], []
    for n in to:
        step, count = draw.randint(1, 3), draw.randint(1, n)
        count = min(count, (n - 1) // step + 1)
        first = draw.randint(0, n - 1 - (count - 1) * step)
        places = list(range(first, first + count * step, step))
        if draw.random() < 0.5:
            places, step = places[::-1], -step
        at.append(torch.tensor(places)), starts.append(places[0]), steps.append(step), dims.append(count)
    y = x
    for axis, places in enumerate(at):
        y = y.index_select(axis, places)
    c.end(c.op(y, "slice", [x], f"starts={starts} steps={steps} dims={dims}"))
for c in more("pad"):
    to = nonempty()
    before, after, interior = ([draw.randint(0, 2) for _ in to] for _ in range(3))
    x, v = c.random(*to), c.random()
    y, places = x, [torch.arange(n) * (gap + 1) + b for n, gap, b in zip(to, interior, before)]
    whole = [b + n + (n - 1) * gap + a for n, gap, b, a in zip(to, interior, before, after)]
    places = torch.meshgrid(*places, indexing="ij")
    c.end(c.op(v.expand(whole).index_put(places, x), "pad", [x, v], f"before={before} after={after} interior={interior}"))
for c in more("concat"):
    to = nonempty()
    axis = draw.randrange(len(to))
    parts = [c.random(*to[:axis], draw.randint(0, 3), *to[axis + 1:]) for _ in range(draw.randint(1, 3))]
    c.end(c.op(torch.cat(parts, axis), "concat", parts, f"axis={axis}"))

for name, function in (("reduce_sum", torch.sum), ("reduce_max", torch.amax), ("reduce_min", torch.amin)):
    for c in more(name):
        to = nonempty()
        x, axes = c.random(*to, steps=draw.choice((1000, 2))), axes_of(len(to))
        c.end(c.op(function(x, axes), name, [x], f"axes={axes}"))
for c in more("reduce_prod"):
    to = nonempty()
    x, axis = c.random(*to, steps=draw.choice((1000, 2))), draw.randrange(len(to))
    c.end(c.op(x.prod(axis), "reduce_prod", [x], f"axes=[{axis}]"))
for c in more("cumsum"):
    to = nonempty()
    x, axis, back, own = c.random(*to), draw.randrange(len(to)), draw.choice((0, 1)), draw.choice((0, 1))
    y = x.flip(axis) if back else x
    y = y.cumsum(axis) - y if own else y.cumsum(axis)
    c.end(c.op(y.flip(axis) if back else y, "cumsum", [x], f"axis={axis} exclusive={own} reverse={back}"))
for c in more("topk"):
    to = nonempty()
    x, axis, largest = c.random(*to), draw.randrange(len(to)), draw.random() < 0.5
    k = draw.randint(1, to[axis])
    c.end(c.topk(x, x.topk(k, axis, largest)[0], axis, k, largest))

for c in more("matmul"):
    batch, (m, k, n) = shape(0, 2), (draw.randint(1, 5) for _ in range(3))
    a, b = c.random(*batch, m, k, steps=100), c.random(*batch, k, n, steps=100)
    c.end(c.op(a @ b, "matmul", [a, b], "b_block=0 n=0"))
for c in more("conv"):
    space = draw.choice((1, 2, 2))
    kernel, stride, dilation, pad = ([draw.randint(low, high) for _ in range(space)] for low, high in ((1, 3), (1, 3), (1, 2), (0, 2)))
    size = [draw.randint(1, 4) + (k - 1) * d for k, d in zip(kernel, dilation)]
    groups, per, out = draw.choice((1, 1, 2, 3)), draw.randint(1, 2), draw.randint(1, 2)
    x, w = c.random(1, groups * per, *size, steps=100), c.random(groups * out, per, *kernel, steps=100)
    y = CONV[space](x, w, None, stride, pad, dilation, groups)
    c.end(c.op(y, "conv", [x, w], f"strides={stride} dilations={dilation} before={pad} after={pad} groups={groups} "
                                  "x_block=0 y_block=0 w_block=0 o=0"))
for name in ("pool_max", "pool_sum"):
    for c in more(name):
        kernel, stride = [draw.randint(2, 3) for _ in range(2)], [draw.randint(1, 3) for _ in range(2)]
        pad = [draw.randint(0, k // 2) for k in kernel]
        x = c.random(1, draw.randint(1, 2), *(k + draw.randint(0, 3) for k in kernel), steps=draw.choice((1000, 2)))
        y = F.max_pool2d(x, kernel, stride, pad) if name == "pool_max" else F.avg_pool2d(x, kernel, stride, pad, divisor_override=1)
        c.end(c.op(y, name, [x], f"axes=[2, 3] kernel={kernel} strides={stride} dilations=[1, 1] before={pad} after={pad}"))

for c in more("gather"):
    to, picked = nonempty(), shape(0, 2)
    axis = draw.randrange(len(to))
    x, at = c.random(*to), c.indices(0, to[axis], *picked)
    y = x.index_select(axis, at.reshape(-1)).reshape(to[:axis] + picked + to[axis + 1:])
    c.end(c.op(y, "gather", [x, at], f"axis={axis}"))
for name in ("gather_elements", "scatter_elements"):
    for c in more(name):
        to = nonempty()
        axis = draw.randrange(len(to))
        few = to[:axis] + [draw.randint(1, to[axis] + 2)] + to[axis + 1:]
        x, at = c.random(*to), c.indices(0, to[axis], *few)
        if name == "gather_elements":
            c.end(c.op(x.gather(axis, at), name, [x, at], f"axis={axis}"))
        else:
            u = c.random(*few)
            c.end(c.op(x.scatter_add(axis, at, u), name, [x, at, u], f"axis={axis} mode=1"))
for name in ("gather_nd", "scatter_nd"):
    for c in more(name):
        to = nonempty()
        rows, deep = draw.randint(1, 4), draw.randint(1, len(to))
        x = c.random(*to)
        at = c.input(torch.stack([torch.randint(0, n, (rows,)) for n in to[:deep]], 1))
        places = tuple(at[:, d] for d in range(deep))
        if name == "gather_nd":
            c.end(c.op(x[places], name, [x, at], "batch=0"))
        else:
            u = c.random(rows, *to[deep:])
            c.end(c.op(x.index_put(places, u, accumulate=True), name, [x, at, u], "mode=1"))


# --- loops: PyTorch's recurrent networks and loops of Python, as loops of the graph ------------------------------

class Loop(Case):
    """What a loop computes has no tensor of its own here: its nodes are shapes."""

    Node = collections.namedtuple("Node", "id shape dtype")

    def raw(self, shape, rest, dtype="f64"):
        shape = list(shape)
        self.lines.append(f"%{self.count}: {dtype}[{', '.join(map(str, shape))}] = {rest}")
        self.count += 1
        return self.Node(self.count - 1, shape, dtype)

    def argument(self, shape, dtype="f64"):
        return self.raw(shape, f"argument() dtype={dtype} dims={list(shape)}", dtype)

    def node(self, name, *operands, attrs="", shape=None, dtype=None):
        """Of the first operand's type, or so; operands of fewer dims are broadcast."""
        shape, dtype = list(operands[0].shape) if shape is None else list(shape), dtype or operands[-1].dtype
        if not attrs:
            operands = [self.raw(shape, f"broadcast(%{o.id}) dims={shape}", o.dtype) if list(o.shape) != shape else o
                        for o in operands]
        return self.raw(shape, f"{name}({', '.join(f'%{o.id}' for o in operands)}) {attrs}".rstrip(), dtype)

    def known(self, tensor):
        return self.Node(tensor.id, list(tensor.shape), {D: "f64", torch.int64: "i64"}[tensor.dtype])

    def matmul(self, a, b):
        return self.node("matmul", a, b, attrs="b_block=0 n=0", shape=[a.shape[0], b.shape[1]])

    def columns(self, x, start, count):
        return self.node("slice", x, attrs=f"starts=[0, {start}] steps=[1, 1] dims=[{x.shape[0]}, {count}]",
                         shape=[x.shape[0], count])

    def loop(self, trips, arguments, init, xs, following, ys, backward=0, go=None):
        """`arguments` without the iteration's number, which is first; go: whether to begin, and to go on."""
        until = go is not None
        results = [self.Node(self.count + until + k, x.shape, x.dtype) for k, x in enumerate(init)]
        results += [self.Node(self.count + until + len(init) + k, [trips, *y.shape], y.dtype) for k, y in enumerate(ys)]
        operands = [*arguments, *([go[0]] if until else []), *init, *xs, *([go[1]] if until else []), *following, *ys]
        counted = f"%{self.count}: i64[], " if until else ""
        self.lines.append(counted + ", ".join(f"%{r.id}: {r.dtype}[{', '.join(map(str, r.shape))}]" for r in results) +
                          f" = loop({', '.join(f'%{o.id}' for o in operands)}) trips={trips} carried={len(init)} "
                          f"scanned={len(xs)} given=0 until={int(until)} backward={backward} body=0")
        self.count += len(results) + until
        self.rules.add("loop")
        return results


def recurrent(kind, steps, batch, ins, hidden, backward=False, lengths=None, relu=False):
    """A layer of PyTorch's with weights [gates * hidden, ...]: its sequence, and its last state behind it."""
    number = {"lstm": 4, "gru": 3, "rnn": 1}[kind] * hidden
    c = Loop(f"{kind} of {steps} steps{' backward' * backward}{' with lengths' * bool(lengths)}")
    x, h0 = c.random(steps, batch, ins), c.random(batch, hidden)
    state = [h0] + ([c.random(batch, hidden)] if kind == "lstm" else [])
    weights = [c.random(number, ins), c.random(number, hidden), c.random(number), c.random(number)]
    layer = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU, "rnn": torch.nn.RNN}[kind]
    layer = layer(ins, hidden, dtype=D, **({"nonlinearity": "relu"} if relu else {}))
    names = ["weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"]
    lens = c.input(torch.tensor(lengths)) if lengths else None
    first = tuple(s[None] for s in state) if kind == "lstm" else h0[None]
    given = x.flip(0) if backward else x
    if lengths:
        given = torch.nn.utils.rnn.pack_padded_sequence(given, lens, enforce_sorted=False)
    y, last = torch.func.functional_call(layer, dict(zip(names, weights)), (given, first))
    if lengths:
        y = torch.nn.utils.rnn.pad_packed_sequence(y, total_length=steps)[0]
    if backward:
        y = y.flip(0)
    last = last if kind == "lstm" else (last,)

    turned = [c.raw(reversed(w.shape), f"transpose(%{w.id}) perm=[1, 0]") for w in weights[:2]]
    bias = [c.known(w) for w in weights[2:]]
    i = c.argument([], "i64")
    before, now = [c.argument([batch, hidden]) for _ in state], c.argument([batch, ins])
    from_x = c.node("add", c.matmul(now, turned[0]), bias[0])
    from_h = c.node("add", c.matmul(before[0], turned[1]), bias[1])
    part = [(c.columns(from_x, k * hidden, hidden), c.columns(from_h, k * hidden, hidden)) for k in range(number // hidden)]
    if kind == "lstm":
        z = [c.node("add", a, b) for a, b in part]
        z = [c.node(f, v) for f, v in zip(("sigmoid", "sigmoid", "tanh", "sigmoid"), z)]
        cell = c.node("add", c.node("mul", z[1], before[1]), c.node("mul", z[0], z[2]))
        after = [c.node("mul", z[3], c.node("tanh", cell)), cell]
    elif kind == "gru":
        r, z = (c.node("sigmoid", c.node("add", *part[k])) for k in range(2))
        n = c.node("tanh", c.node("add", part[2][0], c.node("mul", r, part[2][1])))
        after = [c.node("add", n, c.node("mul", z, c.node("sub", before[0], n)))]
    else:
        v = c.node("add", *part[0])
        zero = c.constant(0)
        after = [c.node("max", v, c.known(zero)) if relu else c.node("tanh", v)]
    out = after[0]
    if lengths:
        many = c.raw([batch, hidden], f"broadcast(%{c.raw([batch, 1], f'reshape(%{lens.id}) dims={[batch, 1]}', 'i64').id}) "
                     f"dims={[batch, hidden]}", "i64")
        alive = c.node("lt", c.raw(many.shape, f"broadcast(%{i.id}) dims={many.shape}", "i64"), many, dtype="bool")
        out = c.node("select", alive, after[0], c.known(c.constant(0)))
        after = [c.node("select", alive, a, b) for a, b in zip(after, before)]
    results = c.loop(steps, [i, *before, now], [c.known(s) for s in state], [c.known(x)], after, [out], backward * 3)
    whole = c.node("concat", results[-1], *[c.raw([1, *r.shape], f"reshape(%{r.id}) dims={[1, *r.shape]}") for r in results[:-1]],
                   attrs="axis=0", shape=[steps + len(state), batch, hidden])
    found = torch.cat([y, *last])
    found.id = whole.id
    c.end(found)


for kind, steps, batch, ins, hidden, backward, lengths in (
        ("lstm", 9, 2, 3, 2, False, None), ("lstm", 1, 1, 2, 3, False, None), ("lstm", 12, 1, 1, 4, True, None),
        ("lstm", 5, 3, 2, 2, False, [5, 1, 3]), ("lstm", 10, 2, 1, 3, False, [2, 7]), ("lstm", 4, 3, 4, 3, True, None),
        ("gru", 9, 2, 3, 2, False, None), ("gru", 3, 1, 2, 4, True, None), ("gru", 5, 3, 2, 2, False, [1, 4, 5]),
        ("gru", 17, 1, 1, 2, False, None), ("rnn", 9, 2, 3, 2, False, None), ("rnn", 6, 1, 4, 3, True, None),
        ("rnn", 5, 2, 2, 3, False, [4, 2])):
    recurrent(kind, steps, batch, ins, hidden, backward, lengths)
recurrent("rnn", 7, 2, 3, 3, relu=True)

for backward in range(4):  # Scan: x sliced, y stacked, from either end
    c = Loop(f"scan {backward}")
    x, w, first = c.random(6, 3), c.random(3), c.random(3)
    i, s, now = c.argument([], "i64"), c.argument([3]), c.argument([3])
    after = c.node("sin", c.node("add", c.node("mul", s, c.known(w)), now))
    results = c.loop(6, [i, s, now], [c.known(first)], [c.known(x)], [after], [c.node("mul", after, s)], backward)
    t, ys = first, []
    for row in x.flip(0) if backward & 1 else x:
        t, old = torch.sin(t * w + row), t
        ys.append(t * old)
    y = torch.cat([torch.stack(ys[::-1] if backward & 2 else ys), t[None]])
    last = c.raw([1, 3], f"reshape(%{results[0].id}) dims=[1, 3]")
    y.id = c.node("concat", results[1], last, attrs="axis=0", shape=[7, 3]).id
    c.end(y)

for limit in (0.5, 3, 1000, -1):  # Loop: until a sum is large enough, which may be at once, or never
    c = Loop(f"until {limit}")
    x, s0 = c.random(8, 2, low=0.2, high=1), c.random(2, low=0.5, high=1)
    bound = c.known(c.constant(limit))
    go = c.raw([], f"lt(%{c.known(c.constant(0)).id}, %{bound.id})", "bool")
    i, s, now = c.argument([], "i64"), c.argument([2]), c.argument([2])
    after = c.node("add", c.node("mul", s, now), c.node("exp", now))
    total = c.raw([], f"reduce_sum(%{after.id}) axes=[0]")
    results = c.loop(8, [i, s, now], [c.known(s0)], [c.known(x)], [after], [c.node("mul", after, after)], 1,
                     (go, c.raw([], f"lt(%{total.id}, %{bound.id})", "bool")))
    t, ys, on = s0, [], limit > 0
    for row in x.flip(0):
        if on:
            t = t * row + torch.exp(row)
            on = t.sum().item() < limit
            ys.append(t * t)
    ys += [torch.zeros(2, dtype=D)] * (8 - len(ys))
    last = c.raw([1, 2], f"reshape(%{results[0].id}) dims=[1, 2]")
    y = torch.cat([torch.stack(ys), t[None]])
    y.id = c.node("concat", results[1], last, attrs="axis=0", shape=[9, 2]).id
    c.end(y)

for trips in (3, 0):  # a loop in a loop, over a value of the outer one and a weight
    c = Loop(f"nested {trips}")
    x, w, s0 = c.random(trips, 2), c.random(4, 2), c.random(2)
    i, s, now = c.argument([], "i64"), c.argument([2]), c.argument([2])
    j, inner, row = c.argument([], "i64"), c.argument([2]), c.argument([2])
    grown = c.node("tanh", c.node("add", c.node("mul", inner, row), c.node("mul", now, s)))
    end, rows = c.loop(4, [j, inner, row], [s], [c.known(w)], [grown], [c.node("mul", grown, now)])
    total = c.raw([2], f"reduce_sum(%{rows.id}) axes=[0]")
    results = c.loop(trips, [i, s, now], [c.known(s0)], [c.known(x)], [end], [total])
    t, ys = s0, []
    for line in x:
        start, inside = t, []
        for r in w:
            t = torch.tanh(t * r + line * start)
            inside.append(t * line)
        ys.append(torch.stack(inside).sum(0))
    last = c.raw([1, 2], f"reshape(%{results[0].id}) dims=[1, 2]")
    y = torch.cat([*[v[None] for v in ys], t[None]])
    y.id = c.node("concat", results[1], last, attrs="axis=0", shape=[trips + 1, 2]).id
    c.end(y)
