# SPDX-License-Identifier: MIT
"""What further converters write, of networks with random weights and of trees grown on random numbers: for world.py.

A name begins with where the model comes from, yl (an architecture of ultralytics, as its export writes it), jx (jax2onnx, of Flax and
of functions), pd (paddle2onnx) or gb (boosted trees of XGBoost, LightGBM and CatBoost), and may have
options of the export behind it: +nms, +dynamic. Each converter is imported when one of its names is asked for.
"""
import os
import shutil
import tempfile

import numpy as np

RNG = np.random.default_rng(5)
ROWS = RNG.standard_normal((400, 10)).astype("f4")
TWO = (ROWS[:, 0] + ROWS[:, 1] * ROWS[:, 2] > 0).astype(int)
THREE, NUMBER = TWO + (ROWS[:, 3] > 0.5), ROWS[:, 0] * 2 + ROWS[:, 1] ** 2


def floats(*dims):
    return RNG.standard_normal(dims).astype("f4")


# --- ultralytics ----------------------------------------------------------------------------------------------------------

ULTRALYTICS = ("yolov3-tiny", "yolov5n", "yolov6n", "yolov8n", "yolov8n-ghost", "yolov8n-obb+nms", "yolov8n+dynamic", "yolov9t", "yolov10n",
               "yolo11n", "yolo11n+nms", "yolo11n+nms+dynamic", "yolo11n-seg", "yolo11n-seg+nms", "yolo11n-pose", "yolo11n-pose+nms",
               "yolo11n-cls", "yolo12n", "yolo26n")


def ultralytics(name, path, opset):
    import torch
    from ultralytics import YOLO
    base, *options = name.split("+")
    side = 224 if base.endswith("-cls") else 320
    torch.manual_seed(0)
    network = YOLO(base + ".yaml")
    for module in network.model.modules():  # as if it had learned something, and found some of it
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 1.5)
            module.weight.data.uniform_(0.8, 1.4)
        for scores in getattr(module, "cv3", ()) if hasattr(module, "stride") else ():
            scores[-1].bias.data.fill_(-1.5)
            scores[-1].weight.data.mul_(3)
    with tempfile.TemporaryDirectory() as folder:
        here = os.getcwd()
        os.chdir(folder)
        try:
            made = network.export(format="onnx", imgsz=side, opset=opset, simplify=False, **{o: True for o in options})
            shutil.move(os.path.abspath(made), path)
        finally:
            os.chdir(here)
    sides = [(side, side)] + ([(side + 64, side - 64)] if "dynamic" in options else [])
    return [[RNG.random((1, 3, h, w)).astype("f4")] for h, w in sides]


# --- jax2onnx -------------------------------------------------------------------------------------------------------------

def jax_models():
    import jax
    import jax.numpy as jnp
    from flax import nnx
    from jax import lax

    class Block(nnx.Module):
        def __init__(self, rngs):
            self.attention = nnx.MultiHeadAttention(num_heads=4, in_features=64, decode=False, rngs=rngs)
            self.norms = nnx.List([nnx.LayerNorm(64, rngs=rngs) for _ in range(2)])
            self.up, self.down = nnx.Linear(64, 128, rngs=rngs), nnx.Linear(128, 64, rngs=rngs)

        def __call__(self, x):
            x = x + self.attention(self.norms[0](x))
            return x + self.down(nnx.gelu(self.up(self.norms[1](x))))

    class Images(nnx.Module):
        def __init__(self, rngs):
            self.first, self.second = nnx.Conv(3, 16, (3, 3), rngs=rngs), nnx.Conv(16, 32, (3, 3), strides=2, rngs=rngs)
            self.norm, self.last = nnx.GroupNorm(32, num_groups=4, rngs=rngs), nnx.Linear(32 * 64, 10, rngs=rngs)

        def __call__(self, x):
            x = nnx.avg_pool(nnx.relu(self.first(x)), window_shape=(2, 2), strides=(2, 2))
            return self.last(nnx.silu(self.norm(self.second(x))).reshape(x.shape[0], -1))

    def recurrent(kind):
        cell = kind(in_features=16, hidden_features=32, rngs=nnx.Rngs(0))
        graph, state = nnx.split(cell)
        start = cell.initialize_carry((2, 16), nnx.Rngs(0))
        return lambda x: lax.scan(lambda h, v: nnx.merge(graph, state)(h, v), start, jnp.swapaxes(x, 0, 1))[1]

    return {
        "transformer": lambda: (Block(nnx.Rngs(0)), [("B", 20, 64)]), "images": lambda: (Images(nnx.Rngs(0)), [("B", 32, 32, 3)]),
        "gru": lambda: (recurrent(nnx.GRUCell), [(2, 12, 16)]), "lstm": lambda: (recurrent(nnx.OptimizedLSTMCell), [(2, 12, 16)]),
        "attention": lambda: (lambda q, k, v: jax.nn.dot_product_attention(q, k, v, is_causal=True), [(2, 12, 4, 16)] * 3),
        "while": lambda: (lambda x: lax.while_loop(lambda c: jnp.sum(c[0]) < 100, lambda c: (c[0] * 1.5 + 0.1, c[1] + 1), (jnp.abs(x), 0)), [(5,)]),
        "fori": lambda: (lambda x: lax.fori_loop(0, x.shape[0], lambda i, c: c.at[i].set(c[i] * 2 + c[i - 1]), x), [(5,)]),
        "scan": lambda: (lambda x: lax.scan(lambda c, r: (c * 0.5 + r, jnp.tanh(c + r)), jnp.zeros(6), x), [(9, 6)]),
        "gradient": lambda: (jax.grad(lambda x: jnp.sum(jnp.tanh(x) ** 2)), [(4, 5)]),
        "spectrum": lambda: (lambda x: jnp.abs(jnp.fft.rfft(x)), [(3, 32)]),
        "segments": lambda: (lambda x: (jax.ops.segment_sum(x, jnp.array([0, 1, 1, 2, 0]), 3), jnp.searchsorted(jnp.sort(x[:, 0]), x[:, 1])), [(5, 3)]),
    }


