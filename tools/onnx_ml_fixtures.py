#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the models of the domain ai.onnx.ml that the tests import: tests/data/onnx/ml_*.

usage: onnx_ml_fixtures.py OUTDIR [NAME...]     (needs what onnx_fixtures.py does, scikit-learn and skl2onnx)

Half of them are trained with scikit-learn on made-up data and converted, several to a model; the others are nodes with
seeded attributes, for what converters do not write. Expected outputs come from onnxruntime.
"""
import sys
import warnings
import zlib

import numpy as np
import skl2onnx.common._container as container
from onnx import TensorProto, helper, numpy_helper
from skl2onnx import to_onnx
from sklearn.datasets import make_classification, make_regression
from sklearn.ensemble import (ExtraTreesClassifier, GradientBoostingClassifier, GradientBoostingRegressor,
                              HistGradientBoostingClassifier, HistGradientBoostingRegressor, IsolationForest,
                              RandomForestClassifier, RandomForestRegressor)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, Normalizer, StandardScaler
from sklearn.svm import SVC, SVR, LinearSVC

from fixtures.folder import write

F32, I64 = TensorProto.FLOAT, TensorProto.INT64
MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]


def plain(value):
    """Attributes as onnx.helper takes them: skl2onnx hands it numpy's numbers."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, (bool, np.bool_)):
        return int(value)
    if isinstance(value, np.generic):
        return value.item()
    return [plain(v) for v in value] if isinstance(value, (list, tuple)) else value


container.make_node = lambda *args, **attrs: helper.make_node(*args, **{k: plain(v) for k, v in attrs.items()})


class Models:
    """Nodes, and graphs that are converted, side by side on common inputs."""

    def __init__(self, name, ml=3):
        self.name, self.ml = name, ml
        self.nodes, self.inits, self.inputs, self.outputs = [], [], [], []
        self.rng = np.random.default_rng(zlib.crc32(name.encode()))

    def input(self, name, shape, dtype=F32):
        self.inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    def op(self, kind, *ins, outs=(F32,), **attrs):
        k = len(self.nodes)
        names = [f"y{k}_{i}" for i in range(len(outs))]
        self.nodes.append(helper.make_node(kind, list(ins), names, name=f"n{k}_{kind}", domain="ai.onnx.ml", **attrs))
        for name, dtype in zip(names, outs):
            self.outputs.append(helper.make_tensor_value_info(name, dtype, None))

    def trained(self, name, x, estimator, data):
        maps = hasattr(estimator, "classes_") and not isinstance(estimator, LinearSVC)
        options = {id(estimator): {"zipmap": False}} if maps else None
        graph = to_onnx(estimator, data[:1], options=options, target_opset={"": 18, "ai.onnx.ml": self.ml}).graph
        own = {graph.input[0].name: x}

        def rename(value):
            return own.setdefault(value, f"{name}/{value}") if value else value

        for node in graph.node:
            node.input[:] = [rename(v) for v in node.input]
            node.output[:] = [rename(v) for v in node.output]
            node.name = f"{name}/{node.name}"
            self.nodes.append(node)
        for tensor in graph.initializer:
            tensor.name = rename(tensor.name)
            self.inits.append(tensor)
        for out in graph.output:
            out.name = rename(out.name)
            self.outputs.append(out)

    def model(self):
        graph = helper.make_graph(self.nodes, self.name, self.inputs, self.outputs, self.inits)
        sets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", self.ml)]
        model = helper.make_model(graph, opset_imports=sets, producer_name="fixtures")
        model.ir_version = 8
        return model

    def floats(self, n):
        return [float(v) for v in self.rng.standard_normal(n).astype(np.float32)]


def classes(count):
    x, y = make_classification(300, 6, n_informative=4, n_redundant=1, n_classes=count, random_state=count)
    return x.astype(np.float32), 2 * y + 1


def with_holes(x):
    x = x.copy()
    x[np.random.default_rng(5).random(x.shape) < 0.15] = np.nan
    return x


