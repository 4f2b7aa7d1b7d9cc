# SPDX-License-Identifier: MIT
"""Architectures of torchvision, timm, transformers and diffusers with random weights, as torch exports them: for world.py.

A name begins with its library's letters (tv, tm, hf, df). Sizes are small. A dim of an
input is a number or a name, of which SIDES says what it is in either data set.
"""
import torch

IMAGE = {"images": ("n", 3, "h", "w")}
TEXT = {"input_ids": ("n", "t"), "attention_mask": ("n", "t")}
SMALL = dict(hidden_size=128, num_hidden_layers=2, num_attention_heads=4, intermediate_size=256, vocab_size=500)
DECODER = dict(SMALL, max_position_embeddings=256)
GROUPED = dict(DECODER, num_key_value_heads=2, head_dim=32)
SIDES = {"n": (1, 2), "t": (24, 70), "s": (17, 40), "h": (224, 160), "w": (224, 192), "p": (12, 31), "a": (8000, 11200),
         "p+1": (13, 32)}

TORCHVISION = {
    **{name: None for name in (
        "convnext_tiny", "densenet121", "efficientnet_b0", "efficientnet_v2_s", "googlenet", "maxvit_t", "mobilenet_v3_small",
        "regnet_y_400mf", "shufflenet_v2_x1_0", "swin_t", "vit_b_32")},
    **{name: "detection" for name in (
        "fasterrcnn_mobilenet_v3_large_320_fpn", "fcos_resnet50_fpn", "keypointrcnn_resnet50_fpn", "maskrcnn_resnet50_fpn",
        "retinanet_resnet50_fpn", "ssdlite320_mobilenet_v3_large")},
    **{name: "segmentation" for name in ("deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large")},
    **{name: "video" for name in ("r2plus1d_18", "r3d_18")},
    "raft_small": "optical_flow",
}

TIMM = {name: 224 for name in (
    "mobilenetv4_conv_small", "mobilenetv4_hybrid_medium", "efficientvit_b0", "fastvit_t8", "ghostnetv2_100", "repvit_m0_9",
    "tiny_vit_5m_224", "levit_128s", "mobileone_s0", "convnextv2_atto", "edgenext_xx_small", "mobilevit_xxs", "nfnet_l0",
    "hrnet_w18_small", "coatnet_0_rw_224", "resnest14d", "poolformer_s12", "volo_d1_224", "mixer_s32_224", "gmlp_s16_224",
    "deit_tiny_patch16_224", "twins_svt_small", "pit_ti_224", "cait_xxs24_224", "visformer_tiny", "eva02_tiny_patch14_224",
    "hiera_tiny_224", "inception_next_tiny", "mambaout_femto", "starnet_s1", "vit_tiny_patch16_224", "swinv2_cr_tiny_ns_224",
    "nest_tiny", "xcit_nano_12_p16_224", "crossvit_tiny_240", "davit_tiny", "efficientformerv2_s0", "rdnet_tiny", "vovnet39a",
    "dpn48b", "selecsls42", "skresnet18", "eca_botnext26ts_256", "lambda_resnet26t", "halonet26t", "sequencer2d_s",
    "focalnet_tiny_srf", "gcvit_xxtiny", "maxxvit_rmlp_nano_rw_256", "tf_efficientnetv2_b0")} | {
    "crossvit_tiny_240": 240, "eca_botnext26ts_256": 256, "halonet26t": 256, "lambda_resnet26t": 256, "maxxvit_rmlp_nano_rw_256": 256}

# name: (model's class, its configuration's values, inputs)
AUDIO = {"input_values": ("n", "a")}
SPEECH = dict(SMALL, conv_dim=[64] * 7, num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4)
VISION = dict(hidden_size=96, num_hidden_layers=2, num_attention_heads=4, intermediate_size=192, image_size=96, patch_size=16)
PIXELS = {"pixel_values": (1, 3, 96, 96)}
SEQ2SEQ = {"input_ids": ("n", "s"), "attention_mask": ("n", "s"), "decoder_input_ids": ("n", "t")}
BART = dict(d_model=128, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
            encoder_ffn_dim=256, decoder_ffn_dim=256, vocab_size=500, max_position_embeddings=256)
