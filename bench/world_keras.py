# SPDX-License-Identifier: MIT
"""What TensorFlow and Keras export, with random weights, as tf2onnx and Keras write it: for world.py.

A name begins with where the model comes from, ka (an architecture of keras.applications), kl (a network of Keras's layers) or tf (a
function of TensorFlow), and may end in how it is written: nothing (tf2onnx, channels behind), +nchw (tf2onnx, the input's channels
before), +keras (Keras's own exporter), or a file of TFLite that tf2onnx reads, +float, +half (weights), +dynamic (weights of 8
bits), +int8 (all of it, images as bytes), +int16 (activations of 16 bits).
"""
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import keras
import numpy as np
import tensorflow as tf
import tf2onnx
from keras import layers as L

RNG = np.random.default_rng(11)
F4, I4, I8 = tf.float32, tf.int32, tf.int64

APPLICATIONS = {name: 224 for name in (
    "MobileNet", "MobileNetV2", "MobileNetV3Small", "MobileNetV3Large", "EfficientNetB0", "EfficientNetV2B0", "EfficientNetV2S",
    "NASNetMobile", "Xception", "DenseNet121", "InceptionV3", "InceptionResNetV2", "ConvNeXtTiny", "ResNet50", "ResNet50V2",
    "VGG16")} | {"NASNetLarge": 331, "EfficientNetV2S": 384, "Xception": 299, "InceptionV3": 299, "InceptionResNetV2": 299}


def text(vocabulary=300, width=64, mask=False):
    tokens = keras.Input((None,), dtype="int32", name="tokens")
    return tokens, L.Embedding(vocabulary, width, mask_zero=mask)(tokens)


def recurrent(*made, mask=False):
    tokens, x = text(mask=mask)
    for layer in made:
        x = layer(x)
    return keras.Model(tokens, L.Dense(5, activation="softmax")(x))


def transformer():
    tokens, x = text(width=128)
    for _ in range(2):
        x = L.LayerNormalization()(x + L.MultiHeadAttention(4, 32)(x, x, use_causal_mask=True))
        x = L.LayerNormalization()(x + L.Dense(128)(L.Dense(256, activation=lambda v: keras.activations.gelu(v, approximate=True))(x)))
    return keras.Model(tokens, L.Dense(300)(L.GlobalAveragePooling1D()(x)))


def grouped():
    tokens, x = text(width=128)
    x = L.RMSNormalization()(x + L.GroupQueryAttention(32, 4, 2)(x, x))
    return keras.Model(tokens, L.Dense(5)(x))


def translator():
    """An LSTM whose last state is where another one begins, and additive and plain attention."""
    a, x = text(mask=True)
    y, *state = L.LSTM(64, return_sequences=True, return_state=True)(x)
    b = keras.Input((None,), dtype="int32", name="before")
    z = L.LSTM(64, return_sequences=True)(L.Embedding(300, 64, mask_zero=True)(b), initial_state=state)
    z = L.Concatenate()([z, L.Attention(use_scale=True)([z, y]), L.AdditiveAttention()([z, y])])
    return keras.Model([a, b], L.Dense(300, activation="softmax")(z))


def unet():
    image = keras.Input((None, None, 3), name="image")
    x, kept = image, []
    for c in (16, 32, 64):
        x = L.LeakyReLU(negative_slope=0.1)(L.BatchNormalization()(L.SeparableConv2D(c, 3, padding="same")(x)))
        kept.append(x)
        x = L.MaxPooling2D()(x)
    ups = (L.Conv2DTranspose(32, 3, 2, padding="same"), L.UpSampling2D(2, interpolation="bilinear"), L.UpSampling2D(2))
    for up, other in zip(ups, reversed(kept)):
        x = L.PReLU(shared_axes=[1, 2])(L.Conv2D(32, 3, padding="same")(L.Concatenate()([up(x), other])))
    return keras.Model(image, L.Conv2D(4, 1, activation="softmax")(x))