def ml_classifiers():
    n = Models("ml_classifiers")
    n.input("x", ["N", 6])
    for count in (2, 3):
        x, y = classes(count)
        few = slice(0, 50)
        n.trained(f"rf{count}", "x", RandomForestClassifier(3, max_depth=4, random_state=0).fit(x, y), x)
        n.trained(f"et{count}", "x", ExtraTreesClassifier(2, max_depth=3, random_state=0).fit(x, y), x)
        n.trained(f"gb{count}", "x", GradientBoostingClassifier(n_estimators=4, max_depth=2, random_state=0).fit(x, y), x)
        n.trained(f"lr{count}", "x", LogisticRegression().fit(x, y), x)
        n.trained(f"lsvc{count}", "x", LinearSVC(random_state=0).fit(x, y), x)
        n.trained(f"svc{count}", "x", SVC(random_state=0).fit(x[few], y[few]), x)
    return n.model(), [{"x": classes(3)[0][:rows]} for rows in (1, 17)]


def ml_regressors():
    n = Models("ml_regressors")
    n.input("x", ["N", 6])
    x, y = make_regression(200, 6, n_informative=4, random_state=1)
    x, y = x.astype(np.float32), y / np.abs(y).max()
    three = np.stack([y, -y, y ** 2], 1)
    n.trained("rf", "x", RandomForestRegressor(3, max_depth=4, random_state=0).fit(x, three), x)
    n.trained("gb", "x", GradientBoostingRegressor(n_estimators=4, max_depth=2, random_state=0).fit(x, y), x)
    n.trained("lin", "x", LinearRegression().fit(x, three), x)
    n.trained("svr", "x", SVR().fit(x[:40], y[:40]), x)
    n.trained("poly", "x", SVR(kernel="poly").fit(x[:40], y[:40]), x)
    n.trained("iso", "x", IsolationForest(n_estimators=2, max_samples=16, random_state=0).fit(x), x)
    return n.model(), [{"x": x[:rows]} for rows in (1, 17)]


def ml_missing():
    n = Models("ml_missing")
    n.input("x", ["N", 6])
    for count in (2, 3):
        x, y = classes(count)
        x = with_holes(x)
        n.trained(f"hgb{count}", "x", HistGradientBoostingClassifier(max_iter=3, max_depth=4).fit(x, y), x)
    n.trained("hgbr", "x", HistGradientBoostingRegressor(max_iter=3, max_depth=4).fit(x, y), x)
    prepared = make_pipeline(SimpleImputer(), StandardScaler(), MinMaxScaler(), Normalizer()).fit(x)
    n.trained("prepare", "x", prepared, x)
    return n.model(), [{"x": x[:rows]} for rows in (1, 40)]


def ml_features():
    """What prepares features, and labels, in its dtypes."""
    n = Models("ml_features", ml=4)
    rng, rows = n.rng, 7
    x, i = rng.standard_normal((rows, 5)).astype(np.float32), rng.integers(-3, 4, (rows, 5))
    i[2] = 0
    holes = x.copy()
    holes[rng.random(x.shape) < 0.3] = np.nan
    feeds = {"x": x, "i": i, "d": i.astype(np.float64), "h": holes, "at": np.array([3, 0, 3]), "c": x[:, :2].copy()}
    for name, array in feeds.items():
        shape = list(array.shape) if array.ndim == 1 else ["N", array.shape[1]]
        n.input(name, shape, helper.np_dtype_to_tensor_dtype(array.dtype))
    nan, per = float("nan"), n.floats(5)
    for v in ("x", "i", "d"):
        n.op("Scaler", v, offset=per, scale=n.floats(5))
        for norm in ("MAX", "L1", "L2"):
            n.op("Normalizer", v, norm=norm)
        n.op("OneHotEncoder", v, cats_int64s=[2, -1, 0], zeros=1)
    n.op("Scaler", "x", offset=[0.5], scale=[2.0])
    n.op("Binarizer", "x", threshold=0.25)
    n.op("Imputer", "h", imputed_value_floats=per, replaced_value_float=nan)
    n.op("Imputer", "h", imputed_value_floats=[7.0], replaced_value_float=nan)
    n.op("Imputer", "i", outs=(I64,), imputed_value_int64s=[1, 2, 3, 4, 5], replaced_value_int64=-1)
    n.op("FeatureVectorizer", "x", "c", inputdimensions=[5, 2])
    n.op("ArrayFeatureExtractor", "x", "at")
    n.op("LabelEncoder", "i", outs=(I64,), keys_int64s=[3, -3, 0, 2, 2 ** 60], values_int64s=[1, 2 ** 60, 3, 4, 5], default_int64=-7)
    n.op("LabelEncoder", "i", keys_int64s=[1], values_floats=[10.0])
    n.op("LabelEncoder", "h", outs=(I64,), keys_floats=[nan, 1.0], values_int64s=[8, 9])
    one = numpy_helper.from_array
    n.op("LabelEncoder", "d", outs=(TensorProto.DOUBLE,), keys_tensor=one(np.array([1.0, -2.0, 3.0])),
         values_tensor=one(np.array([0.1, 0.2, 0.3])), default_tensor=one(np.array([-0.5])))
    return n.model(), [feeds, {k: v if k == "at" else v[:1] for k, v in feeds.items()}]