T5 = dict(d_model=128, d_kv=32, d_ff=256, num_layers=2, num_heads=4, vocab_size=500)
HF = {
    "bert": ("BertModel", SMALL, TEXT),
    "distilbert": ("DistilBertModel", dict(dim=128, n_layers=2, n_heads=4, hidden_dim=256, vocab_size=500), TEXT),
    "roberta": ("RobertaForTokenClassification", DECODER, TEXT),
    "albert": ("AlbertModel", SMALL, TEXT),
    "electra": ("ElectraModel", SMALL, TEXT),
    "deberta_v2": ("DebertaV2Model", dict(SMALL, relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=32), TEXT),
    "mpnet": ("MPNetModel", SMALL, TEXT),
    "modernbert": ("ModernBertModel", dict(SMALL, pad_token_id=0, global_attn_every_n_layers=2, local_attention=16), TEXT),
    "xlnet": ("XLNetModel", dict(d_model=128, n_layer=2, n_head=4, d_inner=256, vocab_size=500), TEXT),
    "gpt2": ("GPT2LMHeadModel", dict(n_embd=128, n_layer=2, n_head=4, vocab_size=500), TEXT),
    "gpt_neo": ("GPTNeoForCausalLM", dict(hidden_size=128, num_layers=2, attention_types=[[["global", "local"], 1]], num_heads=4,
                                          vocab_size=500, window_size=16), TEXT),
    "gpt_neox": ("GPTNeoXForCausalLM", DECODER, TEXT),
    "gptj": ("GPTJForCausalLM", dict(n_embd=128, n_layer=2, n_head=4, rotary_dim=16, vocab_size=500), TEXT),
    "opt": ("OPTForCausalLM", dict(DECODER, ffn_dim=256, word_embed_proj_dim=128), TEXT),
    "bloom": ("BloomForCausalLM", dict(hidden_size=128, n_layer=2, n_head=4, vocab_size=500), TEXT),
    "falcon": ("FalconForCausalLM", dict(SMALL, alibi=False), TEXT),
    "llama": ("LlamaForCausalLM", GROUPED, TEXT),
    "mistral": ("MistralForCausalLM", dict(GROUPED, sliding_window=16), TEXT),
    "mixtral": ("MixtralForCausalLM", dict(GROUPED, num_local_experts=4), TEXT),
    "qwen2": ("Qwen2ForCausalLM", GROUPED, TEXT),
    "qwen3": ("Qwen3ForCausalLM", GROUPED, TEXT),
    "qwen3_moe": ("Qwen3MoeForCausalLM", dict(GROUPED, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=64), TEXT),
    "gemma2": ("Gemma2ForCausalLM", dict(GROUPED, query_pre_attn_scalar=32, sliding_window=16), TEXT),
    "gemma3": ("Gemma3ForCausalLM", dict(GROUPED, query_pre_attn_scalar=32, sliding_window=16), TEXT),
    "phi3": ("Phi3ForCausalLM", dict(GROUPED, pad_token_id=0), TEXT),
    "olmo2": ("Olmo2ForCausalLM", GROUPED, TEXT),
    "granite": ("GraniteForCausalLM", GROUPED, TEXT),
    "stablelm": ("StableLmForCausalLM", GROUPED, TEXT),
    "gpt_oss": ("GptOssForCausalLM", dict(GROUPED, num_local_experts=4, sliding_window=16), TEXT),
    "lfm2": ("Lfm2ForCausalLM", dict(GROUPED, layer_types=["conv", "full_attention"]), TEXT),
    "mamba": ("MambaForCausalLM", dict(hidden_size=64, num_hidden_layers=2, state_size=8, vocab_size=500), {"input_ids": (1, 24)}),
    "mamba2": ("Mamba2ForCausalLM", dict(hidden_size=64, num_hidden_layers=2, state_size=8, num_heads=4, head_dim=32, n_groups=1,
                                         vocab_size=500, chunk_size=8), {"input_ids": (1, 24)}),
    "rwkv": ("RwkvForCausalLM", dict(hidden_size=64, num_hidden_layers=2, vocab_size=500), {"input_ids": (1, 24)}),
    "t5": ("T5ForConditionalGeneration", T5, SEQ2SEQ),
    "mt5": ("MT5ForConditionalGeneration", T5, SEQ2SEQ),
    "bart": ("BartForConditionalGeneration", BART, SEQ2SEQ),
    "marian": ("MarianMTModel", dict(BART, pad_token_id=1, decoder_start_token_id=1), SEQ2SEQ),
    "m2m100": ("M2M100ForConditionalGeneration", BART, SEQ2SEQ),
    "whisper": ("WhisperForConditionalGeneration", dict(BART, max_source_positions=100, pad_token_id=1, decoder_start_token_id=1,
                                                        eos_token_id=2, bos_token_id=1),
                {"input_features": ("n", 80, 200), "decoder_input_ids": ("n", "t")}),
    "moonshine": ("MoonshineForConditionalGeneration", dict(SMALL, encoder_num_hidden_layers=2, decoder_num_hidden_layers=2,
                                                           encoder_num_attention_heads=4, decoder_num_attention_heads=4),
                  {"input_values": ("n", "a"), "decoder_input_ids": ("n", "t")}),
    "wav2vec2": ("Wav2Vec2ForCTC", SPEECH, AUDIO),
    "hubert": ("HubertModel", SPEECH, AUDIO),
    "wavlm": ("WavLMModel", SPEECH, AUDIO),
    "encodec": ("EncodecModel", dict(num_filters=8, hidden_size=32, num_lstm_layers=1, codebook_size=64),
                {"input_values": ("n", 1, "a")}),
    "dac": ("DacModel", dict(encoder_hidden_size=16, decoder_hidden_size=64, n_codebooks=3, codebook_size=64),
            {"input_values": (1, 1, 5120)}),
    "vits": ("VitsModel", dict(hidden_size=64, num_hidden_layers=2, ffn_dim=128, flow_size=64, upsample_initial_channel=64,
                               vocab_size=40, spectrogram_bins=65, use_stochastic_duration_prediction=False), {"input_ids": ("n", "t")}),
    "speecht5_hifigan": ("SpeechT5HifiGan", dict(upsample_initial_channel=64), {"spectrogram": ("n", "t", 80)}),
    "fastspeech2": ("FastSpeech2ConformerHifiGan", dict(upsample_initial_channel=64), {"spectrogram": ("n", "t", 80)}),
    "univnet": ("UnivNetModel", dict(model_hidden_channels=8, kernel_predictor_hidden_channels=16),
                {"input_features": (1, 24, 100), "noise_sequence": (1, 24, 64)}),
    "vit": ("ViTModel", VISION, PIXELS),
    "dinov2": ("Dinov2Model", dict(VISION, mlp_ratio=2), PIXELS),
    "deit": ("DeiTModel", VISION, PIXELS),
    "beit": ("BeitModel", VISION, PIXELS),
    "siglip_vision": ("SiglipVisionModel", VISION, PIXELS),
    "clip": ("CLIPModel", dict(text_config=DECODER | {"eos_token_id": 2}, vision_config=VISION, projection_dim=64),
             {"input_ids": ("n", "t"), "pixel_values": ("n", 3, 96, 96), "attention_mask": ("n", "t")}),
    "segformer": ("SegformerForSemanticSegmentation", dict(hidden_sizes=[16, 32, 64, 96], decoder_hidden_size=64),
                  {"pixel_values": ("n", 3, "h", "w")}),
    "mobilevit": ("MobileViTModel", {}, {"pixel_values": ("n", 3, 128, 128)}),
    "swinv2": ("Swinv2Model", dict(image_size=64, embed_dim=24, depths=[2, 2], num_heads=[2, 4], window_size=4), {"pixel_values": ("n", 3, 64, 64)}),
    "convnext": ("ConvNextModel", dict(hidden_sizes=[24, 48, 96, 192], depths=[1, 1, 2, 1]), {"pixel_values": ("n", 3, "h", "w")}),
    "resnet": ("ResNetModel", dict(hidden_sizes=[32, 64], depths=[1, 2], embedding_size=16), {"pixel_values": ("n", 3, "h", "w")}),
    "levit": ("LevitModel", {}, {"pixel_values": ("n", 3, 224, 224)}),
    "dpt": ("DPTForDepthEstimation", dict(VISION, num_hidden_layers=4, backbone_out_indices=[0, 1, 2, 3], neck_hidden_sizes=[16, 32, 48, 64],
                                          fusion_hidden_size=32, is_hybrid=False, readout_type="project"), PIXELS),
    "depth_anything": ("DepthAnythingForDepthEstimation", dict(
        backbone_config=dict(VISION, model_type="dinov2", num_hidden_layers=4, out_features=["stage1", "stage2", "stage3", "stage4"],
                             reshape_hidden_states=False, patch_size=14, image_size=98),
        reassemble_hidden_size=96, neck_hidden_sizes=[16, 32, 48, 64], fusion_hidden_size=32, patch_size=14), {"pixel_values": (1, 3, 98, 98)}),
    "sam_vision": ("SamVisionModel", dict(VISION, output_channels=32, num_pos_feats=16, window_size=3, global_attn_indexes=[1], mlp_dim=192), PIXELS),
    "yolos": ("YolosForObjectDetection", dict(VISION, image_size=[96, 96], num_detection_tokens=10), PIXELS),
    "detr": ("DetrForObjectDetection", dict(d_model=64, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=128, decoder_ffn_dim=128,
                                            encoder_attention_heads=4, decoder_attention_heads=4, use_timm_backbone=False, use_pretrained_backbone=False,
                                            backbone=None, backbone_config=dict(model_type="resnet", hidden_sizes=[32, 64, 96, 128], depths=[1, 1, 1, 1],
                                                                 embedding_size=16, out_features=["stage4"])),
             {"pixel_values": ("n", 3, "h", "w")}),
    "rt_detr": ("RTDetrForObjectDetection", dict(
        d_model=64, encoder_hidden_dim=64, encoder_ffn_dim=128, decoder_ffn_dim=128, num_queries=30, decoder_layers=2, hidden_expansion=0.5,
        encoder_in_channels=[64, 96, 128], decoder_in_channels=[64, 64, 64], use_timm_backbone=False, use_pretrained_backbone=False,
        backbone_config=dict(model_type="rt_detr_resnet", hidden_sizes=[32, 64, 96, 128], depths=[1, 1, 1, 1],
                             embedding_size=16, layer_type="basic", out_features=["stage2", "stage3", "stage4"])), {"pixel_values": (1, 3, 128, 128)}),
    "deformable_detr": ("DeformableDetrForObjectDetection", dict(
        d_model=64, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=128, decoder_ffn_dim=128, num_queries=20, encoder_attention_heads=4,
        decoder_attention_heads=4, use_timm_backbone=False, use_pretrained_backbone=False, backbone=None,
        backbone_config=dict(model_type="resnet", hidden_sizes=[32, 64, 96, 128], depths=[1, 1, 1, 1], embedding_size=16,
                             out_features=["stage2", "stage3", "stage4"])), {"pixel_values": (1, 3, 128, 128)}),
    "superpoint": ("SuperPointForKeypointDetection", dict(max_keypoints=50), {"pixel_values": (1, 3, 96, 128)}),
    "patchtst": ("PatchTSTForPrediction", dict(num_input_channels=3, context_length=64, prediction_length=16, d_model=32, ffn_dim=64),
                 {"past_values": ("n", 64, 3)}),
}

