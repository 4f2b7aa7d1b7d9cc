#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes tests/data/onnx/{recurrences,loops,branches,pasted,keypoints,speech,
computed,in_bodies,backwards,multiples,placeholders,grown,uneven,survivors,counted,cropped,filled,scripted}: models whose course is
known when they run, with the results of onnxruntime. Each has several sets of inputs: other lengths, other counts, other branches.

    tools/loop_fixtures.py tests/data [NAME...]
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


def begin(seed):
    """From here on other random numbers, whatever was made before."""
    global random
    random = np.random.default_rng(seed)


def value(name, shape, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def floats(*shape):
    return random.standard_normal(shape).astype(np.float32) * np.float32(0.4)


def constant(name, data):
    return numpy_helper.from_array(np.array(data), name)


def save(folder, graph, sets, opset=17):
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
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


def pasted(folder):
    """Patches that are resized to boxes and pasted into images of zeros, cut at their edges, as torchvision does it
    with masks: sizes that the data say, in a loop that appends to a list; and a list of two rows an iteration."""
    height, width = 13, 17
    nodes, weights, inner = [], [], []
    for name, number in (("zero", 0), ("one", 1), ("two", 2), ("three", 3), ("height", height), ("width", width)):
        weights += [constant(name, np.int64(number)), constant(name + "s", np.array([number]))]
    weights += [constant("most", np.array([2**63 - 1])), constant("empty", np.zeros((0, height, width), np.float32)),
                constant("none", np.zeros((0, 4), np.int64)), constant("first", np.array([1, 1]))]
    for edge in ("zero", "one", "two", "three"):
        inner += [node("Gather", ["box", edge], ["at_" + edge]), node("Unsqueeze", ["at_" + edge, "zeros"], ["list_" + edge])]
    inner = [node("Gather", ["boxes", "i"], ["box"]), node("Gather", ["patches", "i"], ["patch"])] + inner
    for low, high, size, side in (("zero", "two", "widths", "w"), ("one", "three", "heights", "h")):
        inner += [node("Sub", ["list_" + high, "list_" + low], [side + "_less"]), node("Add", [side + "_less", "ones"], [side]),
                  node("Max", [side, "ones"], [side + "_size"]), node("Max", ["list_" + low, "zeros"], [side + "_from"]),
                  node("Add", ["list_" + high, "ones"], [side + "_after"]), node("Min", [side + "_after", size], [side + "_to"]),
                  node("Sub", [side + "_from", "list_" + low], [side + "_start"]),
                  node("Sub", [side + "_to", "list_" + low], [side + "_end"]),
                  node("Sub", [size, side + "_to"], [side + "_rest"])]
    inner += [node("Concat", ["first", "h_size", "w_size"], ["sizes"], axis=0),
              node("Unsqueeze", ["patch", "zeros"], ["image"]),
              node("Resize", ["image", "", "", "sizes"], ["resized"], mode="linear"),
              node("Gather", ["resized", "zero"], ["plane_"]), node("Gather", ["plane_", "zero"], ["plane"]),
              node("Slice", ["plane", "h_start", "h_end", "zeros", "ones"], ["cut_"]),
              node("Slice", ["cut_", "w_start", "w_end", "ones"], ["cut"]),
              node("Shape", ["cut"], ["cut_shape"]), node("Gather", ["cut_shape", "ones"], ["columns"])]
    for name in ("from", "rest"):
        inner += [node("Concat", ["h_" + name, "columns"], [f"rows_{name}_shape"], axis=0),
                  node("ConstantOfShape", [f"rows_{name}_shape"], ["rows_" + name])]
    inner += [node("Concat", ["rows_from", "cut", "rows_rest"], ["lines_"], axis=0),
              node("Slice", ["lines_", "zeros", "heights", "zeros"], ["lines"]),
              node("Shape", ["lines"], ["lines_shape"]), node("Gather", ["lines_shape", "zeros"], ["rows"])]
    for name in ("from", "rest"):
        inner += [node("Concat", ["rows", "w_" + name], [f"columns_{name}_shape"], axis=0),
                  node("ConstantOfShape", [f"columns_{name}_shape"], ["columns_" + name])]
    inner += [node("Concat", ["columns_from", "lines", "columns_rest"], ["whole_"], axis=1),
              node("Slice", ["whole_", "zeros", "most", "zeros"], ["whole"]), node("Unsqueeze", ["whole", "zeros"], ["part"]),
              node("Concat", ["images_so_far", "part"], ["images_next"], axis=0),
              node("Unsqueeze", ["box", "zeros"], ["row"]), node("Neg", ["row"], ["turned"]),
              node("Concat", ["row", "turned"], ["both"], axis=0),
              node("Concat", ["rows_so_far", "both"], ["rows_next"], axis=0), node("Identity", ["c"], ["go"])]
    body = helper.make_graph(inner, "paste",
                             [value("i", [], TensorProto.INT64), value("c", [], TensorProto.BOOL), value("images_so_far", None),
                              value("rows_so_far", None, TensorProto.INT64)],
                             [value("go", [], TensorProto.BOOL), value("images_next", None),
                              value("rows_next", None, TensorProto.INT64)])
    nodes += [node("Shape", ["boxes"], ["boxes_shape"]), node("Gather", ["boxes_shape", "zero"], ["count"]),
              node("Loop", ["count", "", "empty", "none"], ["images", "rows_of_boxes"], name="paste", body=body)]
    graph = helper.make_graph(nodes, "pasted", [value("patches", ["n", 1, 5, 6]), value("boxes", ["n", 4], TensorProto.INT64)],
                              [value("images", None), value("rows_of_boxes", None, TensorProto.INT64)], weights)
    boxes = np.array([[2, 3, 9, 8], [-4, -2, 5, 4], [10, 8, 30, 20], [-3, -3, 20, 16], [5, 5, 5, 5], [6, 6, 6, 5]])
    sets = [np.concatenate([boxes] * 4), boxes, boxes[1:2]]
    save(folder, graph, [{"patches": floats(len(s), 1, 5, 6), "boxes": s} for s in sets])


def keypoints(folder):
    """Maps that are resized to sizes which the data say, and where they are largest, as torchvision does it with
    keypoints; and what else can be said of tensors of such sizes: sums, means, the least, and where, of the last."""
    weights = [constant("zero", np.int64(0)), constant("one", np.int64(1)), constant("ones", np.array([1])),
               constant("zeros", np.array([0])), constant("both", np.array([1, -1])), constant("first", np.array([3, 1])), constant("flat", np.array([0, -1])),
               constant("all", np.array([-1])), constant("rows", np.array([3, 2, -1])), constant("own", np.array([0, 4, 8])),
               constant("no_scores", np.zeros((0, 3), np.float32)), constant("no_places", np.zeros((0, 3), np.int64)),
               constant("no_sums", np.zeros((0, 3, 5), np.float32))]
    inner = [node("Gather", ["maps", "i"], ["map"]), node("Unsqueeze", ["map", "ones"], ["image"]),
             node("Gather", ["sizes", "i"], ["size"]), node("Concat", ["first", "size"], ["to"], axis=0),
             node("Resize", ["image", "", "", "to"], ["resized"], mode="cubic",
                  coordinate_transformation_mode="pytorch_half_pixel"),
             node("Gather", ["resized", "zero"], ["plane"], axis=1), node("Squeeze", ["resized", "ones"], ["same"]),
             node("Shape", ["plane"], ["shape"]), node("Gather", ["shape", "all"], ["w_"]), node("Squeeze", ["w_"], ["w"]),
             node("Reshape", ["plane", "flat"], ["line"]), node("ArgMax", ["line"], ["most"], axis=1, keepdims=0),
             node("ArgMin", ["line"], ["least"], axis=1, keepdims=1, select_last_index=1),
             node("Squeeze", ["least", "ones"], ["least_row"]),
             node("Mod", ["most", "w"], ["x"]), node("Sub", ["most", "x"], ["before"]), node("Div", ["before", "w"], ["y"]),
             node("Gather", ["plane", "y"], ["at_y"], axis=1), node("Gather", ["at_y", "x"], ["at_x"], axis=2),
             node("Reshape", ["at_x", "all"], ["every"]), node("Mul", ["own", "ones"], ["its"]),
             node("Gather", ["every", "its"], ["scores_"]), node("Unsqueeze", ["scores_", "zeros"], ["scores"]),
             node("Reshape", ["plane", "rows"], ["halves"]), node("ReduceMax", ["halves"], ["a_"], axes=[2], keepdims=0),
             node("ReduceMin", ["halves"], ["b_"], axes=[1, 2], keepdims=1), node("Squeeze", ["b_", "all"], ["b"]),
             node("ReduceMean", ["same"], ["c_"], axes=[2, 1], keepdims=0), node("Unsqueeze", ["c_", "ones"], ["c_row"]),
             node("ReduceSum", ["plane", "both"], ["d_"], keepdims=0), node("Unsqueeze", ["d_", "ones"], ["d_row"]),
             node("Concat", ["a_", "b", "c_row", "d_row"], ["sums_"], axis=1), node("Unsqueeze", ["sums_", "zeros"], ["sums"])]
    inner += [node("Unsqueeze", [name, "zeros"], [name + "_row"]) for name in ("most", "least_row")]
    kinds = {"scores": TensorProto.FLOAT, "places": TensorProto.INT64, "sums": TensorProto.FLOAT}
    lists = {"scores": ["scores"], "places": ["most_row", "least_row_row"], "sums": ["sums"]}
    for name, parts in lists.items():
        if len(parts) > 1:
            inner.append(node("Concat", parts, [name], axis=0))
        inner += [node("Cast", [name + "_so_far"], [name + "_list"], to=kinds[name]),
                  node("Concat", [name + "_list", name], [name + "_next"], axis=0)]
    inner.append(node("Identity", ["c"], ["go"]))
    body = helper.make_graph(inner, "find", [value("i", [], TensorProto.INT64), value("c", [], TensorProto.BOOL)] +
                             [value(name + "_so_far", None, kind) for name, kind in kinds.items()],
                             [value("go", [], TensorProto.BOOL)] + [value(n + "_next", None, kind) for n, kind in kinds.items()])
    nodes = [node("Shape", ["sizes"], ["sizes_shape"]), node("Gather", ["sizes_shape", "zero"], ["count"]),
             node("Loop", ["count", ""] + ["no_" + name for name in lists], list(lists), name="find", body=body)]
    graph = helper.make_graph(nodes, "keypoints", [value("maps", ["n", 3, 5, 6]), value("sizes", ["n", 2], TensorProto.INT64)],
                              [value(name, None, kind) for name, kind in kinds.items()], weights)
    sizes = np.array([[14, 20], [2, 1], [7, 4], [16, 16], [5, 410]])
    save(folder, graph, [{"maps": floats(len(s), 3, 5, 6), "sizes": s} for s in (sizes, sizes[1:3])])


def speech(folder):
    """How long each of some letters sounds is computed, and so how long all of them do: a range to there, what is made of
    as many frames, and its spectrum. As models of speech have it; they say that nothing sounds for less than a frame."""
    weights = [constant("zero", np.int64(0)), constant("one", np.int64(1)), constant("last", np.int64(-1)), constant("ones", np.array([1])),
               constant("zeros", np.array([0])), constant("least", np.float32(1)), constant("step", np.int64(3)), constant("length", np.int64(8)),
               constant("up", np.array([1, 1, 6], np.float32)), constant("down", np.array([1, 1, 1 / 6], np.float32)),
               constant("kernel", floats(4, 2, 5)), constant("pads", np.array([0, 0, 4, 0, 0, 4])), constant("window", np.hanning(8).astype("f4"))]
    nodes = [node("Round", ["durations"], ["whole"]), node("Clip", ["whole", "least"], ["some"]), node("Cast", ["some"], ["counts"], to=7),
             node("CumSum", ["counts", "zero"], ["ends"]), node("Gather", ["ends", "last"], ["end"]),
             node("Range", ["zero", "end", "one"], ["frames"], name="frames"), node("Unsqueeze", ["frames", "zeros"], ["row"]),
             node("Unsqueeze", ["ends", "ones"], ["to"]), node("Sub", ["ends", "counts"], ["starts"]),
             node("Unsqueeze", ["starts", "ones"], ["from"]), node("Less", ["row", "to"], ["before"]), node("Less", ["row", "from"], ["early"]),
             node("Xor", ["before", "early"], ["at"]), node("Cast", ["at"], ["path"], to=1), node("MatMul", ["letters", "path"], ["sounds"]),
             node("Resize", ["sounds", "", "up"], ["fine"], mode="linear"), node("Sin", ["fine"], ["waves"]),
             node("Resize", ["waves", "", "down"], ["coarse"], mode="linear"), node("ConvTranspose", ["coarse", "kernel"], ["long"], strides=[3]),
             node("Pad", ["long", "pads"], ["padded"], mode="reflect"), node("ReduceMean", ["padded"], ["signal"], axes=[1], keepdims=0),
             node("STFT", ["signal", "step", "window", "length"], ["spectrum"], onesided=1)]
    graph = helper.make_graph(nodes, "speech", [value("durations", ["n"]), value("letters", [1, 4, "n"])],
                              [value("spectrum", None), value("path", None), value("long", None)], weights)
    save(folder, graph, [{"durations": np.array(d, np.float32), "letters": floats(1, 4, len(d))}
                         for d in ([1.2, 3.7, 0.1, 6.4, 2.2], [0.2], [9, 31.4, 2.6])])


def computed(folder):
    """Sizes that are computed when the model runs, in shapes put together as exporters do it: for ConstantOfShape, Expand with -1 left
    as it is, Reshape, Tile, Pad, Split, and bounds of Slice from either end; sizes that must be equal; a window longer than all there is."""
    weights = [constant("zero", np.int64(0)), constant("one", np.int64(1)), constant("zeros", np.array([0])), constant("ones", np.array([1])),
               constant("four", np.array([4])), constant("far", np.array([2**62])), constant("room", np.array([60])),
               constant("none", np.float32(0)), constant("keep", np.array([-1, -1, -1])), constant("all", np.array([1, 1, 1])),
               constant("line", floats(1, 4)), constant("table", floats(60, 4))]
    nodes = [node("Round", ["durations"], ["whole"]), node("Max", ["whole", "none"], ["some"]), node("Cast", ["some"], ["counts"], to=7),
             node("CumSum", ["counts", "zero"], ["ends"]), node("ReduceMax", ["ends"], ["end"], keepdims=0), node("Unsqueeze", ["end", "zeros"], ["size"]),
             node("Range", ["zero", "end", "one"], ["frames"]), node("Unsqueeze", ["frames", "ones"], ["column"]),
             node("Unsqueeze", ["ends", "zeros"], ["row"]), node("Less", ["column", "row"], ["before"]), node("Cast", ["before"], ["path"], to=1),
             node("Concat", ["ones", "size", "four"], ["shape"], axis=0), node("MatMul", ["path", "letters"], ["sounds"]),
             node("Reshape", ["sounds", "shape"], ["three"]),
             node("ConstantOfShape", ["shape"], ["filled"], value=numpy_helper.from_array(np.array([2], np.float32))),
             node("Equal", ["shape", "keep"], ["is_kept"]), node("Where", ["is_kept", "all", "shape"], ["target"]), node("Expand", ["line", "target"], ["lines"]),
             node("Slice", ["table", "zeros", "size", "zeros"], ["positions"]),
             node("Add", ["three", "filled"], ["a"]), node("Mul", ["lines", "positions"], ["b"]), node("Add", ["a", "b"], ["joined"]),
             node("Neg", ["size"], ["back"]), node("Slice", ["table", "back", "far", "zeros"], ["last"]), node("Sub", ["room", "size"], ["rest"]),
             node("Concat", ["zeros", "rest"], ["pads"], axis=0), node("Pad", ["frames", "pads"], ["padded"]),
             node("Concat", ["size", "ones"], ["repeats"], axis=0), node("Tile", ["line", "repeats"], ["tiled"]),
             node("Concat", ["size", "rest"], ["parts"], axis=0), node("Split", ["table", "parts"], ["first", "second"], axis=0),
             node("Range", ["one", "end", "one"], ["later"]),
             node("Shape", ["positions"], ["room_for"]), node("Expand", ["sounds", "room_for"], ["held"]), node("Reshape", ["sounds", "room_for"], ["again"]),
             node("Transpose", ["positions"], ["turned"]), node("MatMul", ["turned", "sounds"], ["product"]),
             node("AveragePool", ["image"], ["mean"], kernel_shape=[9, 9], strides=[9, 9], pads=[0, 1, 0, 1], ceil_mode=1, count_include_pad=1)]
    outs = ["joined", "last", "tiled", "first", "second", "held", "again", "product", "mean"]
    graph = helper.make_graph(nodes, "computed", [value("durations", ["n"]), value("letters", ["n", 4]), value("image", [1, 2, 5, 4])],
                              [value(n, None) for n in outs] + [value(n, None, TensorProto.INT64) for n in ("padded", "later")], weights)
    save(folder, graph, [{"durations": np.array(d, np.float32), "letters": floats(len(d), 4), "image": floats(1, 2, 5, 4)}
                         for d in ([1.2, 3.7, 0.1, 6.4, 2.2], [1], [9, 31.4, -2, 2.6])])


def in_bodies(folder):
    """Sizes that an iteration finds: NonZero, Compress, slices to computed lengths that other operators read, sizes that must be equal,
    a loop and a branch within; a size that is found outside and mentioned inside; iterations as many as the data say, and as a condition says."""
    begin(8)
    i64, flag = TensorProto.INT64, TensorProto.BOOL
    weights = [constant("z", np.array([0])), constant("one", np.int64(1)), constant("ones", np.array([1])), constant("last", np.array([9])), constant("nil", np.float32(0)),
               constant("some", np.float32(.3)), constant("most", np.int64(40)), constant("far", np.float32(3)), constant("zero", np.int64(0)), constant("go", np.array(True)),
               constant("endless", np.int64(2**63 - 1))]
    inner = helper.make_graph([node("Add", ["t", "part"], ["t2"]), node("Identity", ["c2"], ["c3"])], "inner",
                              [value("j", [], i64), value("c2", [], flag), value("t", None)], [value("c3", [], flag), value("t2", None)])
    yes = helper.make_graph([node("Compress", ["row", "m"], ["picked"]), node("ReduceSum", ["picked", "z"], ["y1"], keepdims=0)], "yes", [], [value("y1", [])])
    no = helper.make_graph([node("ReduceMax", ["row"], ["y2"], keepdims=0)], "no", [], [value("y2", [])])
    body = helper.make_graph(
        [node("Gather", ["x", "i"], ["row"], axis=0), node("Greater", ["row", "nil"], ["m"]), node("NonZero", ["m"], ["nz"]), node("Shape", ["nz"], ["nzs"]),
         node("Gather", ["nzs", "one"], ["count"], axis=0), node("Gather", ["lengths", "i"], ["n"], axis=0), node("Unsqueeze", ["n", "z"], ["n1"]),
         node("Slice", ["table", "z", "n1", "z"], ["head"]), node("Sub", ["last", "n1"], ["from"]), node("Slice", ["table", "from", "last", "z"], ["tail"]),
         node("Add", ["head", "tail"], ["both"]), node("Softmax", ["both"], ["soft"], axis=0), node("Transpose", ["soft"], ["turned"], perm=[1, 0]),
         node("MatMul", ["turned", "head"], ["product"]),
         node("Mul", ["found", "s"], ["scaled"]), node("ReduceSum", ["scaled", "z"], ["sums"], keepdims=0), node("Slice", ["sums", "z", "ones"], ["part"]),
         node("Loop", ["count", "", "part"], ["grown"], body=inner), node("Greater", ["grown", "some"], ["g"]), node("Squeeze", ["g"], ["go1"]),
         node("If", ["go1"], ["chosen"], then_branch=yes, else_branch=no), node("Add", ["s", "chosen"], ["s2"]), node("Identity", ["c"], ["c1"])], "body",
        [value("i", [], i64), value("c", [], flag), value("s", [])],
        [value("c1", [], flag), value("s2", []), value("count", [], i64), value("product", [3, 3]), value("grown", [1])])
    often = helper.make_graph([node("Cast", ["i"], ["fi"], to=1), node("Add", ["s", "fi"], ["s2"]), node("Mul", ["s2", "s2"], ["square"]), node("Identity", ["c"], ["c1"])], "often",
                              [value("i", [], i64), value("c", [], flag), value("s", [2])], [value("c1", [], flag), value("s2", [2]), value("square", [2])])
    until = helper.make_graph([node("Add", ["s", "step"], ["s2"]), node("ReduceMax", ["s2"], ["top"], keepdims=0), node("Less", ["top", "far"], ["c1"])], "until",
                              [value("i", [], i64), value("c", [], flag), value("s", [2])], [value("c1", [], flag), value("s2", [2]), value("s2", [2])])
    nodes = [node("Shape", ["x"], ["xs"]), node("Gather", ["xs", "zero"], ["rows"], axis=0), node("ReduceMax", ["x"], ["tops"], axes=[1], keepdims=0),
             node("Greater", ["tops", "some"], ["is_top"]), node("Compress", ["x", "is_top"], ["found"], axis=0),
             node("Loop", ["rows", "", "nil"], ["sum", "counts", "products", "growths"], body=body),
             node("ReduceSum", ["counts", "z"], ["all"], keepdims=0), node("Min", ["all", "most"], ["often"]),
             node("Slice", ["table", "z", "ones", "ones"], ["column"]), node("Slice", ["column", "z", "two", "z"], ["pair"]), node("Reshape", ["pair", "two"], ["start"]),
             node("Abs", ["start"], ["positive"]), node("Add", ["positive", "some"], ["step"]),
             node("Loop", ["often", "", "start"], ["end", "squares"], body=often), node("Loop", ["endless", "go", "start"], ["stop", "until"], body=until)]
    graph = helper.make_graph(nodes, "in_bodies", [value("x", ["n", 7]), value("lengths", ["n"], i64), value("table", [9, 3])],
                              [value(n, None) for n in ("sum", "products", "growths", "end", "squares", "stop", "until")] + [value("counts", None, i64)],
                              weights + [constant("two", np.array([2]))])
    save(folder, graph, [{"x": floats(n, 7) * np.float32(3), "lengths": random.integers(1, 9, n), "table": floats(9, 3)} for n in (5, 1, 19, 2)])


def backwards(folder):
    """Slices down from bounds that are computed, of either sign and past either end, over a size that is a variable."""
    begin(9)
    weights = [constant("axis", np.array([0])), constant("down", np.array([-1])), constant("two_down", np.array([-2])), constant("end", np.array([-2**62])),
               constant("most", np.array([2**62])), constant("zero", np.array([0]))]
    nodes = [node("Gather", ["bounds", "zero"], ["b"]), node("Gather", ["bounds", "down"], ["e"]), node("Add", ["b", "zero"], ["from"]), node("Add", ["e", "zero"], ["to"]),
             node("Slice", ["x", "from", "end", "axis", "down"], ["tail"]), node("Slice", ["x", "from", "to", "axis", "two_down"], ["between"]),
             node("Slice", ["x", "most", "to", "axis", "down"], ["head"]), node("Slice", ["x", "to", "from", "axis"], ["forward"])]
    graph = helper.make_graph(nodes, "backwards", [value("x", ["n", 2]), value("bounds", [2], TensorProto.INT64)],
                              [value(n, None) for n in ("tail", "between", "head", "forward")], weights)
    save(folder, graph, [{"x": floats(n, 2), "bounds": np.array(b)} for n, b in ((7, (4, 1)), (7, (-1, -7)), (5, (20, -20)), (1, (0, 0)), (9, (-2, 2)), (3, (-9, 9)),
                                                                                (6, (5, -7)), (8, (2, 5)))])


def multiples(folder):
    """Blocks, windows and equal parts of sizes that are variables: what they take apart divides by a number, which nobody says."""
    begin(10)
    weights = [constant("eight", np.array([1, -1, 2, 6])), constant("four", np.array([2])), constant("one", np.array([1])), constant("less", np.array([3])), constant("flat", np.array([-1, 12])),
               constant("at", np.array([2])), constant("to", np.array([3])), constant("w3", np.array([3]))]
    nodes = [node("SpaceToDepth", ["x"], ["blocks"], blocksize=2), node("DepthToSpace", ["blocks"], ["pixels"], blocksize=2, mode="CRD"),
             node("Shape", ["x"], ["s"]), node("Slice", ["s", "at", "to"], ["h"]), node("Slice", ["s", "to", "w4"], ["w"]), node("Div", ["h", "four"], ["h2"]), node("Div", ["w", "four"], ["w2"]),
             node("Concat", ["one", "w3", "h2", "four", "w2", "four"], ["windows"], axis=0), node("Reshape", ["x", "windows"], ["six"]),
             node("Transpose", ["six"], ["turned"], perm=[0, 2, 4, 3, 5, 1]), node("Reshape", ["turned", "flat"], ["rows"]),
             node("Split", ["x"], ["left", "right"], axis=3), node("Split", ["x"], ["a", "b", "c"], axis=2, num_outputs=3), node("Reshape", ["line", "eight"], ["lines"]),
             node("Add", ["h2", "one"], ["h3"]), node("Concat", ["h3", "less"], ["crop"], axis=0), node("CenterCropPad", ["x", "crop"], ["middle"], axes=[2, 3])]
    graph = helper.make_graph(nodes, "multiples", [value("x", [1, 3, "h", "w"]), value("line", ["n"])],
                              [value(n, None) for n in ("blocks", "pixels", "rows", "left", "right", "a", "b", "c", "lines", "middle")], weights + [constant("w4", np.array([4]))])
    save(folder, graph, [{"x": floats(1, 3, h, w), "line": floats(n)} for h, w, n in ((4, 6, 12), (2, 2, 24), (8, 4, 36), (10, 12, 60))], 18)


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


def placeholders(folder):
    """States that begin in another shape, which the first iteration replaces; a condition ends the loop, at once too."""
    begin(31)
    names = {"zero": np.zeros((1, 0), np.float32), "one": np.zeros(1, np.float32)}
    weights = [constant("w", floats(6, 6)), constant("most", np.int64(20)), constant("on", True)]
    nodes, outputs = [], []
    for name, start in names.items():
        body = helper.make_graph(
            [node("MatMul", ["h_in", "w"], ["hm"]), node("Tanh", ["hm"], ["h_out"]),
             node("Cast", ["i"], ["at"], to=TensorProto.FLOAT), node("Add", ["h_out", "at"], ["p_out"]),
             node("ReduceSum", ["p_out"], ["sum"], keepdims=0), node("Less", ["sum", "limit"], ["go"]),
             node("Softmax", ["p_out"], ["row"], axis=-1)], name,
            [value("i", [], TensorProto.INT64), value("c", [], TensorProto.BOOL), value("h_in", None), value("p_in", None)],
            [value("go", None, TensorProto.BOOL), value("h_out", None), value("p_out", None), value("row", None)])
        weights.append(constant(name, start))
        results = [f"{name}_{part}" for part in ("h", "p", "rows")]
        nodes.append(node("Loop", ["most", "on", "h0", name], results, name="table_" + name, body=body))
        outputs += [value(result, None) for result in results]
    graph = helper.make_graph(nodes, "placeholders", [value("h0", [1, 6]), value("limit", [])], outputs, weights)
    save(folder, graph, [{"h0": floats(1, 6), "limit": np.array(limit, np.float32)} for limit in (1e9, 30, -1e9)])


def grown(folder):
    """States to which each iteration adds: what a decoder has said, its cache and mask, until a condition or a number that is computed;
    one that grows once the first iteration has given it its width; one along both dims; one within a loop, as often as that finds."""
    begin(37)
    i64, flag = TensorProto.INT64, TensorProto.BOOL
    weights = [constant("table", floats(9, 4)), constant("wk", floats(4, 4)), constant("wv", floats(4, 4)), constant("wo", floats(4, 9)), constant("last", np.array(-1)),
               constant("z", np.array([0])), constant("one", np.array([1])), constant("open", np.zeros((1, 1, 1), np.float32)), constant("most", np.int64(20)),
               constant("nil", np.int64(0)), constant("on", np.array(True)), constant("narrow", np.zeros((1, 1), np.float32))]
    decoder = helper.make_graph(
        [node("Gather", ["ids", "last"], ["said"], axis=1), node("Unsqueeze", ["said", "one"], ["at"]), node("Gather", ["table", "at"], ["x"], axis=0),
         node("MatMul", ["x", "wk"], ["k1"]), node("MatMul", ["x", "wv"], ["v1"]), node("Concat", ["keys", "k1"], ["keys2"], axis=1),
         node("Concat", ["values", "v1"], ["values2"], axis=1), node("Concat", ["mask", "open"], ["mask2"], axis=2), node("Transpose", ["keys2"], ["turned"], perm=[0, 2, 1]),
         node("MatMul", ["x", "turned"], ["scores"]), node("Add", ["scores", "mask2"], ["masked"]), node("Softmax", ["masked"], ["p"], axis=-1),
         node("MatMul", ["p", "values2"], ["mixed"]), node("MatMul", ["mixed", "wo"], ["logits"]), node("ArgMax", ["logits"], ["next"], axis=-1, keepdims=0),
         node("Concat", ["ids", "next"], ["ids2"], axis=1), node("Shape", ["ids2"], ["size"]), node("Gather", ["size", "one"], ["length"]), node("Squeeze", ["length", "z"], ["n"]),
         node("Less", ["n", "long"], ["c2"])], "decoder",
        [value("i", [], i64), value("c", [], flag), value("ids", None, i64), value("keys", None), value("values", None), value("mask", None)],
        [value("c2", [], flag), value("ids2", None, i64), value("keys2", None), value("values2", None), value("mask2", None), value("logits", None)])
    wider = helper.make_graph([node("Add", ["p", "h"], ["p1"]), node("Concat", ["p1", "h"], ["p2"], axis=0), node("ReduceSum", ["p2"], ["sum"], keepdims=0), node("Less", ["sum", "far"], ["c2"])],
                              "wider", [value("i", [], i64), value("c", [], flag), value("p", None)], [value("c2", [], flag), value("p2", None)])
    square = helper.make_graph([node("Slice", ["s", "z", "one", "z"], ["row"]), node("Concat", ["s", "row"], ["taller"], axis=0), node("Slice", ["taller", "z", "one", "one"], ["column"]),
                                node("Concat", ["taller", "column"], ["s2"], axis=1), node("Identity", ["c"], ["c2"])], "square",
                               [value("i", [], i64), value("c", [], flag), value("s", None)], [value("c2", [], flag), value("s2", None)])
    inner = helper.make_graph([node("Concat", ["t", "a"], ["t2"], axis=0), node("Identity", ["c2"], ["c3"])], "inner",
                              [value("j", [], i64), value("c2", [], flag), value("t", None)], [value("c3", [], flag), value("t2", None)])
    outer = helper.make_graph([node("Min", ["i", "most"], ["many"]), node("Loop", ["many", "", "a"], ["rows"], body=inner), node("ReduceMean", ["rows"], ["mean"], axes=[0], keepdims=1), node("Add", ["mean", "a"], ["a2"]), node("Identity", ["c"], ["c1"])],
                              "outer", [value("i", [], i64), value("c", [], flag), value("a", [1, 6])], [value("c1", [], flag), value("a2", [1, 6])])
    nodes = [node("Max", ["asked", "nil"], ["some"]), node("Min", ["some", "most"], ["often"]), node("Loop", ["often", "on", "start", "k0", "v0", "m0"], ["ids_out", "keys_out", "values_out", "mask_out", "all_logits"], body=decoder),
             node("Loop", ["most", "on", "narrow"], ["wide"], body=wider), node("Loop", ["often", "", "block"], ["blocks"], body=square), node("Loop", ["most", "", "h"], ["means"], body=outer),
             node("ReduceSum", ["all_logits"], ["logits_sum"], keepdims=0)]
    graph = helper.make_graph(nodes, "grown", [value("asked", [], i64), value("long", [], i64), value("start", ["b", "t"], i64), value("k0", ["b", "p", 4]), value("v0", ["b", "p", 4]),
                                               value("m0", [1, 1, "p"]), value("h", [1, 6]), value("far", []), value("block", ["rows", 3])],
                              [value("ids_out", None, i64)] + [value(n, None) for n in ("keys_out", "values_out", "mask_out", "logits_sum", "wide", "blocks", "means")], weights)
    save(folder, graph, [{"asked": np.array(asked), "long": np.array(long), "start": random.integers(0, 9, (b, t)), "k0": floats(b, p, 4), "v0": floats(b, p, 4), "m0": floats(1, 1, p),
                          "h": floats(1, 6) + np.float32(.5), "far": np.array(far, np.float32), "block": floats(rows, 3)}
                         for asked, long, b, t, p, far, rows in ((5, 99, 1, 1, 3, 20, 2), (9, 6, 2, 2, 5, 1e9, 1), (0, 9, 1, 3, 2, -1e9, 4), (1, 3, 3, 4, 1, 60, 1))])


def uneven(folder):
    """States whose sizes change from one iteration to the next as these sizes and the iteration's number say: a decoder with a cache that rolls on,
    until a token; two that change places; one that loses its first row, one that loses its last until one is left; one that shrinks along a dim and rolls
    along another; one that is halved; one that is as long as the iteration's number; one that a loop within shortens."""
    begin(41)
    i64, flag = TensorProto.INT64, TensorProto.BOOL
    weights = [constant("table", floats(9, 4) * np.float32(4)), constant("wk", floats(4, 4)), constant("wv", floats(4, 4)), constant("wo", floats(4, 9) * np.float32(4)), constant("none", np.zeros(0, np.int64)),
               constant("z", np.array([0])), constant("one", np.array([1])), constant("two", np.array([2])), constant("window", np.array([-3])), constant("less", np.array([-1])), constant("far", np.array([2**62])),
               constant("nil", np.int64(0)), constant("single", np.int64(1)), constant("half", np.float32(.5)), constant("base", floats(12))]
    def loop(name, nodes, states, scans=(), trips="n", kinds=(), go="", goes=True):
        ends = ([node("Identity", ["c"], ["c2"])] if goes else [])
        body = helper.make_graph(nodes + ends, name, [value("i", [], i64), value("c", [], flag)] + [value(a, None, i64 if a in kinds else TensorProto.FLOAT) for _, a, _, _ in states],
                                 [value("c2", [], flag)] + [value(b, None, i64 if a in kinds else TensorProto.FLOAT) for _, a, b, _ in states] + [value(a, None) for a, _ in scans])
        return node("Loop", [trips, go] + [first for first, _, _, _ in states], [last for _, _, _, last in states] + [out for _, out in scans], name=name, body=body)
    nodes = [
        loop("decode", [node("Gather", ["table", "t"], ["x"]), node("MatMul", ["x", "wk"], ["k1"]), node("MatMul", ["x", "wv"], ["v1"]), node("Concat", ["k", "k1"], ["kc"], axis=0), node("Concat", ["v", "v1"], ["vc"], axis=0),
                        node("Slice", ["kc", "window", "far", "z"], ["k2"]), node("Slice", ["vc", "window", "far", "z"], ["v2"]), node("Transpose", ["k2"], ["kt"], perm=[1, 0]), node("MatMul", ["x", "kt"], ["scores"]),
                        node("Softmax", ["scores"], ["p"], axis=-1), node("MatMul", ["p", "v2"], ["mixed"]), node("MatMul", ["mixed", "wo"], ["logits"]), node("ArgMax", ["logits"], ["t2"], axis=1, keepdims=0),
                        node("Concat", ["ids", "t2"], ["ids2"], axis=0), node("Equal", ["t2", "stop"], ["ended"]), node("Not", ["ended"], ["on"]), node("Squeeze", ["on", "z"], ["c2"])],
             [("t0", "t", "t2", "last"), ("k0", "k", "k2", "keys"), ("k0", "v", "v2", "values"), ("none", "ids", "ids2", "said")], kinds=("t", "ids"), go="go", goes=False),
        loop("swap", [node("ReduceSum", ["a"], ["sum"], keepdims=1), node("Add", ["b", "sum"], ["more"]), node("Mul", ["more", "half"], ["a2"]), node("Identity", ["a"], ["b2"])], [("a0", "a", "a2", "first"), ("b0", "b", "b2", "second")]),
        loop("shrink", [node("Slice", ["s", "one", "far", "z"], ["cut"]), node("Mul", ["cut", "half"], ["s2"])], [("k0", "s", "s2", "shrunk")]),
        loop("last", [node("Slice", ["s", "z", "less", "z"], ["s2"]), node("Shape", ["s2"], ["size"]), node("Gather", ["size", "nil"], ["rows"]), node("Greater", ["rows", "single"], ["c2"])], [("b0", "s", "s2", "ended_at")], trips="", goes=False),
        loop("both", [node("Slice", ["s", "one", "far", "z"], ["cut"]), node("Concat", ["cut", "cut"], ["wide"], axis=1), node("Slice", ["wide", "window", "far", "one"], ["s2"])], [("k0", "s", "s2", "narrow")]),
        loop("halve", [node("Shape", ["s"], ["size"]), node("Div", ["size", "two"], ["h"]), node("Slice", ["s", "z", "h", "z"], ["s2"])], [("a0", "s", "s2", "halved")]),
        loop("count", [node("Unsqueeze", ["i", "z"], ["at"]), node("Slice", ["base", "z", "at", "z"], ["s2"]), node("ReduceSum", ["s"], ["sum"], keepdims=0)], [("a0", "s", "s2", "counted")], [("sum", "sums")]),
        loop("outer", [loop("inner", [node("Slice", ["w", "one", "far", "z"], ["w2"])], [("s", "w", "w2", "few")], trips="i"), node("Concat", ["few", "b0", "b0"], ["s2"], axis=0)], [("a0", "s", "s2", "nested")]),
        node("ReduceSum", ["sums"], ["total"], keepdims=0)]
    graph = helper.make_graph(nodes, "uneven", [value("n", [], i64), value("go", [], flag), value("t0", [1], i64), value("stop", [1], i64), value("k0", ["p", 4]), value("a0", ["q"]), value("b0", ["r"])],
                              [value(name, None, i64 if name in ("last", "said") else TensorProto.FLOAT) for name in
                               ("last", "keys", "values", "said", "first", "second", "shrunk", "ended_at", "narrow", "halved", "counted", "total", "nested")], weights)
    save(folder, graph, [{"n": np.array(n), "go": np.array(go), "t0": np.array([n % 7]), "stop": np.array([stop]), "k0": floats(p, 4), "a0": floats(q), "b0": floats(r)}
                         for n, go, stop, p, q, r in ((9, True, 99, 2, 3, 5), (1, True, 99, 1, 1, 2), (0, True, 99, 4, 2, 3), (13, True, 4, 3, 6, 4), (4, False, 9, 1, 5, 9))])


def survivors(folder):
    """States whose sizes data say: what a mask leaves of rows and their scores, a slice to a computed length, boxes of which a loop takes one and leaves what is far
    from it, sequences that end and go, appended rows that are chosen; one that doubles, and two of which each is what both were before."""
    begin(43)
    i64, flag = TensorProto.INT64, TensorProto.BOOL
    weights = [constant("z", np.array([0])), constant("one", np.array([1])), constant("end", np.array([-1])), constant("far", np.array([2**62])), constant("nil", np.int64(0)), constant("null", np.float32(0)), constant("step", np.float32(.15)),
               constant("half", np.float32(.5)), constant("taken", np.zeros((0, 4), np.float32)), constant("five", np.int64(5)), constant("eleven", np.int64(11)), constant("seven", np.int64(7)), constant("table", floats(16, 3)), constant("few", np.int64(4))]
    remains = [node("Shape", ["s2"], ["size"]), node("Gather", ["size", "nil"], ["rows"]), node("Greater", ["rows", "nil"], ["c2"])]
    on = [node("Identity", ["c"], ["c2"])]
    def loop(name, nodes, states, trips="n", kind=TensorProto.FLOAT):
        body = helper.make_graph(nodes, name, [value("i", [], i64), value("c", [], flag)] + [value(a, None, kind) for _, a, _, _ in states],
                                 [value("c2", [], flag)] + [value(b, None, kind) for _, _, b, _ in states])
        return node("Loop", [trips, ""] + [first for first, _, _, _ in states], [last for _, _, _, last in states], name=name, body=body)
    nodes = [
        loop("masked", [node("Greater", ["s", "least"], ["keep"]), node("NonZero", ["keep"], ["at"]), node("Squeeze", ["at", "z"], ["rows"]), node("Gather", ["x", "rows"], ["xk"]), node("Gather", ["s", "rows"], ["sk"]),
                        node("Unsqueeze", ["sk", "one"], ["column"]), node("Mul", ["xk", "column"], ["x2"]), node("Sub", ["sk", "step"], ["s2"])] + on, [("x0", "x", "x2", "rows_left"), ("s0", "s", "s2", "scores_left")]),
        loop("cut", [node("Greater", ["s", "null"], ["above"]), node("Cast", ["above"], ["ones"], to=i64), node("ReduceSum", ["ones"], ["count"], keepdims=0), node("Reshape", ["count", "one"], ["to"]), node("Slice", ["s", "z", "to", "z"], ["head"]),
                     node("Sub", ["head", "step"], ["s2"])] + on, [("s0", "s", "s2", "heads")]),
        loop("suppress", [node("Slice", ["s", "z", "one", "z"], ["best"]), node("Slice", ["s", "one", "far", "z"], ["rest"]), node("Sub", ["rest", "best"], ["off"]), node("Abs", ["off"], ["apart"]),
                          node("ReduceMax", ["apart"], ["distance"], axes=[1], keepdims=0), node("Greater", ["distance", "least"], ["keep"]), node("Compress", ["rest", "keep"], ["s2"], axis=0),
                          node("Concat", ["t", "best"], ["t2"], axis=0)] + remains, [("boxes", "s", "s2", "none_left"), ("taken", "t", "t2", "chosen")], trips=""),
        loop("beams", [node("Gather", ["s", "end"], ["last"], axis=1), node("Squeeze", ["last", "one"], ["said"]), node("Mul", ["said", "five"], ["by"]), node("Add", ["by", "i"], ["sum"]), node("Mod", ["sum", "eleven"], ["next"]),
                       node("Unsqueeze", ["next", "one"], ["column"]), node("Concat", ["s", "column"], ["longer"], axis=1), node("Equal", ["next", "seven"], ["ended"]), node("Not", ["ended"], ["alive"]), node("Compress", ["longer", "alive"], ["s2"], axis=0)] + remains,
             [("ids", "s", "s2", "sequences")], kind=i64),
        loop("append", [node("Gather", ["table", "i"], ["row"]), node("Greater", ["row", "least"], ["keep"]), node("Compress", ["row", "keep"], ["some"], axis=0), node("Concat", ["s", "some"], ["s2"], axis=0)] + on, [("s0", "s", "s2", "appended")]),
        node("Min", ["n", "few"], ["seldom"]),
        loop("double", [node("Mul", ["s", "half"], ["h"]), node("Concat", ["s", "h"], ["s2"], axis=0)] + on, [("s0", "s", "s2", "doubled")], trips="seldom"),
        loop("fibonacci", [node("Concat", ["a", "b"], ["b2"], axis=0), node("Identity", ["b"], ["a2"])] + on, [("s0", "a", "a2", "fewer"), ("s0", "b", "b2", "more")], trips="seldom")]
    graph = helper.make_graph(nodes, "survivors", [value("n", [], i64), value("least", []), value("x0", ["p", 3]), value("s0", ["p"]), value("boxes", ["q", 4]), value("ids", ["r", "t"], i64)],
                              [value(name, None, i64 if name == "sequences" else TensorProto.FLOAT) for name in ("rows_left", "scores_left", "heads", "none_left", "chosen", "sequences", "appended", "doubled", "fewer", "more")], weights)
    save(folder, graph, [{"n": np.array(n), "least": np.array(least, np.float32), "x0": floats(p, 3), "s0": floats(p) + np.float32(.8), "boxes": floats(q, 4), "ids": random.integers(0, 11, (r, t))}
                         for n, least, p, q, r, t in ((3, .2, 9, 12, 6, 2), (0, .1, 5, 3, 2, 1), (1, 9, 4, 1, 1, 3), (12, -9, 3, 7, 20, 1), (16, .3, 17, 9, 3, 1))])


def counted(folder):
    """Loops over steps as tf2onnx writes them: they count in a state, compare that with the steps, hand weights and numbers through, and what they stack is as long
    as the input; one that counts from 1, one that looks two steps ahead, one of two numbers more than there are steps, which all end early, one that compares with `<=`."""
    begin(47)
    i64, i32, flag = TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL
    weights = [constant("w", floats(4, 4)), constant("zero", np.int32(0)), constant("one", np.int32(1)), constant("two", np.int32(2)), constant("null", np.float32(0)), constant("at0", np.array([0])),
               constant("at1", np.array([1])), constant("last", np.array([2])), constant("four", np.array([4])), constant("more", np.int64(2))]
    nodes = [node("Transpose", ["x"], ["steps_first"], perm=[1, 0, 2]), node("Transpose", ["mask"], ["mask_first"], perm=[1, 0]), node("Shape", ["steps_first"], ["size"]), node("Cast", ["size"], ["size32"], to=i32),
             node("Slice", ["size32", "at0", "at1", "at0"], ["n1"]), node("Squeeze", ["n1", "at0"], ["n"]), node("Cast", ["n"], ["trips"], to=i64), node("Cast", ["n"], ["nf"], to=1), node("Less", ["null", "nf"], ["begin"]),
             node("Slice", ["size", "at1", "last", "at0"], ["batch"]), node("Concat", ["batch", "four"], ["h_shape"], axis=0), node("ConstantOfShape", ["h_shape"], ["h0"]), node("Add", ["trips", "more"], ["longer"])]
    outputs = []
    for name, start, ahead, compare, trips in (("plain", "zero", "one", "Less", "trips"), ("late", "one", "one", "Less", "trips"), ("ahead", "zero", "two", "Less", "trips"),
                                              ("equal", "zero", "one", "LessOrEqual", "trips"), ("longer", "zero", "one", "Less", "longer")):
        body = helper.make_graph(
            [node("Gather", ["steps_first", "i"], ["xt"]), node("Gather", ["mask_first", "i"], ["mt"]), node("Unsqueeze", ["mt", "at1"], ["column"]), node("MatMul", ["h", "w_in"], ["hw"]), node("Add", ["hw", "xt"], ["sum"]),
             node("Tanh", ["sum"], ["new"]), node("Where", ["column", "new", "h"], ["h2"]), node("Add", ["t", "one"], ["t2"]), node("Add", ["t", ahead], ["soon"]), node("Cast", ["soon"], ["soonf"], to=1), node("Cast", ["steps_in"], ["stepsf"], to=1),
             node("Cast", ["i"], ["if"], to=1), node(compare, ["soonf", "stepsf"], ["first"]), node("Less", ["if", "nf"], ["second"]), node("And", ["first", "second"], ["go"]), node("Identity", ["h2"], ["yt"]),
             node("Identity", ["steps_in"], ["steps_on"]), node("Identity", ["steps_on"], ["steps_out"]), node("Identity", ["w_in"], ["w_out"]), node("Neg", ["b"], ["b2"])], name,
            [value("i", [], i64), value("c", [], flag), value("t", [], i32), value("a", [1]), value("h", None), value("steps_in", [], i32), value("w_in", [4, 4]), value("b", [1])],
            [value("go", [], flag), value("t2", [], i32), value("b2", [1]), value("h2", None), value("steps_out", [], i32), value("w_out", [4, 4]), value("a", [1]), value("yt", None)])
        results = [f"{name}_{k}" for k in ("t", "a", "h", "n", "w", "b", "ys")]
        nodes += [node("Loop", [trips, "begin", start, "p", "h0", "n", "w", "q"], results, name="loop_" + name, body=body), node("Transpose", [f"{name}_ys"], [f"{name}_y"], perm=[1, 0, 2])]
        outputs += [value(f"{name}_{k}", None, i32 if k in "tn" else TensorProto.FLOAT) for k in ("t", "a", "h", "n", "y", "b", "w")]
    nodes += [node("Add", ["plain_y", "x"], ["sum_y"]), node("MatMul", ["sum_y", "plain_w"], ["y"])]
    graph = helper.make_graph(nodes, "counted", [value("x", ["b", "s", 4]), value("mask", ["b", "s"], flag), value("p", [1]), value("q", [1])], outputs + [value("y", None)], weights)
    save(folder, graph, [{"x": floats(b, t, 4), "mask": random.random((b, t)) < .8, "p": floats(1), "q": floats(1)} for b, t in ((1, 30), (3, 17), (2, 2), (1, 1))])


def cropped(folder):
    """Regions of images that are computed: boxes one after the other in a loop, as tf2onnx writes it, some outside; nearest neighbours, one result to an axis; a known region of an image of any size."""
    begin(53)
    i64, flag = TensorProto.INT64, TensorProto.BOOL
    weights = [constant("from", np.zeros(2, np.float32)), constant("to", np.ones(2, np.float32)), constant("z", np.array([0])), constant("one", np.int64(1)), constant("two", np.array([2])), constant("four", np.array([4])), constant("on", np.array(True)),
               constant("none", np.zeros(0, np.float32)), constant("five", np.array([1, 3, 5, 4])), constant("single", np.array([1, 3, 1, 6])), constant("inner", np.array([0, 0, .2, .1, 1, 1, .8, 1.1], np.float32)), constant("swapped", np.array([2, 3, 0, 1]))]
    crop = dict(coordinate_transformation_mode="tf_crop_and_resize")
    body = helper.make_graph(
        [node("Unsqueeze", ["i", "z"], ["i1"]), node("Add", ["i1", "one"], ["next"]), node("Slice", ["boxes", "i1", "next", "z"], ["box1"]), node("Squeeze", ["box1", "z"], ["box"]), node("Slice", ["box", "z", "two", "z"], ["start"]), node("Slice", ["box", "two", "four", "z"], ["end"]),
         node("Concat", ["from", "start", "to", "end"], ["region"], axis=0), node("Resize", ["x", "region", "none", "five"], ["part"], mode="linear", extrapolation_value=-2.0, **crop), node("Squeeze", ["part", "z"], ["one_of"]), node("Identity", ["c"], ["c2"])],
        "crop", [value("i", [], i64), value("c", [], flag)], [value("c2", [], flag), value("one_of", None)])
    nodes = [node("Shape", ["boxes"], ["size"]), node("Gather", ["size", "z"], ["many"]), node("Loop", ["many", "on"], ["parts"], body=body), node("ReduceMin", ["boxes", ], ["least"], axes=[0], keepdims=0), node("ReduceMax", ["boxes"], ["most"], axes=[0], keepdims=0),
             node("Slice", ["least", "z", "two", "z"], ["low"]), node("Slice", ["most", "two", "four", "z"], ["high"]), node("Concat", ["from", "low", "to", "high"], ["all"], axis=0), node("Resize", ["x", "all", "none", "single"], ["row"], mode="nearest", **crop),
             node("Resize", ["x", "all", "none", "five"], ["cubic"], mode="cubic", **crop), node("Resize", ["x", "inner", "none", "five"], ["fixed"], mode="linear", extrapolation_value=.5, **crop)]
    graph = helper.make_graph(nodes, "cropped", [value("x", [1, 3, "h", "w"]), value("boxes", ["b", 4])], [value(n, None) for n in ("parts", "row", "cubic", "fixed")], weights)
    def boxes(n):
        corner = random.random((n, 2)).astype(np.float32) * .9 - .1
        return np.concatenate([corner, corner + .05 + .5 * random.random((n, 2)).astype(np.float32)], 1)
    save(folder, graph, [{"x": floats(1, 3, h, w), "boxes": boxes(b)} for b, h, w in ((4, 12, 9), (1, 7, 16), (9, 6, 5))])  # onnxruntime leaves the region out where an extent stays


def filled(folder):
    """What is found, filled up to a number of rows with pads as torch's exporter brings them in order: zeros, a list in two columns, turned and transposed; an input to a multiple."""
    begin(59)
    i64 = TensorProto.INT64
    weights = [constant("z", np.array([0])), constant("one", np.array([1])), constant("ten", np.array([10])), constant("two", np.array([2])), constant("eight", np.array([8])), constant("end", np.array([-1])), constant("most", np.array([-2**63 + 1])), constant("pairs", np.array([-1, 2])),
               constant("rows", np.array([10, 2])), constant("null", np.float32(0)), constant("width", np.array([0, 0, 0])), constant("line", np.array([0]))]
    def pads(name, flat, more):
        """The pads that `flat` begins, innermost axis first, filled up with `more` zeros, in ONNX's order."""
        return [node("ConstantOfShape", [more], [name + "_zeros"], value=helper.make_tensor("v", i64, [1], [0])), node("Concat", [flat, name + "_zeros"], [name + "_all"], axis=0), node("Reshape", [name + "_all", "pairs"], [name + "_pairs"]),
                node("Slice", [name + "_pairs", "end", "most", "z", "end"], [name + "_turned"]), node("Transpose", [name + "_turned"], [name + "_columns"], perm=[1, 0]), node("Reshape", [name + "_columns", "end"], [name + "_pads"])]
    nodes = [node("Greater", ["x", "null"], ["above"]), node("NonZero", ["above"], ["where"]), node("Squeeze", ["where", "z"], ["at"]), node("Slice", ["at", "z", "ten", "z"], ["few"]), node("Gather", ["x", "few"], ["found"]), node("Unsqueeze", ["found", "one"], ["column"]),
             node("Add", ["column", "column"], ["double"]), node("Concat", ["column", "double"], ["pair"], axis=1), node("Shape", ["pair"], ["size"]), node("Gather", ["size", "z"], ["count"]), node("Sub", ["ten", "count"], ["lack"]), node("Concat", ["width", "lack"], ["flat"], axis=0),
             *pads("a", "flat", "z"), node("Pad", ["pair", "a_pads"], ["ten_rows"]), node("Reshape", ["ten_rows", "rows"], ["y"]),
             node("Shape", ["image"], ["shape"]), node("Gather", ["shape", "two"], ["length"]), node("Neg", ["length"], ["less"]), node("Mod", ["less", "eight"], ["rest"]), node("Concat", ["line", "rest"], ["flat_b"], axis=0), node("Add", ["two", "two"], ["four"]),
             *pads("b", "flat_b", "four"), node("Pad", ["image", "b_pads"], ["whole"]), node("Transpose", ["whole"], ["turned"])]
    graph = helper.make_graph(nodes, "filled", [value("x", ["n"]), value("image", [1, 2, "t"])], [value("y", [10, 2]), value("turned", None)], weights)
    save(folder, graph, [{"x": floats(n), "image": floats(1, 2, t)} for n, t in ((30, 13), (8, 16), (1, 1))] + [{"x": -np.abs(floats(5)), "image": floats(1, 2, 7)}])


def scripted(folder):
    """Loops without a number of iterations, whose condition limits it, as torch scripts `while`: a decoder that reads and writes at the place that it counts and breaks within an If, a loop over the
    steps of an input from the second one on, one that ends by either of two conditions, and one that chooses between them."""
    begin(63)
    i64, flag = TensorProto.INT64, TensorProto.BOOL
    weights = [constant("table", floats(9, 4) * 3), constant("places", floats(1, 9, 4)), constant("wo", floats(4, 9)), constant("w", floats(4, 4)), constant("nine", np.int64(9)), constant("zero", np.int64(0)), constant("one", np.int64(1)),
               constant("two", np.int64(2)), constant("five", np.int64(5)), constant("z", np.array([0])), constant("n1", np.array([1])), constant("ever", np.int64(2**63 - 1)), constant("yes", np.array(True)), constant("no", np.array(False)), constant("last", np.int64(3)),
               constant("square", np.array([1, 1])), constant("room", np.array([9])), constant("none", np.array([0, 4]))]
    fill = helper.make_tensor("v", i64, [1], [7])
    over = helper.make_graph([node("Identity", ["yes"], ["over"])], "over", [], [value("over", [], flag)])
    said = helper.make_graph([node("Equal", ["next", "last"], ["ended"]), node("Cast", ["ended"], ["ones"], to=i64), node("ReduceMin", ["ones"], ["all"], keepdims=0), node("Cast", ["all"], ["ended_all"], to=flag)], "said", [], [value("ended_all", [], flag)])
    decoder = helper.make_graph(
        [node("Gather", ["table", "said"], ["e"]), node("Add", ["t", "one"], ["t2"]), node("Unsqueeze", ["t", "z"], ["from"]), node("Unsqueeze", ["t2", "z"], ["to"]), node("Slice", ["places", "from", "to", "n1"], ["place"]), node("Add", ["e", "place"], ["q"]),
         node("Concat", ["keys", "q"], ["keys2"], axis=1), node("Transpose", ["keys2"], ["turned"], perm=[0, 2, 1]), node("MatMul", ["q", "turned"], ["scores"]), node("Softmax", ["scores"], ["p"]), node("MatMul", ["p", "keys2"], ["mixed"]),
         node("Sub", ["q", "mixed"], ["new"]), node("MatMul", ["new", "wo"], ["logits"]), node("ArgMax", ["logits"], ["next"], axis=-1, keepdims=0), node("Slice", ["ids", "from", "to", "n1"], ["cell"]), node("Shape", ["cell"], ["size"]), node("Expand", ["next", "size"], ["put"]),
         node("Reshape", ["t", "square"], ["at1"]), node("Expand", ["at1", "size"], ["at"]), node("ScatterElements", ["ids", "at", "put"], ["ids2"], axis=1), node("GreaterOrEqual", ["t2", "nine"], ["full"]),
         node("If", ["full"], ["done"], then_branch=over, else_branch=said), node("Not", ["done"], ["c2"])], "decoder",
        [value("i", [], i64), value("c", [], flag), value("t", [], i64), value("said", None, i64), value("keys", None), value("ids", None, i64)],
        [value("c2", [], flag), value("t2", [], i64), value("next", None, i64), value("keys2", None), value("ids2", None, i64)])
    steps = helper.make_graph(
        [node("Add", ["t", "one"], ["t2"]), node("Unsqueeze", ["t", "z"], ["from"]), node("Unsqueeze", ["t2", "z"], ["to"]), node("Slice", ["x", "from", "to", "n1"], ["row"]), node("Squeeze", ["row", "n1"], ["xt"]), node("MatMul", ["h", "w"], ["hw"]),
         node("Add", ["hw", "xt"], ["sum"]), node("Tanh", ["sum"], ["h2"]), node("Identity", ["h2"], ["y"]), node("Less", ["t2", "n"], ["c2"])], "steps",
        [value("i", [], i64), value("c", [], flag), value("t", [], i64), value("h", None)], [value("c2", [], flag), value("t2", [], i64), value("h2", None), value("y", None)])
    def grows(name, end):
        return helper.make_graph(
            [node("Add", ["t", "one"], ["t2"]), node("Concat", ["s", "first"], ["s2"], axis=1), node("ReduceSum", ["s2"], ["sum"], keepdims=0), node("Greater", ["sum", "far"], ["much"]), node("LessOrEqual", ["five", "t2"], ["full"]), *end], name,
            [value("i", [], i64), value("c", [], flag), value("t", [], i64), value("s", None)], [value("c2", [], flag), value("t2", [], i64), value("s2", None)])
    either = grows("either", [node("Or", ["full", "much"], ["done"]), node("Not", ["done"], ["c2"])])
    goes_on = helper.make_graph([node("Greater", ["five", "t2"], ["room_left"])], "goes_on", [], [value("room_left", [], flag)])
    ends = helper.make_graph([node("Identity", ["no"], ["never"])], "ends", [], [value("never", [], flag)])
    choice = grows("choice", [node("Not", ["much"], ["little"]), node("If", ["little"], ["c2"], then_branch=goes_on, else_branch=ends)])
    nodes = [node("Shape", ["x"], ["dims"]), node("Gather", ["dims", "z"], ["b"]), node("Gather", ["dims", "one"], ["n"]),
             node("Concat", ["b", "none"], ["keys_shape"], axis=0), node("ConstantOfShape", ["keys_shape"], ["keys0"]), node("Concat", ["b", "room"], ["ids_shape"], axis=0), node("ConstantOfShape", ["ids_shape"], ["ids0"], value=fill),
             node("Slice", ["x", "z", "n1", "n1"], ["first"]), node("ArgMax", ["first"], ["start"], axis=-1, keepdims=0), node("Squeeze", ["first", "n1"], ["h0"]), node("Less", ["one", "n"], ["begins"]),
             node("Loop", ["ever", "yes", "zero", "start", "keys0", "ids0"], ["ended_at", "said_last", "keys_out", "ids_out"], body=decoder),
             node("Loop", ["", "begins", "one", "h0"], ["steps_out", "h_out", "states"], body=steps), node("Loop", ["ever", "", "two", "first"], ["either_at", "either_out"], body=either),
             node("Loop", ["ever", "", "two", "first"], ["choice_at", "choice_out"], body=choice)]
    graph = helper.make_graph(nodes, "scripted", [value("x", ["b", "s", 4]), value("far", [])],
                              [value(n, None, i64 if n in ("ended_at", "ids_out", "steps_out", "either_at", "choice_at") else TensorProto.FLOAT)
                               for n in ("ended_at", "ids_out", "keys_out", "steps_out", "h_out", "states", "either_at", "either_out", "choice_at", "choice_out")], weights)
    save(folder, graph, [{"x": floats(b, s, 4), "far": np.array(far, np.float32)} for b, s, far in ((1, 6, 9), (2, 3, -9), (3, 2, .5))])


if __name__ == "__main__":
    for make in (recurrences, loops, branches, pasted, keypoints, speech, computed, in_bodies, backwards, multiples,
                 placeholders, grown, uneven, survivors, counted, cropped, filled, scripted):
        if len(sys.argv) == 2 or make.__name__ in sys.argv[2:]:
            make(f"{sys.argv[1]}/onnx/{make.__name__}")