def trees(rng, count, depth, modes, missing):
    """nodes_* of random trees, and their leaves."""
    keys = ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids", "missing_value_tracks_true")
    nodes, leaves = {k: [] for k in keys}, []

    def node(tree, below):
        at = len(nodes["treeids"])
        first = nodes["treeids"].index(tree) if tree in nodes["treeids"] else at
        is_leaf = below == 0 or (below < depth and rng.random() < 0.2)
        row = (tree, at - first, int(rng.integers(4)), float(rng.integers(-2, 3)), "LEAF" if is_leaf else str(rng.choice(modes)),
               0, 0, int(missing and rng.random() < 0.5))
        for k, v in zip(keys, row):
            nodes[k].append(v)
        if is_leaf:
            leaves.append((tree, at - first))
        else:
            for side in ("truenodeids", "falsenodeids"):
                nodes[side][at] = node(tree, below - 1)
        return at - first

    for tree in range(count):
        node(tree, depth)
    return {"nodes_" + k: v for k, v in nodes.items()}, leaves


def ensemble(n, what, ids, count=4, depth=2, modes=MODES[:1], missing=False):
    """Attributes of trees whose leaves have a weight for each of ids(tree)."""
    attrs, leaves = trees(n.rng, count, depth, modes, missing)
    rows = [(k, *leaf) for leaf in leaves for k in ids(leaf[0])]
    for key, column in zip(("_ids", "_treeids", "_nodeids"), zip(*rows)):
        attrs[what + key] = list(column)
    attrs[what + "_weights"] = n.floats(len(rows))
    return attrs


def ml_trees():
    """Every mode with and without tracks for missing values, every aggregate; numbers as tensors."""
    n = Models("ml_trees")
    x = n.rng.integers(-3, 4, (33, 4)).astype(np.float32)
    holes = x.copy()
    holes[n.rng.random(x.shape) < 0.15] = np.nan
    feeds = {"x": x, "h": holes, "d": holes.astype(np.float64)}
    for name, array in feeds.items():
        n.input(name, ["N", 4], helper.np_dtype_to_tensor_dtype(array.dtype))
    reg = "TreeEnsembleRegressor"
    for missing in (False, True):
        for mode in MODES:
            n.op(reg, "h", n_targets=1, **ensemble(n, "target", lambda tree: [0], 2, 2, [mode], missing))
        n.op(reg, "h", n_targets=1, **ensemble(n, "target", lambda tree: [0], 2, 4, MODES, missing))
    for aggregate in ("SUM", "AVERAGE", "MIN", "MAX"):
        n.op(reg, "x", n_targets=1, aggregate_function=aggregate, base_values=[0.5], **ensemble(n, "target", lambda tree: [0]))
        n.op(reg, "x", n_targets=2, aggregate_function=aggregate, **ensemble(n, "target", lambda tree: [tree % 2]))
        n.op(reg, "x", n_targets=3, aggregate_function=aggregate, base_values=n.floats(3),
             **ensemble(n, "target", lambda tree: [0, 1, 2]))
    wide = ensemble(n, "target", lambda tree: [0])
    for key in ("nodes_values", "target_weights"):
        wide[key + "_as_tensor"] = numpy_helper.from_array(np.array(wide.pop(key), np.float64) + 1e-9)
    n.op(reg, "d", n_targets=1, **wide)
    chain = {"nodes_treeids": [0] * 6, "nodes_nodeids": list(range(6)), "nodes_featureids": [1] * 6,
            "nodes_values": [-2.0, 3.0, 0.0, 1.0, 0.0, 0.0], "nodes_modes": ["BRANCH_EQ"] * 4 + ["LEAF"] * 2,
            "nodes_truenodeids": [4, 4, 4, 4, 0, 0], "nodes_falsenodeids": [1, 2, 3, 5, 0, 0]}
    n.op(reg, "h", n_targets=1, target_ids=[0, 0], target_treeids=[0, 0], target_nodeids=[4, 5],
         target_weights=[1.0, 2.0], **chain)
    return n.model(), [feeds, {k: v[:1] for k, v in feeds.items()}]