DF = {
    "unet": ("UNet2DConditionModel", dict(sample_size=16, block_out_channels=(32, 64), layers_per_block=1, cross_attention_dim=32,
                                          down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), attention_head_dim=8,
                                          up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"), norm_num_groups=8),
             {"sample": ("n", 4, 16, 16), "timestep": (1,), "encoder_hidden_states": ("n", "t", 32)}),
    "vae": ("AutoencoderKL", dict(block_out_channels=(32, 64), layers_per_block=1, norm_num_groups=8, latent_channels=4, sample_size=64,
                                  down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2),
            {"sample": ("n", 3, 64, 64)}),
    "taesd": ("AutoencoderTiny", dict(encoder_block_out_channels=(16,) * 4, decoder_block_out_channels=(16,) * 4), {"sample": ("n", 3, 64, 64)}),
    "dit": ("DiTTransformer2DModel", dict(num_attention_heads=4, attention_head_dim=16, num_layers=2, sample_size=16, num_embeds_ada_norm=10, norm_num_groups=4),
            {"hidden_states": ("n", 4, 16, 16), "timestep": ("n",), "class_labels": ("n",)}),
    "sd3": ("SD3Transformer2DModel", dict(sample_size=16, num_layers=2, attention_head_dim=16, num_attention_heads=4, joint_attention_dim=32,
                                          caption_projection_dim=64, pooled_projection_dim=32, in_channels=4, out_channels=4),
            {"hidden_states": ("n", 4, 16, 16), "encoder_hidden_states": ("n", "t", 32), "pooled_projections": ("n", 32), "timestep": ("n",)}),
}

