#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Trains examples/digits with PyTorch, on the same examples in the same order as `ashlar train --hold-out 0.2` takes,
and prints for each of three epochs the mean loss and that of the examples held out; tests/test_cli_train.c has them.

    tools/digits_torch.py

Needs torch and onnx.
"""
import pathlib

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch.nn import functional as F

BATCH, SEED, MASK = 32, 1, (1 << 64) - 1


def shuffle(order, seed):
    """As cli/train_data.c has it."""
    state = (seed + 1) * 0x9E3779B97F4A7C15 & MASK
    for i in range(len(order), 1, -1):
        state ^= state >> 12
        state ^= state << 25 & MASK
        state ^= state >> 27
        k = (state * 2685821657736338717 & MASK) >> 32
        k %= i
        order[i - 1], order[k] = order[k], order[i - 1]
    return order


def main():
    folder = pathlib.Path(__file__).resolve().parent.parent / "examples" / "digits"
    data = np.load(folder / "digits.npz")
    x = torch.tensor(data["images"].astype(np.float32)) / 16
    y = torch.tensor(data["labels"].astype(np.int64))
    weights = {t.name: torch.tensor(numpy_helper.to_array(t).copy(), requires_grad=True)
               for t in onnx.load(folder / "digits.onnx").graph.initializer}

    def loss_of(rows):
        w = weights
        h = F.relu(F.conv2d(x[rows], w["conv1.weight"], w["conv1.bias"], padding=1))
        h = F.relu(F.conv2d(h, w["conv2.weight"], w["conv2.bias"], padding=1))
        h = F.max_pool2d(h, 2).flatten(1)
        h = F.relu(h @ w["hidden.weight"] + w["hidden.bias"])
        return F.cross_entropy(h @ w["out.weight"] + w["out.bias"], y[rows])

    order = shuffle(list(range(len(x))), SEED)
    held = int(0.2 * len(x) + 0.5)
    optimizer = torch.optim.AdamW(weights.values(), lr=1e-3, weight_decay=0)
    for epoch in range(3):
        rows = shuffle(sorted(order[held:]), SEED << 32 | epoch + 1)
        losses = []
        for first in range(0, len(rows) - BATCH + 1, BATCH):
            optimizer.zero_grad()
            loss = loss_of(rows[first:first + BATCH])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        with torch.no_grad():
            print(f"{np.mean(losses):.9g} {loss_of(order[:held]).item():.9g}")


main()
