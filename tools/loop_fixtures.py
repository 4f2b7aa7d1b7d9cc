#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes tests/data/onnx/{recurrences,loops,branches}: models whose course is known when they run, with the results of
onnxruntime. Each has several sets of inputs: other lengths, other counts, other branches.

    tools/loop_fixtures.py tests/data/onnx
"""
import os
import sys

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

ort.set_default_logger_severity(3)
random = np.random.default_rng(7)
node = helper.make_node


def value(name, shape, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def floats(*shape):
    return random.standard_normal(shape).astype(np.float32) * np.float32(0.4)


def constant(name, data):
    return numpy_helper.from_array(np.array(data), name)


def save(folder, graph, sets):
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    os.makedirs(folder, exist_ok=True)
    onnx.save(model, f"{folder}/model.onnx")
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(f"{folder}/model.onnx", options)
    for at, feeds in enumerate(sets):
        os.makedirs(f"{folder}/test_data_set_{at}", exist_ok=True)
        results = session.run(None, feeds)
        tensors = [("input", i, feeds[v.name], v.name) for i, v in enumerate(session.get_inputs())]
        tensors += [("output", i, results[i], v.name) for i, v in enumerate(session.get_outputs())]
        for what, i, data, name in tensors:
            with open(f"{folder}/test_data_set_{at}/{what}_{i}.pb", "wb") as file:
                file.write(numpy_helper.from_array(np.asarray(data), name).SerializeToString())


def recurrences(folder):
    """RNN, GRU and LSTM, one behind the other, over a length that is a variable, with lengths of their own."""
    nodes, weights, outputs = [], [], []
    last, width = "x", 6
    for operator, gates, direction, hidden in [("LSTM", 4, "bidirectional", 5), ("GRU", 3, "reverse", 7),
                                               ("RNN", 1, "forward", 4)]:
        both = 2 if direction == "bidirectional" else 1
        name = operator.lower()
        weights += [constant(name + "_w", floats(both, gates * hidden, width)),
                    constant(name + "_r", floats(both, gates * hidden, hidden)),
                    constant(name + "_b", floats(both, 2 * gates * hidden))]
        results = [name + "_y", name + "_h"] + ([name + "_c"] if operator == "LSTM" else [])
        nodes += [node(operator, [last, name + "_w", name + "_r", name + "_b", "lengths"], results, name=name,
                       direction=direction, hidden_size=hidden),
                  node("Transpose", [name + "_y"], [name + "_t"], perm=[0, 2, 1, 3]),
                  node("Reshape", [name + "_t", name + "_shape"], [name + "_z"])]
        weights.append(constant(name + "_shape", [0, 0, both * hidden]))
        outputs += [value(result, None) for result in results]
        last, width = name + "_z", both * hidden
    graph = helper.make_graph(nodes, "recurrences",
                              [value("x", ["time", 3, 6]), value("lengths", [3], TensorProto.INT32)], outputs, weights)
    save(folder, graph, [{"x": floats(time, 3, 6), "lengths": np.array([time, time // 2, 1], np.int32)}
                         for time in (29, 9, 3)])


def loops(folder):
    """A greedy decoder that ends at a token, a count that is computed, a condition alone, a loop with an If and a scan
    in it, a Scan over a variable along other axes, forwards and backwards."""
    words, wide = 24, 8
    nodes, weights = [], []
    decode = helper.make_graph(
        [node("Gather", ["table", "token"], ["row"]), node("Add", ["row", "hidden"], ["sum"]),
         node("Tanh", ["sum"], ["next"]), node("MatMul", ["next", "head"], ["scores"]),
         node("ArgMax", ["scores"], ["best"], axis=1, keepdims=0), node("Equal", ["best", "end"], ["ended"]),
         node("Not", ["ended"], ["running"]), node("Squeeze", ["running"], ["go"]),
         node("Identity", ["best"], ["out"])], "decode",
        [value("i", [], TensorProto.INT64), value("c", [], TensorProto.BOOL), value("token", [1], TensorProto.INT64),
         value("hidden", [1, wide])],
        [value("go", [], TensorProto.BOOL), value("best", [1], TensorProto.INT64), value("next", [1, wide]),
         value("out", [1], TensorProto.INT64)])
    nodes.append(node("Loop", ["most", "", "start", "rest"], ["last", "state", "tokens"], name="decode", body=decode))
    weights += [constant("table", floats(words, wide) * 4), constant("head", floats(wide, words)),
                constant("most", np.int64(40)), constant("rest", np.zeros((1, wide), np.float32))]
    halve = helper.make_graph(
        [node("Mul", ["v", "half"], ["w"]), node("Add", ["w", "start_value"], ["w2"]), node("Identity", ["c"], ["go"])],
        "halve", [value("i", [], TensorProto.INT64), value("c", [], TensorProto.BOOL), value("v", [4])],
        [value("go", [], TensorProto.BOOL), value("w2", [4])])
    nodes += [node("Squeeze", ["start"], ["times"]),
              node("Loop", ["times", "", "start_value"], ["repeated"], name="repeat", body=halve)]
    weights.append(constant("half", np.float32(0.5)))
    shrink = helper.make_graph(
        [node("Mul", ["v", "half"], ["w"]), node("ReduceSum", ["w"], ["s"], keepdims=0),
         node("Greater", ["s", "little"], ["go"])], "shrink",
        [value("i", [], TensorProto.INT64), value("c", [], TensorProto.BOOL), value("v", [4])],
        [value("go", [], TensorProto.BOOL), value("w", [4])])
    nodes += [node("Abs", ["start_value"], ["positive"]),
              node("Loop", ["", "", "positive"], ["shrunk"], name="shrink", body=shrink)]
    weights.append(constant("little", np.float32(1e-3)))
    step = helper.make_graph(
        [node("Add", ["s", "a"], ["t"]), node("Mul", ["t", "b"], ["o"]), node("Identity", ["t"], ["p"])], "step",
        [value("s", [4]), value("a", [4]), value("b", [4])], [value("t", [4]), value("o", [4]), value("p", [4])])
    nodes.append(node("Scan", ["start_value", "a_all", "b_all"], ["scanned", "stacked", "sums"], name="scan", body=step,
                      num_scan_inputs=2, scan_input_axes=[1, 0], scan_input_directions=[0, 1],
                      scan_output_axes=[1, 0], scan_output_directions=[1, 0]))
    small = helper.make_graph([node("Mul", ["v", "half"], ["v_small"])], "small", [], [value("v_small", [4])])
    large = helper.make_graph([node("Add", ["v", "row_i"], ["v_large"])], "large", [], [value("v_large", [4])])
    turn = helper.make_graph(
        [node("Gather", ["b_all", "i"], ["row_i"]), node("ReduceMax", ["v"], ["m"], keepdims=0),
         node("Greater", ["m", "one"], ["big"]),
         node("If", ["big"], ["v2"], name="either", then_branch=small, else_branch=large),
         node("Identity", ["c"], ["go"]), node("Identity", ["v2"], ["kept"])], "turn",
        [value("i", [], TensorProto.INT64), value("c", [], TensorProto.BOOL), value("v", [4])],
        [value("go", [], TensorProto.BOOL), value("v2", [4]), value("kept", [4])])
    nodes += [node("Shape", ["b_all"], ["b_shape"]), node("Gather", ["b_shape", "zero"], ["rows"]),
              node("Loop", ["rows", "", "start_value"], ["turned", "turns"], name="turn", body=turn)]
    weights += [constant("zero", np.int64(0)), constant("one", np.float32(0.7))]
    graph = helper.make_graph(
        nodes, "loops",
        [value("start", [1], TensorProto.INT64), value("end", [1], TensorProto.INT64), value("start_value", [4]),
         value("a_all", [4, "n"]), value("b_all", ["n", 4])],
        [value(name, None, kind) for name, kind in
         [("last", TensorProto.INT64), ("state", TensorProto.FLOAT), ("tokens", TensorProto.INT64),
          ("repeated", TensorProto.FLOAT), ("shrunk", TensorProto.FLOAT), ("scanned", TensorProto.FLOAT),
          ("stacked", TensorProto.FLOAT), ("sums", TensorProto.FLOAT), ("turned", TensorProto.FLOAT),
          ("turns", TensorProto.FLOAT)]], weights)
    save(folder, graph, [{"start": np.array([start]), "end": np.array([end]), "start_value": floats(4),
                          "a_all": floats(4, n), "b_all": floats(n, 4)}
                         for start, end, n in ((3, 5, 33), (0, 99, 20), (11, 7, 1))])


def branches(folder):
    """Two experts, of which the data choose one, and a branch within a branch."""
    weights = [constant("wa", floats(8, 8)), constant("wb", floats(8, 8)), constant("zero", np.float32(0)),
               constant("two", np.float32(2))]
    inner = [helper.make_graph([node(op, ["ha"], [op + "_o"])], op, [], [value(op + "_o", [4, 8])])
             for op in ("Relu", "Tanh")]
    first = helper.make_graph(
        [node("MatMul", ["x", "wa"], ["ha"]), node("ReduceMax", ["ha"], ["top"], keepdims=0),
         node("Greater", ["top", "two"], ["sharp"]),
         node("If", ["sharp"], ["ya"], name="inner", then_branch=inner[0], else_branch=inner[1])],
        "first", [], [value("ya", [4, 8])])
    second = helper.make_graph([node("MatMul", ["x", "wb"], ["hb"]), node("Sigmoid", ["hb"], ["yb"])], "second", [],
                               [value("yb", [4, 8])])
    graph = helper.make_graph(
        [node("ReduceSum", ["x"], ["total"], keepdims=0), node("Greater", ["total", "zero"], ["positive"]),
         node("If", ["positive"], ["y"], name="choose", then_branch=first, else_branch=second)],
        "branches", [value("x", [4, 8])], [value("y", [4, 8])], weights)
    x = np.abs(floats(4, 8))
    save(folder, graph, [{"x": x}, {"x": -x}, {"x": 9 * x}])


if __name__ == "__main__":
    for make in (recurrences, loops, branches):
        make(f"{sys.argv[1]}/{make.__name__}")