JAX = ("transformer", "images", "gru", "lstm", "attention", "while", "fori", "scan", "gradient", "spectrum", "segments")


def jax(name, path, opset):
    import onnx
    from jax2onnx import to_onnx
    function, inputs = jax_models()[name]()
    onnx.save(to_onnx(function, inputs, opset=max(opset, 21)), path)
    batches = (1, 3) if any("B" in dims for dims in inputs) else (1,)
    return [[floats(*[b if d == "B" else d for d in dims]) for dims in inputs] for b in batches]


# --- paddle2onnx ----------------------------------------------------------------------------------------------------------

PADDLE = ("LeNet", "resnet18", "mobilenet_v3_small", "shufflenet_v2_x1_0", "squeezenet1_1", "googlenet", "densenet121")


def paddle(name, path, opset):
    import paddle as library
    dims = (1, 28, 28) if name == "LeNet" else (3, 224, 224)
    library.seed(0)
    network = getattr(library.vision.models, name)()
    network.eval()
    spec = library.static.InputSpec([None, *dims], "float32", name="x")
    library.onnx.export(network, path.removesuffix(".onnx"), input_spec=[spec], opset_version=opset)
    return [[floats(b, *dims)] for b in (1, 2)]


# --- trees ----------------------------------------------------------------------------------------------------------------

def grown(library, kind, wanted):
    """A model of XGBoost, LightGBM or CatBoost."""
    options = {"catboost": {"verbose": 0, "iterations": 100, "depth": 6}, "lightgbm": {"verbose": -1, "n_estimators": 100}}
    return getattr(__import__(library), kind)(**options.get(library, {"n_estimators": 100})).fit(ROWS, wanted)


TREES = {
    "xgboost": ("xgboost", "XGBClassifier", TWO), "xgboost_classes": ("xgboost", "XGBClassifier", THREE), "xgboost_number": ("xgboost", "XGBRegressor", NUMBER),
    "xgboost_forest": ("xgboost", "XGBRFClassifier", TWO), "lightgbm": ("lightgbm", "LGBMClassifier", TWO), "lightgbm_classes": ("lightgbm", "LGBMClassifier", THREE),
    "lightgbm_number": ("lightgbm", "LGBMRegressor", NUMBER), "catboost": ("catboost", "CatBoostClassifier", TWO),
    "catboost_classes": ("catboost", "CatBoostClassifier", THREE), "catboost_number": ("catboost", "CatBoostRegressor", NUMBER),
}


def trees(name, path, opset):
    import onnx
    library, kind, wanted = TREES[name]
    model = grown(library, kind, wanted)
    if library == "catboost":
        model.save_model(path, format="onnx")
    else:
        import onnxmltools
        from onnxmltools.convert.common.data_types import FloatTensorType
        convert = getattr(onnxmltools, "convert_" + library)
        onnx.save(convert(model, initial_types=[("input", FloatTensorType([None, 10]))], target_opset=min(opset, 15)), path)
    return [[ROWS[:1]], [ROWS[10:110]]]


SOURCES = {"yl": (ultralytics, ULTRALYTICS), "jx": (jax, JAX), "pd": (paddle, PADDLE), "gb": (trees, TREES)}
NAMES = [f"{prefix}_{name}" for prefix, (_, names) in SOURCES.items() for name in names]


def export(name, path, opset):
    """Writes the file; returns the inputs of each data set."""
    prefix, name = name.split("_", 1)
    return SOURCES[prefix][0](name, path, opset)