NAMES = [f"{library}_{name}" for library, table in (("tv", TORCHVISION), ("tm", TIMM), ("hf", HF), ("df", DF)) for name in table]


def value(name, dims, side):
    """A random input: what its name calls for, its named dims as the data set numbered `side` has them."""
    shape = [SIDES[d][side] if isinstance(d, str) else d for d in dims]
    if name in ("attention_mask", "decoder_attention_mask"):
        mask = torch.ones(shape, dtype=torch.int64)
        if shape[0] > 1:
            mask[1:, shape[1] // 2:] = 0
        return mask
    if name.endswith("_ids"):
        return torch.randint(3, 40, shape)
    if name in ("timestep", "class_labels"):
        return torch.randint(1, 10, shape)
    return torch.randn(shape)


class Outputs(torch.nn.Module):
    """The tensors among the results, and with `cache` the keys and values of before as inputs, those of after as outputs."""

    def __init__(self, model, names, options, layers=0):
        super().__init__()
        self.model, self.names, self.options, self.layers = model, names, options, layers

    def forward(self, *inputs):
        given = dict(zip(self.names, inputs))
        if self.layers:
            from transformers import DynamicCache
            past = inputs[len(self.names):]
            cache = DynamicCache()
            for k in range(self.layers):
                cache.update(past[2 * k], past[2 * k + 1], k)
            result = self.model(**given, past_key_values=cache, use_cache=True)
            return (result[0], *[x for layer in result.past_key_values.layers for x in (layer.keys, layer.values)])
        result = self.model(**given, **self.options)
        found = []

        def walk(x):
            if isinstance(x, torch.Tensor):
                found.append(x)
            elif isinstance(x, (list, tuple)):
                for y in x:
                    walk(y)
            elif isinstance(x, dict):
                for y in x.values():
                    walk(y)
        walk(result if not hasattr(result, "to_tuple") else result.to_tuple())
        return tuple(found)


def build(name, opset=20):
    """The module, its inputs' dims by name, and the options of its call."""
    torch.manual_seed(0)
    torch.backends.mha.set_fastpath_enabled(False)
    library, name = name.split("_", 1)
    cached = name.endswith("+cache")
    name = name.removesuffix("+cache")
    if library == "tv":
        import torchvision
        family = TORCHVISION[name]
        models = getattr(torchvision.models, family) if family else torchvision.models
        backbone = {"weights_backbone": None} if family in ("detection", "segmentation") else {}
        model = getattr(models, name)(weights=None, **backbone)
        inputs = {"detection": {"image": (3, 320, 320)}, "video": {"video": (1, 3, 8, 112, 112)},
                  "optical_flow": {"image1": (1, 3, 128, 160), "image2": (1, 3, 128, 160)}}.get(family, {"images": ("n", 3, "h", "w")})
        if name in ("swin_t", "vit_b_32", "maxvit_t"):
            inputs = {"images": ("n", 3, 224, 224)}
        return (Detector(model) if family == "detection" else Plain(model)), inputs
    if library == "tm":
        import timm
        return Plain(timm.create_model(name, pretrained=False)), {"images": ("n", 3, TIMM[name], TIMM[name])}
    kind, config, inputs = (HF if library == "hf" else DF)[name]
    if library == "df":
        import diffusers
        model = getattr(diffusers, kind)(**config)
        return Outputs(model.eval(), list(inputs), {"return_dict": True}), inputs
    import transformers
    kind = getattr(transformers, kind)
    config = kind.config_class(**config)
    if opset < 14:
        config._attn_implementation = "eager"  # the other has no operators there
    model = kind(config).eval()
    if not cached:
        options = {"use_cache": False} if hasattr(model.config, "use_cache") and "encoder" not in name else {}
        return Outputs(model, list(inputs), options), inputs
    config = model.config.get_text_config()
    heads, layers = getattr(config, "num_key_value_heads", config.num_attention_heads), config.num_hidden_layers
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    inputs = {"input_ids": ("n", 1), "attention_mask": ("n", "p+1")}
    module = Outputs(model, list(inputs), {}, layers)
    for k in range(layers):
        inputs |= {f"past_key_{k}": ("n", heads, "p", size), f"past_value_{k}": ("n", heads, "p", size)}
    return module, inputs


class Plain(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, *inputs):
        result = self.model(*inputs)
        return tuple(result.values()) if isinstance(result, dict) else result


class Detector(Plain):
    def forward(self, image):
        return tuple(self.model([image])[0].values())


def export(name, path, dynamo, opset, dynamic):
    """Writes the file; returns the inputs of each data set."""
    model, inputs = build(name, opset)
    model.eval()
    several = dynamic and any(isinstance(d, str) for dims in inputs.values() for d in dims)
    sets = [{k: value(k, dims, side) for k, dims in inputs.items()} for side in range(2 if several else 1)]
    args = tuple(sets[-1].values())
    named = {k: {i: d.replace("p+1", "q") for i, d in enumerate(dims) if isinstance(d, str)} for k, dims in inputs.items()}
    options = {"input_names": list(inputs)}
    if dynamic and dynamo:
        options["dynamic_shapes"] = (tuple(named.values()),)
    elif dynamic:
        options["dynamic_axes"] = named
    if dynamo:
        options |= {"external_data": False, "verbose": False}
    with torch.no_grad():
        torch.onnx.export(model, args, path, dynamo=dynamo, opset_version=opset, **options)
    return [{k: v.numpy() for k, v in given.items()} for given in sets]