def waves():
    """Dilated causal convolutions, and back up to where they began."""
    wave = keras.Input((None, 1), name="wave")
    x = L.Conv1D(32, 8, 4, padding="same")(wave)
    for k in (1, 2, 4):
        gates = L.Conv1D(64, 3, padding="causal", dilation_rate=k)(x)
        x = x + L.Conv1D(32, 1)(L.Activation("tanh")(gates[..., :32]) * L.Activation("sigmoid")(gates[..., 32:]))
    x = L.AveragePooling1D(2)(L.SeparableConv1D(32, 5, padding="same")(x))
    return keras.Model(wave, L.Conv1DTranspose(1, 16, 8, padding="same")(L.DepthwiseConv1D(3, padding="same")(x)))


def volumes():
    volume = keras.Input((16, 16, 16, 2), name="volume")
    x = L.MaxPooling3D()(L.Conv3D(16, 3, padding="same", activation="relu")(volume))
    x = L.AveragePooling3D(2)(L.BatchNormalization()(L.Conv3D(32, 3, strides=1, activation="elu", padding="same")(x)))
    x = L.UpSampling3D(2)(L.Conv3DTranspose(16, 3, 1, padding="same")(x))
    return keras.Model(volume, L.Conv3DTranspose(2, 3, 2, padding="same")(x))


def films():
    film = keras.Input((None, 16, 16, 3), name="film")
    x = L.ConvLSTM2D(8, 3, padding="same", return_sequences=True)(film)
    x = L.Bidirectional(L.ConvLSTM2D(8, 3, padding="same"))(x)
    return keras.Model(film, L.Conv2D(3, 3, padding="same", activation="sigmoid")(x))


def frames():
    film = keras.Input((None, 32, 32, 3), name="film")
    x = L.TimeDistributed(L.MaxPooling2D())(L.TimeDistributed(L.Conv2D(16, 3, activation="relu"))(film))
    return keras.Model(film, L.Dense(5)(L.GRU(32)(L.TimeDistributed(L.GlobalAveragePooling2D())(x))))


def table():
    """Numbers and categories as Keras's layers of preprocessing have them."""
    numbers, kinds = keras.Input((6,), name="numbers"), keras.Input((2,), dtype="int32", name="kinds")
    normal = L.Normalization(mean=np.arange(6.0), variance=1 + np.arange(6.0))(numbers)
    bins = L.CategoryEncoding(5, output_mode="multi_hot")(L.Discretization(bin_boundaries=[-1.0, -0.2, 0.3, 1.0])(numbers))
    x = L.Concatenate()([normal, bins, L.CategoryEncoding(12, output_mode="count")(kinds), L.Flatten()(L.Embedding(12, 4)(kinds))])
    x = L.UnitNormalization()(L.Dense(32, activation="selu")(x))
    return keras.Model([numbers, kinds], L.Dense(1, activation="sigmoid")(L.Dense(16, activation="mish")(x)))


def oddments():
    image = keras.Input((64, 64, 3), name="image")
    x = L.Rescaling(1 / 127.5, offset=-1)(L.CenterCrop(56, 56)(L.Resizing(72, 80)(image)))
    x = L.GroupNormalization(4)(L.Conv2D(16, 3, strides=2, padding="same", activation="silu")(L.ZeroPadding2D((1, 2))(x)))
    x = L.DepthwiseConv2D(5, strides=2, padding="same", depth_multiplier=2, activation="hard_silu")(x)
    x = L.Conv2D(32, 3, dilation_rate=2, padding="same", activation="relu6")(L.Cropping2D(1)(x))
    x = L.Maximum()([x, L.Conv2D(32, 3, groups=4, padding="same", activation="hard_sigmoid")(x)])
    x = L.Permute((2, 1, 3))(L.LayerNormalization()(L.AveragePooling2D(3, 2, padding="same")(x)))
    x = L.Dot(axes=-1, normalize=True)([L.GlobalMaxPooling2D()(x), L.GlobalAveragePooling2D()(x)])
    return keras.Model(image, L.RepeatVector(3)(L.Dense(4, activation="softplus")(x)))


