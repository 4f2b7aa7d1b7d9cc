#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What onnxruntime's tools make of a model: half floats, its optimisers' graphs, quantised weights and activations.

usage: world_variants.py [--ashlar PROGRAM] [--rounds N] [--threads N] [--type TYPE] [--heads N] [--only PATTERN] OUT FOLDER ...

FOLDER/model.onnx with FOLDER/test_data_set_K/input_*.pb are the models, as world.py leaves them. Each variant is OUT/NAME-VARIANT, with
onnxruntime's results (graph optimisations off), and gets a row as world.py prints it. TYPE is the model's for onnxruntime's optimiser
of transformers (bert, gpt2, vit, t5, clip, unet ...), HEADS its heads of attention (0: as the optimiser finds them). What a tool cannot
convert, and what onnxruntime does not run afterwards (operators for GPUs alone, models that the tool broke), is left out with the reason.
"""
import argparse
import fnmatch
import glob
import os
import shutil
import tempfile

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, QuantFormat, QuantType, quantize_dynamic, quantize_static

import world

U8, I8, U16, I16, I4, U4 = (getattr(QuantType, name) for name in ("QUInt8", "QInt8", "QUInt16", "QInt16", "QInt4", "QUInt4"))
FLOATS = ("LayerNormalization", "Softmax", "Add", "Relu", "Sigmoid", "Pow", "ReduceMean", "Sqrt", "LSTM", "Loop", "If")


class Reader(CalibrationDataReader):
    def __init__(self, sets):
        self.sets = iter(sets)

    def get_next(self):
        return next(self.sets, None)


def half(**options):
    def make(source, path, sets, args):
        from onnxruntime.transformers.float16 import convert_float_to_float16
        onnx.save(convert_float_to_float16(onnx.load(source), **options), path)
    return make


def own(level):
    def make(source, path, sets, args):
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, "ORT_ENABLE_" + level)
        options.optimized_model_filepath = path
        onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"], disabled_optimizers=["NchwcTransformer"])
    return make


def fused(gpu=False, floats=True):
    def make(source, path, sets, args):
        from onnxruntime.transformers import optimizer
        model = optimizer.optimize_model(source, args.type, args.heads, 0, opt_level=0, use_gpu=gpu)
        if not floats:
            model.convert_float_to_float16(keep_io_types=False)
        model.save_model_to_file(path)
    return make


def static(activations, weights, form="QDQ", method="MinMax", channels=False, reduced=False, **extra):
    def make(source, path, sets, args):
        quantize_static(source, path, Reader(sets), getattr(QuantFormat, form), per_channel=channels, reduce_range=reduced,
                        activation_type=activations, weight_type=weights, calibrate_method=getattr(CalibrationMethod, method),
                        extra_options=extra)
    return make


def dynamic(weights, **options):
    def make(source, path, sets, args):
        quantize_dynamic(source, path, weight_type=weights, **options)
    return make


def few_bits(bits, block, symmetric, level=0, form="QOperator"):
    def make(source, path, sets, args):
        from onnxruntime.quantization import matmul_nbits_quantizer as tool
        how = tool.DefaultWeightOnlyQuantConfig(block_size=block, is_symmetric=symmetric, accuracy_level=level or None, bits=bits,
                                                quant_format=getattr(QuantFormat, form))
        quantizer = tool.MatMulNBitsQuantizer(onnx.load(source), algo_config=how)
        quantizer.process()
        quantizer.model.save_model_to_file(path)
    return make


def codes(kind):
    def make(source, path, sets, args):
        from onnxruntime.quantization.matmul_bnb4_quantizer import MatMulBnb4Quantizer
        quantizer = MatMulBnb4Quantizer(onnx.load(source), kind, 64)
        quantizer.process()
        quantizer.model.save_model_to_file(path)
    return make


VARIANTS = {
    "half": half(), "half_inside": half(keep_io_types=True), "half_mixed": half(keep_io_types=True, op_block_list=list(FLOATS)),
    "extended": own("EXTENDED"), "all": own("ALL"),
    "fused": fused(), "fused_gpu": fused(gpu=True), "fused_half": fused(floats=False),
    "u8s8": static(U8, I8), "u8s8_channels": static(U8, I8, channels=True), "u8u8_reduced": static(U8, U8, reduced=True),
    "s8s8_channels": static(I8, I8, channels=True), "s8s8_symmetric": static(I8, I8, ActivationSymmetric=True),
    "u8s8_asymmetric": static(U8, I8, WeightSymmetric=False), "u8s8_pairs": static(U8, I8, AddQDQPairToWeight=True, DedicatedQDQPair=True),
    "u8s8_bias": static(U8, I8, QuantizeBias=False), "u8s8_force": static(U8, I8, ForceQuantizeNoInputCheck=True, MatMulConstBOnly=False),
    "u8s8_entropy": static(U8, I8, method="Entropy"), "u8s8_percentile": static(U8, I8, method="Percentile"),
    "u16s8": static(U16, I8, UseQDQContribOps=True), "s16s8": static(I16, I8, UseQDQContribOps=True, ActivationSymmetric=True),
    "u16u16": static(U16, U16, UseQDQContribOps=True), "s16s16": static(I16, I16, UseQDQContribOps=True),
    "u8s4": static(U8, I4), "u8u4_channels": static(U8, U4, channels=True),
    "q_u8s8": static(U8, I8, "QOperator"), "q_u8s8_channels": static(U8, I8, "QOperator", channels=True), "q_u8u8": static(U8, U8, "QOperator"),
    "q_s8s8": static(I8, I8, "QOperator"), "q_s8s8_symmetric": static(I8, I8, "QOperator", channels=True, ActivationSymmetric=True),
    "d_s8": dynamic(I8), "d_u8": dynamic(U8), "d_s8_channels": dynamic(I8, per_channel=True, reduce_range=True),
    **{f"bits{b}_{size}{'' if symmetric else '_zero'}{'_level4' if level else ''}": few_bits(b, size, symmetric, level)
       for b in (4, 8) for size, symmetric, level in ((16, True, 0), (32, False, 4), (64, True, 4), (128, False, 0), (256, True, 0))},
    "bits2_32": few_bits(2, 32, True), "bits4_32_qdq": few_bits(4, 32, True, form="QDQ"), "bits4_64_zero_qdq": few_bits(4, 64, False, form="QDQ"),
    "fp4": codes(0), "nf4": codes(1),
}


def read_sets(folder):
    sets = []
    for data in sorted(glob.glob(os.path.join(folder, "test_data_set_*"))):
        tensors = []
        for path in sorted(glob.glob(os.path.join(data, "input_*.pb"))):
            with open(path, "rb") as f:
                tensors.append(onnx.TensorProto.FromString(f.read()))
        sets.append({t.name: numpy_helper.to_array(t) for t in tensors})
    return sets


def prepare(folder, source, make, args):
    os.makedirs(folder, exist_ok=True)
    path, sets = os.path.join(folder, "model.onnx"), read_sets(os.path.dirname(source))
    make(source, path, sets, args)
    types = {i.name: helper.tensor_dtype_to_np_dtype(i.type.tensor_type.elem_type) for i in onnx.load(path).graph.input}
    world.write_sets(folder, [{name: np.asarray(v, types[name]) for name, v in given.items() if name in types} for given in sets])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--ashlar", default=os.path.join(os.path.dirname(__file__), "..", "build", "ashlar"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--type", default="bert")
    parser.add_argument("--heads", type=int, default=0)
    parser.add_argument("--only", default="*")
    args = parser.parse_args()
    print(f"{'model':44} {'cpu s':>6} {'ashlar ms':>10} {'onnxruntime':>11} {'ratio':>6}  result")
    onnxruntime.set_default_logger_severity(3)
    with tempfile.TemporaryDirectory() as kernels:
        os.environ["ASHLAR_CACHE_DIR"] = kernels
        for source in args.folders:
            for variant in fnmatch.filter(VARIANTS, args.only):
                name = f"{os.path.basename(os.path.normpath(source))}-{variant}"
                folder = os.path.join(args.out, name)
                try:
                    if not os.path.isdir(os.path.join(folder, "test_data_set_0")):
                        prepare(folder, os.path.join(source, "model.onnx"), VARIANTS[variant], args)
                except Exception as error:  # of the tool, or of onnxruntime: told, and the others go on
                    shutil.rmtree(folder, ignore_errors=True)
                    print(f"{name:44} left out: {str(error).splitlines()[0] if str(error) else type(error).__name__}", flush=True)
                    continue
                world.report(name, args.ashlar, folder, args)


if __name__ == "__main__":
    main()