def ml_tree_ensemble():
    """The newest spelling, with sets."""
    n = Models("ml_tree_ensemble", ml=5)
    h = n.rng.integers(-3, 4, (33, 4)).astype(np.float32)
    h[n.rng.random(h.shape) < 0.15] = np.nan
    n.input("h", ["N", 4])

    def tensor(values, dtype=np.float32):
        return numpy_helper.from_array(np.array(values, dtype))

    nan = float("nan")
    n.op("TreeEnsemble", "h", n_targets=3, tree_roots=[0, 3], nodes_modes=tensor([0, 6, 6, 6], np.uint8),
         nodes_featureids=[0, 1, 1, 2], nodes_splits=tensor([1.5, nan, nan, nan]), nodes_truenodeids=[1, 0, 1, 4],
         nodes_trueleafs=[0, 1, 1, 1], nodes_falsenodeids=[2, 2, 3, 5], nodes_falseleafs=[1, 0, 1, 1],
         nodes_missing_value_tracks_true=[1, 0, 0, 1], membership_values=tensor([3, -1, 2, 0, -3, nan, 1, nan, -2, 2, nan]),
         leaf_targetids=[0, 1, 2, 0, 1, 2], leaf_weights=tensor([1, 10, 100, 1000, 3, 7]), aggregate_function=1)
    # many shallow trees beside few deep ones
    n.op("TreeEnsemble", "h", n_targets=1, tree_roots=[2] * 40 + [0] * 3 + [2] * 40, nodes_modes=tensor([0, 3, 1], np.uint8),
         nodes_featureids=[0, 1, 3], nodes_splits=tensor([0.5, -1, 1]), nodes_truenodeids=[1, 0, 2], nodes_trueleafs=[0, 1, 1],
         nodes_falsenodeids=[2, 1, 3], nodes_falseleafs=[0, 1, 1], leaf_targetids=[0] * 4,
         leaf_weights=tensor([100, 300, 1, 2]), aggregate_function=1)
    return n.model(), [{"h": h}, {"h": h[:1]}]


def ml_scores():
    """Labels and scores of trees: classes with and without weights, base values, transforms."""
    n = Models("ml_scores")
    n.input("x", ["N", 4])
    for post in ("NONE", "LOGISTIC", "SOFTMAX_ZERO"):
        for count, ids in ((1, [0]), (2, [0]), (2, [1]), (2, [0, 1]), (3, [0, 2])):
            for base in (0, count):
                attrs = ensemble(n, "class", lambda tree, ids=ids: ids, 1, 2)
                if base:
                    attrs["base_values"] = n.floats(base)
                elif count == 2 and post != "SOFTMAX_ZERO":
                    attrs["class_weights"] = [abs(w) for w in attrs["class_weights"]]
                n.op("TreeEnsembleClassifier", "x", outs=(I64, F32), classlabels_int64s=[4, 9, 2][:count],
                     post_transform=post, **attrs)
    x = n.rng.integers(-3, 4, (9, 4)).astype(np.float32) / 2
    return n.model(), [{"x": x}, {"x": x[:1]}]