def simple():
    image = keras.Input((28, 28, 1), name="image")
    x = image
    for c in (16, 32):
        x = L.MaxPooling2D()(L.Conv2D(c, 3, activation="relu")(x))
    return keras.Model(image, L.Dense(10, activation="softmax")(L.Flatten()(x)))


TOKENS, IMAGE = {"tokens": ("int32", (1, 30), (3, 17))}, {"image": ("float32", (1, 64, 96, 3), (2, 96, 64, 3))}
# name: (what makes the network, its inputs in two data sets)
LAYERS = {
    "simple": (simple, {"image": ("float32", (1, 28, 28, 1), (3, 28, 28, 1))}),
    "lstm": (lambda: recurrent(L.LSTM(64, return_sequences=True), L.LSTM(32)), TOKENS),
    "lstm_masked": (lambda: recurrent(L.Bidirectional(L.LSTM(64, return_sequences=True)), L.LSTM(32), mask=True), TOKENS),
    "lstm_back": (lambda: recurrent(L.LSTM(64, return_sequences=True, go_backwards=True), L.LSTM(32, use_bias=False)), TOKENS),
    "gru": (lambda: recurrent(L.GRU(64, return_sequences=True), L.GRU(32)), TOKENS),
    "gru_masked": (lambda: recurrent(L.Bidirectional(L.GRU(64, return_sequences=True)), L.GRU(32), mask=True), TOKENS),
    "gru_before": (lambda: recurrent(L.GRU(64, return_sequences=True, reset_after=False), L.GRU(32)), TOKENS),
    "rnn": (lambda: recurrent(L.Bidirectional(L.SimpleRNN(64, return_sequences=True), merge_mode="sum"), L.SimpleRNN(32)), TOKENS),
    "cells": (lambda: recurrent(L.RNN([L.LSTMCell(32), L.GRUCell(24)], return_sequences=True), L.GlobalMaxPooling1D()), TOKENS),
    "transformer": (transformer, TOKENS), "grouped": (grouped, TOKENS),
    "translator": (translator, TOKENS | {"before": ("int32", (1, 12), (3, 20))}),
    "unet": (unet, IMAGE), "waves": (waves, {"wave": ("float32", (1, 1600, 1), (2, 800, 1))}),
    "volumes": (volumes, {"volume": ("float32", (1, 16, 16, 16, 2), (2, 16, 16, 16, 2))}),
    "films": (films, {"film": ("float32", (1, 5, 16, 16, 3), (2, 3, 16, 16, 3))}),
    "frames": (frames, {"film": ("float32", (1, 5, 32, 32, 3), (2, 8, 32, 32, 3))}),
    "table": (table, {"numbers": ("float32", (1, 6), (20, 6)), "kinds": ("int32", (1, 2), (20, 2))}),
    "oddments": (oddments, {"image": ("float32", (1, 64, 64, 3), (2, 64, 64, 3))}),
}


def spec(shape, dtype=F4):
    return tf.TensorSpec(shape, dtype)