def ml_linear():
    """Labels and scores of linear models and support vector machines: transforms, kernels, pairs of classes."""
    n = Models("ml_linear")
    n.input("x", ["N", 4])
    both = (I64, F32)
    for post in ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT"):
        for count in (1, 3):
            n.op("LinearRegressor", "x", coefficients=n.floats(4 * count), intercepts=n.floats(count), targets=count,
                 post_transform=post)
        n.op("LinearClassifier", "x", outs=both, coefficients=n.floats(12), intercepts=n.floats(3),
             classlabels_ints=[4, 9, 2], post_transform=post)
        if post != "PROBIT": # of one score for two classes
            n.op("LinearClassifier", "x", outs=both, coefficients=n.floats(4), intercepts=n.floats(1),
                 classlabels_ints=[4, 9], post_transform=post)
    for count in (2, 3):
        n.op("SVMClassifier", "x", outs=both, coefficients=n.floats(4 * count), rho=[0.2], kernel_params=[0.0] * 3,
             classlabels_ints=[4, 9, 2][:count])
    for kernel in ("LINEAR", "POLY", "RBF", "SIGMOID"):
        params = {"kernel_type": kernel, "kernel_params": [0.3, 0.1, 3.0]}
        n.op("SVMRegressor", "x", n_supports=3, support_vectors=n.floats(12), coefficients=n.floats(3), rho=[0.3],
             one_class=int(kernel == "RBF"), **params)
        for count, prob in (((2, False), (4, True)) if kernel == "RBF" else ((2, True), (3, False))):
            pairs, vectors = count * (count - 1) // 2, [3, 2, 1, 2][:count]
            if prob:
                params.update(prob_a=n.floats(pairs), prob_b=n.floats(pairs))
            n.op("SVMClassifier", "x", outs=both, vectors_per_class=vectors, support_vectors=n.floats(4 * sum(vectors)),
                 coefficients=n.floats(sum(vectors) * (count - 1)), rho=n.floats(pairs), classlabels_ints=[4, 9, 2, 5][:count],
                 **params)
            params.pop("prob_a", None), params.pop("prob_b", None)
    x = n.rng.integers(-3, 4, (9, 4)).astype(np.float32) / 2
    return n.model(), [{"x": x}, {"x": x[:1]}]


def ml_votes():
    """Votes that are tied: equally many equal weights must have equal sums."""
    n = Models("ml_votes")
    n.input("x", ["N", 4])
    both, rng = (I64, F32), n.rng
    for count in (2, 3): # stumps, each of which votes for one class or another
        trees = 150
        nodes = {k: [] for k in ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids")}
        ids = {"class_" + k: [] for k in ("ids", "treeids", "nodeids", "weights")}
        for tree in range(trees):
            feature, value = int(rng.integers(4)), float(rng.integers(-3, 3)) / 2
            for row in ((tree, 0, feature, value, "BRANCH_LEQ", 1, 2), (tree, 1, 0, 0.0, "LEAF", 0, 0), (tree, 2, 0, 0.0, "LEAF", 0, 0)):
                for k, v in zip(nodes, row):
                    nodes[k].append(v)
            for leaf, label in zip((1, 2), rng.permutation(count)):
                if count > 2 or label:
                    for k, v in zip(ids, (int(label), tree, leaf, 1 / trees)):
                        ids[k].append(v)
        n.op("TreeEnsembleClassifier", "x", outs=both, classlabels_int64s=[4, 9, 2][:count], post_transform="NONE",
             **{"nodes_" + k: v for k, v in nodes.items()}, **ids)
    x = rng.integers(-4, 5, (300, 4)).astype(np.float32) / 2
    return n.model(), [{"x": x}, {"x": x[:1]}]


FIXTURES = [ml_classifiers, ml_regressors, ml_missing, ml_features, ml_trees, ml_tree_ensemble, ml_scores, ml_linear, ml_votes]


def main():
    warnings.filterwarnings("ignore")
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        sys.exit(__doc__)
    for fixture in FIXTURES:
        if len(sys.argv) == 2 or fixture.__name__ in sys.argv[2:]:
            write(sys.argv[1], fixture)


if __name__ == "__main__":
    main()