def collatz(n):
    return tf.while_loop(lambda x, k: tf.reduce_any(x > 1), lambda x, k: (tf.where(x % 2 == 0, x // 2, tf.where(x > 1, 3 * x + 1, x)),
                                                                         k + tf.cast(x > 1, I4)), (n, tf.zeros_like(n)))


def collected(x):
    rows = tf.TensorArray(F4, size=tf.shape(x)[0], element_shape=(8,))
    state = tf.zeros(8)
    for k in tf.range(tf.shape(x)[0]):
        state = 0.5 * state + tf.tanh(x[k])
        rows = rows.write(k, state)
    return rows.stack(), state


def branched(x):
    return tf.cond(tf.reduce_sum(x) > 0, lambda: x * 2, lambda: tf.nn.relu(x) - 1), tf.switch_case(
        tf.cast(tf.reduce_max(x), I4), [lambda: x + 1, lambda: tf.reverse(x, [0]), lambda: x * x])


def boxes(n):
    corner = RNG.random((n, 2), dtype="f4") * 0.7
    return np.concatenate([corner, corner + 0.05 + 0.25 * RNG.random((n, 2), dtype="f4")], 1)


def spectrum(x):
    s = tf.abs(tf.signal.stft(x, 256, 128, fft_length=256))
    mel = tf.tensordot(s, tf.signal.linear_to_mel_weight_matrix(20, 129, 16000, 80.0, 7600.0), 1)
    return tf.math.log(mel + 1e-6)


def attended(q, k, v):
    weights = tf.nn.softmax(tf.einsum("bqhd,bkhd->bhqk", q, k) / 4.0)
    return tf.einsum("bhqk,bkhd->bqhd", weights, v), tf.einsum("bqhd,bkhd->bh", q, k)


def sorted_all(x):
    v, i = tf.math.top_k(x, 3)
    return v, i, tf.sort(x, -1), tf.argsort(x, -1, direction="DESCENDING"), tf.nn.in_top_k([1, 2], x, 2)


def indexed(x, i):
    return (tf.gather_nd(x, i[:, None]), tf.scatter_nd(i[:, None], tf.gather(x, i), tf.shape(x, I4)),
            tf.tensor_scatter_nd_update(x, i[:, None], -tf.gather(x, i)), tf.gather(x, i, axis=1), tf.gather(x, tf.tile(i[None], [10, 1]),
                                                                                                       batch_dims=1),
            tf.tensor_scatter_nd_add(x, i[:, None], tf.gather(x, i)))


def chosen(x):
    return tf.boolean_mask(x, x[:, 0] > 0), tf.where(x > 0.5), tf.unique(tf.cast(x[:, 0] * 2, I4))[0], tf.where(x > 0, x, -x)


def shaped(x):
    return (tf.roll(x, [1, -2], [0, 1]), x[::-1, 1:-1:2, tf.newaxis, ..., 0], tf.pad(x, [[0, 0], [1, 2], [0, 0]], "REFLECT"),
            tf.pad(x, [[1, 0], [1, 1], [2, 1]], "SYMMETRIC"), tf.linalg.band_part(x, 1, 2), tf.linalg.diag_part(x[0, :5, :5]),
            tf.reverse_sequence(x, tf.range(tf.shape(x)[0]) + 1, 1), tf.cumsum(x, 1, exclusive=True, reverse=True),
            tf.linalg.diag(x[:, 0]), tf.tile(x, [1, 2, 1]), tf.stack(tf.unstack(x, axis=2), 0), tf.repeat(x, 2, axis=1),
            tf.reshape(x, (-1, tf.shape(x)[2])), tf.meshgrid(x[0, 0], x[0, :, 0]), tf.transpose(x, [2, 0, 1]),
            tf.sequence_mask([1, 3], 5), tf.one_hot(tf.cast(x[0, 0] * 3, I4), 4), tf.broadcast_to(x[:, :1], tf.shape(x)))


def counted(x):
    return (x // 3, tf.math.floormod(x, 5), tf.truncatediv(x, 4), tf.math.mod(tf.cast(x, F4), 2.5), tf.bitwise.bitwise_and(x, 6),
            tf.bitwise.left_shift(x, 2), tf.math.bincount(tf.abs(x), minlength=8, maxlength=8), tf.reduce_all(x > 0), tf.argmax(x),
            tf.math.unsorted_segment_sum(tf.cast(x, F4), tf.abs(x) % 4, 4), tf.math.segment_sum(tf.cast(x, F4), tf.range(tf.size(x)) // 3),
            tf.math.cumprod(tf.cast(x, F4) / 4), tf.clip_by_value(x, -2, 3), tf.linspace(0.0, 1.0, 7), tf.math.maximum(x, 2),
            tf.math.squared_difference(x, 3), tf.math.pow(x, 2), tf.cast(x, tf.bool), tf.range(0, tf.size(x), 2))


def computed(x):
    return (tf.math.erf(x), tf.math.softplus(x), tf.math.rint(x), tf.round(x), tf.math.rsqrt(x * x + 1), tf.math.log1p(tf.abs(x)), tf.math.expm1(x),
            tf.math.reduce_logsumexp(x, -1), tf.norm(x, axis=-1), *tf.nn.moments(x, [0]), tf.math.l2_normalize(x, -1), tf.atan2(x, x + 0.5),
            tf.nn.log_softmax(x), tf.nn.gelu(x), tf.nn.gelu(x, approximate=True), tf.nn.silu(x), tf.math.sign(x), tf.math.divide_no_nan(x, tf.round(x)),
            tf.clip_by_norm(x, 1.0), tf.math.is_nan(x), tf.math.reduce_std(x, 1), tf.math.reduce_prod(x, 1), tf.nn.leaky_relu(x), tf.nn.crelu(x),
            tf.math.xdivy(x, x + 3), tf.math.sinh(x), tf.math.acosh(1 + tf.abs(x)))


def resized(x):
    size = (20, 36)
    return tuple(tf.image.resize(x, size, how) for how in ("bilinear", "nearest", "bicubic")) + (
        tf.compat.v1.image.resize_bilinear(x, size, align_corners=True), tf.compat.v1.image.resize_nearest_neighbor(x, size),
        tf.compat.v1.image.resize_bilinear(x, size, half_pixel_centers=False))


def pictures(x):
    return (tf.image.rgb_to_grayscale(x), tf.image.adjust_contrast(x, 1.5), tf.image.adjust_brightness(x, 0.1), tf.image.flip_left_right(x),
            tf.image.central_crop(x, 0.5), tf.image.per_image_standardization(x), tf.image.rot90(x), tf.image.sobel_edges(x),
            tf.image.total_variation(x), tf.image.extract_patches(x, [1, 3, 3, 1], [1, 2, 2, 1], [1, 1, 1, 1], "SAME"), tf.nn.space_to_depth(x, 2),
            tf.nn.depth_to_space(tf.tile(x, [1, 1, 1, 4]), 2), tf.image.adjust_gamma(x, 0.8), tf.nn.lrn(x, 2), tf.image.rgb_to_yuv(x))


def windows(x):
    k = tf.constant(RNG.standard_normal((3, 3, 3, 4)).astype("f4"))
    return (tf.nn.conv2d(x, k, 2, "SAME"), tf.nn.conv2d(x, k, 1, [[0, 0], [1, 0], [0, 2], [0, 0]]), tf.nn.atrous_conv2d(x, k, 2, "VALID"),
            tf.nn.depthwise_conv2d(x, k, [1, 1, 1, 1], "SAME"), tf.nn.max_pool2d(x, 3, 2, "SAME"), tf.nn.avg_pool2d(x, 3, 2, "SAME"),
            tf.space_to_batch(x, [2, 2], [[0, 0], [0, 0]]), tf.nn.conv2d_transpose(tf.nn.conv2d(x, k, 2, "SAME"), k, tf.shape(x), 2, "SAME"),
            tf.nn.depthwise_conv2d(x, k, [1, 1, 1, 1], "SAME", dilations=[2, 2]), tf.nn.pool(x, (2, 2), "MAX", strides=(1, 1), padding="SAME"))


def floats(*dims):
    return RNG.standard_normal(dims).astype("f4")


# name: (function, the types of its inputs, what they are in each data set)
FUNCTIONS = {
    "while": (collatz, [spec((None,), I4)], [[np.arange(1, n, dtype="i4")] for n in (9, 28)]),
    "collected": (collected, [spec((None, 8))], [[floats(n, 8)] for n in (5, 11)]),
    "cond": (branched, [spec((None,))], [[np.array(x, "f4")] for x in ([1.2, 2, -1], [-0.5, 0.1], [1.5, -2, -1, 0.2])]),
    "map_fn": (lambda x: tf.map_fn(lambda r: tf.cumsum(r) * tf.reduce_max(r), x), [spec((None, 6))], [[floats(n, 6)] for n in (3, 7)]),
    "scan": (lambda x: tf.scan(lambda a, r: a * 0.5 + r, x), [spec((None, 6))], [[floats(n, 6)] for n in (3, 7)]),
    "nms": (lambda b, s: tf.image.non_max_suppression(b, s, 10, 0.4, 0.1), [spec((None, 4)), spec((None,))],
            [[boxes(n), RNG.random(n, dtype="f4")] for n in (30, 80)]),
    "nms_padded": (lambda b, s: tf.image.non_max_suppression_padded(b, s, 10, 0.4, 0.1, pad_to_max_output_size=True),
                   [spec((30, 4)), spec((30,))], [[boxes(30), RNG.random(30, dtype="f4")]]),
    "nms_combined": (lambda b, s: tf.image.combined_non_max_suppression(b[:, :, None], s, 5, 10, 0.4, 0.1), [spec((1, 30, 4)), spec((1, 30, 3))],
                     [[boxes(30)[None], RNG.random((1, 30, 3), dtype="f4")]]),
    "crop_resize": (lambda x, b: tf.image.crop_and_resize(x, b, tf.zeros(tf.shape(b)[:1], I4), (14, 14)),
                    [spec((1, 32, 32, 3)), spec((None, 4))], [[floats(1, 32, 32, 3), boxes(n)] for n in (5, 9)]),
    "stft": (spectrum, [spec((None, 4000))], [[floats(b, 4000)] for b in (1, 3)]),
    "stft_any": (spectrum, [spec((1, None))], [[floats(1, n)] for n in (4000, 2500)]),
    "fft": (lambda x: (tf.abs(tf.signal.rfft(x)), tf.signal.irfft(tf.signal.rfft(x) * 2, [64]), tf.abs(tf.signal.fft2d(tf.cast(x, tf.complex64)))),
            [spec((8, 64))], [[floats(8, 64)]]),
    "rfft": (lambda x: tf.abs(tf.signal.rfft(x)), [spec((8, 64))], [[floats(8, 64)]]),
    "rfft2d": (lambda x: tf.abs(tf.signal.rfft2d(x)), [spec((3, 16, 24))], [[floats(3, 16, 24)]]),
    "einsum": (attended, [spec((None, None, 4, 16))] * 3, [[floats(b, t, 4, 16) for _ in range(3)] for b, t in ((1, 9), (2, 20))]),
    "sorted": (sorted_all, [spec((2, 9))], [[floats(2, 9)]]), "indexed": (indexed, [spec((10, 6)), spec((None,), I4)],
                                                                       [[floats(10, 6), np.array(i, "i4")] for i in ([1, 3], [5, 0, 2])]),
    "chosen": (chosen, [spec((None, 4))], [[floats(n, 4)] for n in (6, 15)]), "shaped": (shaped, [spec((2, 6, 7))], [[floats(2, 6, 7)]]),
    "counted": (counted, [spec((12,), I4)], [[RNG.integers(-7, 8, 12).astype("i4")]]), "computed": (computed, [spec((None, 7))],
                                                                                                  [[floats(n, 7)] for n in (3, 5)]),
    "resized": (resized, [spec((1, 12, 18, 3))], [[floats(1, 12, 18, 3)]]),
    "resized_any": (lambda x: tf.image.resize(x, tf.shape(x)[1:3] * 2), [spec((1, None, None, 3))], [[floats(1, h, 9, 3)] for h in (12, 7)]),
    "pictures": (pictures, [spec((1, 12, 16, 3))], [[floats(1, 12, 16, 3) * 0.2 + 0.5]]),
    "windows": (windows, [spec((2, 12, 16, 3))], [[floats(2, 12, 16, 3)]]),
    "windows_any": (windows, [spec((None, None, None, 3))], [[floats(1, 12, 16, 3)], [floats(2, 14, 10, 3)]]),
}

FORMS = ("", "+keras", "+nchw", "+float", "+half", "+dynamic", "+int8", "+int16")
NAMES = [*("ka_" + n for n in APPLICATIONS), *("ka_" + n + f for n in ("MobileNetV2", "MobileNetV3Small", "EfficientNetB0", "ResNet50") for f in FORMS[1:]),
         *("kl_" + n for n in LAYERS), *("kl_" + n + "+keras" for n in LAYERS), *("kl_" + n + "+float" for n in LAYERS),
         *("kl_" + n + f for n in ("simple", "unet", "waves", "oddments") for f in ("+dynamic", "+int8")),  # of recurrent ones the converter crashes
         *("tf_" + n for n in FUNCTIONS), *("tf_" + n + "+float" for n in FUNCTIONS)]


def values(kind, dims):
    return RNG.integers(1, 12, dims).astype(kind) if kind.startswith("int") else floats(*dims)


def build(name):
    """The function, the types of its inputs and what they are in each data set; the network, if it is one."""
    kind, name = name.split("_", 1)
    if kind == "tf":
        return FUNCTIONS[name] + (None,)
    keras.utils.set_random_seed(0)
    keras.backend.clear_session()
    if kind == "ka":
        side = APPLICATIONS[name]
        model = getattr(keras.applications, name)(weights=None, classifier_activation=None, **(
            {"include_preprocessing": False} if "EfficientNetV2" in name else {}))
        sets = [[floats(b, side, side, 3)] for b in (1, 2)]
        for layer in model.layers:  # as if it had learned something
            if isinstance(layer, L.BatchNormalization):
                layer.set_weights([w + 0.3 * RNG.random(w.shape) for w in layer.get_weights()])
    else:
        make, inputs = LAYERS[name]
        model, sets = make(), [[values(v[0], v[k]) for v in inputs.values()] for k in (1, 2)]
    types = [tf.TensorSpec(x.shape, x.dtype, name=x.name.split(":")[0]) for x in model.inputs]
    return (lambda *x: model(list(x) if len(x) > 1 else x[0], training=False)), types, sets, model


def lite(function, types, sets, form):
    """The bytes of a TFLite file."""
    fixed = [tf.TensorSpec(x.shape, t.dtype, name=t.name) for x, t in zip(sets[0], types)]
    converter = tf.lite.TFLiteConverter.from_concrete_functions([tf.function(function, input_signature=fixed).get_concrete_function()])
    if form != "+float":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if form == "+half":
        converter.target_spec.supported_types = [tf.float16]
    if form in ("+int8", "+int16"):
        converter.representative_dataset = lambda: iter([sets[0]] * 2)
        kind = tf.lite.OpsSet.TFLITE_BUILTINS_INT8
        if form == "+int16":
            kind = tf.lite.OpsSet.EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8
        converter.target_spec.supported_ops = [kind]
        if form == "+int8" and all(t.dtype == F4 and len(t.shape) == 4 for t in types):
            converter.inference_input_type = converter.inference_output_type = tf.int8
    return converter.convert()


def export(name, path, opset):
    """Writes the file; returns the inputs of each data set."""
    base, _, form = name.partition("+")
    form = form and "+" + form
    function, types, sets, model = build(base)
    if form == "+keras":
        model(sets[0] if len(sets[0]) > 1 else sets[0][0])
        model.export(path, format="onnx", verbose=False)
    elif form in ("", "+nchw"):
        names = [f"x{k}" for k in range(len(types))]
        given = [tf.TensorSpec(t.shape, t.dtype, name=n) for t, n in zip(types, names)]
        images = [n for t, n in zip(types, names) if form and len(t.shape) == 4]
        tf2onnx.convert.from_function(tf.function(function, input_signature=given), input_signature=given, opset=opset, inputs_as_nchw=images,
                                      output_path=path)
        if images:
            sets = [[x.transpose(0, 3, 1, 2) if x.ndim == 4 else x for x in s] for s in sets]
    else:
        data = lite(function, types, sets, form)
        with open(path + ".tflite", "wb") as f:
            f.write(data)
        tf2onnx.convert.from_tflite(path + ".tflite", opset=opset, output_path=path)
        os.remove(path + ".tflite")
        sets = [[np.clip(x * 50, -127, 127).astype("i1") if form == "+int8" and x.ndim == 4 else x for x in sets[0]]]
    return sets
