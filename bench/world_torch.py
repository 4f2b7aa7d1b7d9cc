# SPDX-License-Identifier: MIT
"""Architectures of torchvision, timm, transformers and diffusers with random weights, as torch exports them: for world.py.

A name begins with its library's letters (tv, tm, hf, df), or those of a script of torch (ts). Sizes are small. A dim of an
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
    "focalnet_tiny_srf", "gcvit_xxtiny", "maxxvit_rmlp_nano_rw_256", "tf_efficientnetv2_b0",
    "efficientvit_m0", "mobilenetv3_small_100", "mnasnet_small", "tf_mixnet_s", "res2net50_26w_4s", "convformer_s18",
    "caformer_s18", "convmixer_768_32", "coat_tiny", "convit_tiny", "cs3darknet_s", "cspresnet50", "darknet53", "dla34",
    "dm_nfnet_f0", "ese_vovnet19b_dw", "fastvit_sa12", "fbnetc_100", "gernet_s", "hardcorenas_a", "hgnetv2_b0",
    "inception_v4", "lcnet_050", "legacy_xception", "mvitv2_tiny", "nextvit_small", "pnasnet5large", "pvt_v2_b0",
    "regnety_002", "resnext26ts", "resmlp_12_224", "resnetv2_50", "rexnet_100", "samvit_base_patch16_224",
    "seresnext26d_32x4d", "shvit_s1", "swiftformer_xs", "swin_s3_tiny_224", "tinynet_e", "tnt_s_patch16_224", "tresnet_m")} | {
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

IDS = {"input_ids": (1, 24)}
V64 = {"pixel_values": (1, 3, 64, 64)}
V224 = {"pixel_values": ("n", 3, 224, 224)}
HW = {"pixel_values": ("n", 3, "h", "w")}
MLA = dict(DECODER, n_group=2, topk_group=1, n_shared_experts=1, q_lora_rank=48, kv_lora_rank=32, qk_nope_head_dim=16, qk_rope_head_dim=16,
           v_head_dim=16, qk_head_dim=32, first_k_dense_replace=1, num_key_value_heads=4)
HYBRID = dict(GROUPED, mamba_n_heads=4, mamba_d_head=64, mamba_d_state=8, mamba_n_groups=1, mamba_chunk_size=8, mamba_expand=2, mamba_d_ssm=128)
RN = dict(model_type="resnet", hidden_sizes=[32, 64, 96, 128], depths=[1, 1, 1, 1], embedding_size=16, out_features=["stage4"])
DETRB = dict(d_model=64, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=128, decoder_ffn_dim=128, encoder_attention_heads=4, decoder_attention_heads=4,
             use_timm_backbone=False, use_pretrained_backbone=False, backbone=None, num_queries=20)
SWIN = dict(model_type="swin", image_size=64, embed_dim=24, depths=[1, 1, 1, 1], num_heads=[2, 2, 2, 2], window_size=4,
            out_features=["stage1", "stage2", "stage3", "stage4"])
# some of these only one of the exporters takes
HF |= {
    "smollm3": ("SmolLM3ForCausalLM", dict(GROUPED, pad_token_id=0, bos_token_id=1, eos_token_id=2), TEXT),
    "phi": ("PhiForCausalLM", DECODER, TEXT),
    "olmo": ("OlmoForCausalLM", GROUPED, TEXT),
    "olmo3": ("Olmo3ForCausalLM", dict(GROUPED, sliding_window=16), TEXT),
    "minicpm3": ("MiniCPM3ForCausalLM", MLA, TEXT),
    "cohere": ("CohereForCausalLM", dict(GROUPED, pad_token_id=0), TEXT),
    "glm": ("GlmForCausalLM", dict(GROUPED, pad_token_id=0), TEXT),
    "nemotron": ("NemotronForCausalLM", GROUPED, TEXT),
    "starcoder2": ("Starcoder2ForCausalLM", GROUPED, TEXT),
    "gpt_bigcode": ("GPTBigCodeForCausalLM", dict(n_embd=128, n_layer=2, n_head=4, vocab_size=500), TEXT),
    "codegen": ("CodeGenForCausalLM", dict(n_embd=128, n_layer=2, n_head=4, rotary_dim=16, vocab_size=500), TEXT),
    "bamba": ("BambaForCausalLM", dict(HYBRID, attn_layer_indices=[1]), IDS),
    "falcon_h1": ("FalconH1ForCausalLM", dict(HYBRID, mamba_d_ssm=256), IDS),
    "zamba2": ("Zamba2ForCausalLM", dict(SMALL, num_hidden_layers=3, mamba_d_state=8, mamba_headdim=64, mamba_ngroups=1, n_mamba_heads=4,
               chunk_size=8, num_mem_blocks=1, layers_block_type=["mamba", "hybrid", "mamba"], hybrid_layer_ids=[1], use_mamba_kernels=False,
               pad_token_id=0), IDS),
    "falcon_mamba": ("FalconMambaForCausalLM", dict(hidden_size=64, num_hidden_layers=2, state_size=8, vocab_size=500), IDS),
    "recurrent_gemma": ("RecurrentGemmaForCausalLM", dict(DECODER, num_hidden_layers=3, lru_width=128, attention_window_size=16,
                        num_key_value_heads=1, head_dim=32), IDS),
    "gemma": ("GemmaForCausalLM", GROUPED, TEXT),
    "vaultgemma": ("VaultGemmaForCausalLM", dict(GROUPED, sliding_window=16), TEXT),
    "ernie4_5": ("Ernie4_5ForCausalLM", GROUPED, TEXT),
    "exaone4": ("Exaone4ForCausalLM", dict(GROUPED, sliding_window=16, layer_types=["sliding_attention", "full_attention"]), TEXT),
    "hunyuan": ("HunYuanDenseV1ForCausalLM", GROUPED, TEXT),
    "helium": ("HeliumForCausalLM", dict(GROUPED, pad_token_id=0), TEXT),
    "seed_oss": ("SeedOssForCausalLM", GROUPED, TEXT),
    "apertus": ("ApertusForCausalLM", dict(GROUPED, pad_token_id=0), TEXT),
    "arcee": ("ArceeForCausalLM", GROUPED, TEXT),
    "diffllama": ("DiffLlamaForCausalLM", GROUPED, TEXT),
    "doge": ("DogeForCausalLM", GROUPED, TEXT),
    "bitnet": ("BitNetForCausalLM", GROUPED, TEXT),
    "persimmon": ("PersimmonForCausalLM", DECODER, TEXT),
    "xglm": ("XGLMForCausalLM", dict(d_model=128, ffn_dim=256, num_layers=2, attention_heads=4, vocab_size=500, max_position_embeddings=256), TEXT),
    "mpt": ("MptForCausalLM", dict(d_model=128, n_layers=2, n_heads=4, vocab_size=500, max_seq_len=256), TEXT),
    "biogpt": ("BioGptForCausalLM", DECODER, TEXT),
    "ctrl": ("CTRLLMHeadModel", dict(n_embd=128, dff=256, n_layer=2, n_head=4, vocab_size=500), TEXT),
    "openai_gpt": ("OpenAIGPTLMHeadModel", dict(n_embd=128, n_layer=2, n_head=4, vocab_size=500), TEXT),
    "nanochat": ("NanoChatForCausalLM", GROUPED, TEXT),
    "xlstm": ("xLSTMForCausalLM", dict(hidden_size=64, num_hidden_layers=2, num_blocks=2, num_heads=2, vocab_size=500, chunk_size=8), IDS),
    "imagegpt": ("ImageGPTModel", dict(n_embd=64, n_layer=2, n_head=4, vocab_size=257), TEXT),
    "convbert": ("ConvBertModel", dict(SMALL, embedding_size=128), TEXT),
    "roformer": ("RoFormerModel", SMALL, TEXT),
    "squeezebert": ("SqueezeBertModel", dict(SMALL, embedding_size=128), TEXT),
    "mobilebert": ("MobileBertModel", dict(SMALL, true_hidden_size=32, intra_bottleneck_size=32, embedding_size=32), TEXT),
    "fnet": ("FNetModel", SMALL, IDS),
    "funnel": ("FunnelModel", dict(d_model=128, n_head=4, d_head=32, d_inner=256, block_sizes=[1, 1, 1], vocab_size=500, num_decoder_layers=1), TEXT),
    "longformer": ("LongformerModel", dict(SMALL, attention_window=[8, 8], max_position_embeddings=256), {"input_ids": (1, 24),
                   "attention_mask": (1, 24)}),
    "big_bird": ("BigBirdModel", dict(SMALL, attention_type="original_full"), TEXT),
    "big_bird_sparse": ("BigBirdModel", dict(SMALL, block_size=4, num_random_blocks=1), {"input_ids": (1, 64), "attention_mask": (1, 64)}),
    "reformer": ("ReformerModel", dict(SMALL, axial_pos_shape=[8, 8], axial_pos_embds_dim=[32, 96], attention_head_size=32, attn_layers=["local",
                 "local"], feed_forward_size=128, local_attn_chunk_length=16, is_decoder=False), {"input_ids": (1, 64)}),
    "canine": ("CanineModel", dict(SMALL, num_hash_buckets=64, max_position_embeddings=512), {"input_ids": (1, 64), "attention_mask": (1, 64)}),
    "perceiver": ("PerceiverForMaskedLM", dict(num_latents=16, d_latents=64, d_model=48, num_blocks=1, num_self_attends_per_block=2,
                  num_self_attention_heads=4, num_cross_attention_heads=4, vocab_size=262, max_position_embeddings=64, qk_channels=64,
                  v_channels=64), {"inputs": (1, 64)}),
    "rembert": ("RemBertModel", dict(SMALL, input_embedding_size=64), TEXT),
    "ibert": ("IBertModel", dict(SMALL), TEXT),
    "megatron_bert": ("MegatronBertModel", SMALL, TEXT),
    "deberta": ("DebertaModel", dict(SMALL, relative_attention=True, pos_att_type=["p2c", "c2p"], max_relative_positions=32), TEXT),
    "esm": ("EsmModel", dict(SMALL, position_embedding_type="rotary", pad_token_id=1, mask_token_id=32, token_dropout=True), TEXT),
    "luke": ("LukeModel", dict(SMALL, entity_vocab_size=50, entity_emb_size=32), TEXT),
    "layoutlm": ("LayoutLMModel", SMALL, TEXT),
    "lilt": ("LiltModel", dict(SMALL, channel_shrink_ratio=4, hidden_size=192), TEXT),
    "yoso": ("YosoModel", dict(SMALL, use_expectation=True), TEXT),
    "eurobert": ("EuroBertModel", dict(GROUPED, pad_token_id=0), TEXT),
    "data2vec_text": ("Data2VecTextModel", SMALL, TEXT),
    "xmod": ("XmodModel", dict(SMALL, languages=["en_XX"], default_language="en_XX"), TEXT),
    "flaubert": ("FlaubertModel", dict(emb_dim=128, n_layers=2, n_heads=4, n_words=500), TEXT),
    "xlm": ("XLMModel", dict(emb_dim=128, n_layers=2, n_heads=4, n_words=500), TEXT),
    "nomic_bert": ("NomicBertModel", dict(SMALL, n_embd=128, n_layer=2, n_head=4, n_inner=256), TEXT),
    "pegasus": ("PegasusForConditionalGeneration", BART, SEQ2SEQ),
    "pegasus_x": ("PegasusXForConditionalGeneration", dict(BART, block_size=8, num_global_tokens=4), {"input_ids": (1, 40), "attention_mask": (1,
                  40), "decoder_input_ids": (1, 24)}),
    "led": ("LEDForConditionalGeneration", dict(BART, attention_window=8, max_encoder_position_embeddings=256,
            max_decoder_position_embeddings=256), {"input_ids": (1, 40), "attention_mask": (1, 40), "decoder_input_ids": (1, 24)}),
    "longt5": ("LongT5ForConditionalGeneration", dict(T5, local_radius=7), {"input_ids": (1, 40), "attention_mask": (1, 40),
               "decoder_input_ids": (1, 24)}),
    "longt5_global": ("LongT5ForConditionalGeneration", dict(T5, local_radius=7, encoder_attention_type="transient-global", global_block_size=8),
                      {"input_ids": (1, 40), "attention_mask": (1, 40), "decoder_input_ids": (1, 24)}),
    "umt5": ("UMT5ForConditionalGeneration", T5, SEQ2SEQ),
    "prophetnet": ("ProphetNetForConditionalGeneration", dict(hidden_size=128, num_encoder_layers=2, num_decoder_layers=2,
                   num_encoder_attention_heads=4, num_decoder_attention_heads=4, encoder_ffn_dim=256, decoder_ffn_dim=256, vocab_size=500), SEQ2SEQ),
    "blenderbot": ("BlenderbotForConditionalGeneration", BART, SEQ2SEQ),
    "mbart": ("MBartForConditionalGeneration", BART, SEQ2SEQ),
    "fsmt": ("FSMTForConditionalGeneration", dict(BART, langs=["en", "de"], src_vocab_size=500, tgt_vocab_size=500), SEQ2SEQ),
    "plbart": ("PLBartForConditionalGeneration", BART, SEQ2SEQ),
    "ast": ("ASTModel", dict(SMALL, num_mel_bins=64, max_length=128), {"input_values": ("n", 128, 64)}),
    "clap_audio": ("ClapAudioModel", dict(spec_size=64, num_mel_bins=16, patch_size=4, patch_embeds_hidden_size=24, depths=[1, 1],
                   num_attention_heads=[2, 2], hidden_size=48, window_size=4, enable_fusion=False), {"input_features": (1, 1, 64, 16)}),
    "wav2vec2_bert": ("Wav2Vec2BertModel", dict(SMALL, feature_projection_input_dim=80), {"input_features": ("n", "t", 80)}),
    "wav2vec2_conformer": ("Wav2Vec2ConformerModel", dict(SPEECH, position_embeddings_type="relative"), AUDIO),
    "wav2vec2_conformer_rotary": ("Wav2Vec2ConformerModel", dict(SPEECH, position_embeddings_type="rotary"), AUDIO),
    "data2vec_audio": ("Data2VecAudioModel", dict(SPEECH, num_conv_pos_embeddings=2), AUDIO),
    "sew": ("SEWModel", dict(SMALL, conv_dim=[32] * 13, num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4, squeeze_factor=2), AUDIO),
    "sew_d": ("SEWDModel", dict(SMALL, conv_dim=[32] * 13, num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4, squeeze_factor=2,
              max_position_embeddings=64, position_buckets=16), AUDIO),
    "unispeech": ("UniSpeechModel", SPEECH, AUDIO),
    "parakeet": ("ParakeetForCTC", dict(encoder_config=dict(SMALL, num_mel_bins=80, subsampling_conv_channels=32), vocab_size=40),
                 {"input_features": ("n", "t", 80)}),
    "granite_speech_encoder": ("GraniteSpeechCTCEncoder", dict(hidden_dim=64, num_layers=2, num_heads=4, dim_head=16, input_dim=80, output_dim=20,
                               context_size=8), {"hidden_states": (1, 24, 80)}),
    "whisper_encoder": ("WhisperForAudioClassification", dict(BART, max_source_positions=100), {"input_features": ("n", 80, 200)}),
    "moshi": ("MoshiForCausalLM", dict(GROUPED, sliding_window=16, ffn_dim=256, audio_vocab_size=60), {"input_ids": (1, 24)}),
    "musicgen_decoder": ("MusicgenForCausalLM", dict(SMALL, ffn_dim=256, num_codebooks=2, pad_token_id=0), {"input_ids": (2, 24)}),
    "speecht5": ("SpeechT5ForSpeechToText", dict(SPEECH, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
                 encoder_ffn_dim=256, decoder_ffn_dim=256), {"input_values": (1, 8000), "decoder_input_ids": (1, 24)}),
    "bark_coarse": ("BarkCoarseModel", dict(SMALL, num_layers=2, num_heads=4, input_vocab_size=500, output_vocab_size=500, block_size=256),
                    {"input_ids": (1, 24)}),
    "fastspeech2_model": ("FastSpeech2ConformerModel", dict(hidden_size=64, vocab_size=40, encoder_layers=1, decoder_layers=1,
                          encoder_linear_units=64, decoder_linear_units=64), {"input_ids": (1, 24)}),
    "wavlm_xvector": ("WavLMForXVector", dict(SPEECH, tdnn_dim=[32, 32, 32, 32, 64], xvector_output_dim=32), AUDIO),
    "dinov3_vit": ("DINOv3ViTModel", VISION, {"pixel_values": (1, 3, "h", "w")}),
    "dinov3_convnext": ("DINOv3ConvNextModel", dict(hidden_sizes=[24, 48, 96, 192], depths=[1, 1, 2, 1]), HW),
    "dinov2_registers": ("Dinov2WithRegistersModel", dict(VISION, mlp_ratio=2), PIXELS),
    "ijepa": ("IJepaModel", VISION, PIXELS),
    "vit_msn": ("ViTMSNModel", VISION, PIXELS),
    "vitdet": ("VitDetBackbone", dict(VISION, window_size=3, window_block_indices=[0], use_relative_position_embeddings=True,
               residual_block_indices=[1], pretrain_image_size=96), PIXELS),
    "vitpose": ("VitPoseForPoseEstimation", dict(backbone_config=dict(VISION, model_type="vitpose_backbone", image_size=[96, 96], patch_size=[16,
                16], out_indices=[2], num_experts=1), num_labels=5), PIXELS),
    "vitmatte": ("VitMatteForImageMatting", dict(hidden_size=96, backbone_config=dict(VISION, model_type="vitdet", num_channels=4,
                 out_features=["stage2"], pretrain_image_size=96), convstream_hidden_sizes=[8, 16, 24], fusion_hidden_sizes=[32, 16, 16, 8]),
                 {"pixel_values": (1, 4, 96, 96)}),
    "hiera": ("HieraModel", dict(embed_dim=24, image_size=[64, 64], depths=[1, 1, 1, 1], num_heads=[1, 1, 2, 2]), V64),
    "poolformer": ("PoolFormerModel", dict(hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 1, 1]), HW),
    "pvt": ("PvtModel", dict(image_size=64, hidden_sizes=[16, 32, 64, 64], depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 4, 4]), V64),
    "pvt_v2": ("PvtV2Model", dict(hidden_sizes=[16, 32, 64, 64], depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 4, 4]), V64),
    "cvt": ("CvtModel", {}, {"pixel_values": (1, 3, 64, 64)}),
    "efficientnet": ("EfficientNetModel", dict(width_coefficient=0.5, depth_coefficient=0.5, hidden_dim=640), HW),
    "mobilenet_v1": ("MobileNetV1Model", dict(depth_multiplier=0.5), HW),
    "mobilenet_v2": ("MobileNetV2Model", dict(depth_multiplier=0.5), HW),
    "mobilevitv2": ("MobileViTV2Model", dict(width_multiplier=0.5), {"pixel_values": ("n", 3, 128, 128)}),
    "mobilevitv2_seg": ("MobileViTV2ForSemanticSegmentation", dict(width_multiplier=0.5), {"pixel_values": (1, 3, 128, 128)}),
    "regnet": ("RegNetModel", dict(embedding_size=16, hidden_sizes=[32, 64], depths=[1, 2], groups_width=8), HW),
    "focalnet": ("FocalNetModel", dict(image_size=64, embed_dim=24, depths=[1, 1]), V64),
    "swin": ("SwinModel", dict(image_size=64, embed_dim=24, depths=[2, 2], num_heads=[2, 4], window_size=4), {"pixel_values": ("n", 3, 64, 64)}),
    "swin2sr": ("Swin2SRForImageSuperResolution", dict(image_size=32, embed_dim=36, depths=[2, 2], num_heads=[2, 2], window_size=4),
                {"pixel_values": (1, 3, 32, 40)}),
    "swiftformer": ("SwiftFormerModel", dict(depths=[1, 1, 1, 1], embed_dims=[16, 32, 64, 96]), V224),
    "donut": ("DonutSwinModel", dict(image_size=64, embed_dim=24, depths=[2, 2], num_heads=[2, 4], window_size=4), V64),
    "bit": ("BitModel", dict(embedding_size=16, hidden_sizes=[32, 64], depths=[1, 2], num_groups=4), HW),
    "mgp_str": ("MgpstrForSceneTextRecognition", dict(SMALL, image_size=[32, 64], patch_size=4, max_token_length=8, num_character_labels=38,
                num_bpe_labels=60, num_wordpiece_labels=60), {"pixel_values": (1, 3, 32, 64)}),
    "convnextv2": ("ConvNextV2Model", dict(hidden_sizes=[24, 48, 96, 192], depths=[1, 1, 2, 1]), HW),
    "vivit": ("VivitModel", dict(VISION, num_frames=4, tubelet_size=[2, 16, 16], image_size=32), {"pixel_values": (1, 4, 3, 32, 32)}),
    "videomae": ("VideoMAEModel", dict(VISION, num_frames=4, image_size=32), {"pixel_values": (1, 4, 3, 32, 32)}),
    "timesformer": ("TimesformerModel", dict(VISION, num_frames=4, image_size=32), {"pixel_values": (1, 4, 3, 32, 32)}),
    "vjepa2": ("VJEPA2Model", dict(VISION, crop_size=32, frames_per_clip=4, pred_hidden_size=48, pred_num_attention_heads=4,
               pred_num_hidden_layers=1), {"pixel_values_videos": (1, 4, 3, 32, 32)}),
    "glpn": ("GLPNForDepthEstimation", dict(hidden_sizes=[16, 32, 80, 64], num_attention_heads=[1, 2, 5, 8], decoder_hidden_size=16, depths=[1, 1,
             1, 1]), {"pixel_values": (1, 3, 96, 128)}),
    "upernet": ("UperNetForSemanticSegmentation", dict(backbone_config=RN | {"out_features": ["stage1", "stage2", "stage3", "stage4"]},
                hidden_size=32, auxiliary_in_channels=96), {"pixel_values": (1, 3, 128, 128)}),
    "mask2former": ("Mask2FormerForUniversalSegmentation", dict(backbone_config=SWIN, feature_size=32, mask_feature_size=32, hidden_dim=32,
                    encoder_feedforward_dim=64, encoder_layers=1, decoder_layers=2, dim_feedforward=64, num_attention_heads=4, num_queries=10), V64),
    "maskformer": ("MaskFormerForInstanceSegmentation", dict(backbone_config=SWIN, fpn_feature_size=32, mask_feature_size=32,
                   decoder_config=dict(model_type="detr", d_model=32, decoder_layers=1, decoder_ffn_dim=64, decoder_attention_heads=4,
                   encoder_layers=1, encoder_attention_heads=4, encoder_ffn_dim=64, num_queries=10)), V64),
    "eomt": ("EomtForUniversalSegmentation", dict(VISION, num_queries=10, num_blocks=1, num_upscale_blocks=1), PIXELS),
    "conditional_detr": ("ConditionalDetrForObjectDetection", dict(DETRB, backbone_config=RN), {"pixel_values": ("n", 3, "h", "w")}),
    "dab_detr": ("DabDetrForObjectDetection", dict(DETRB, hidden_size=64, backbone_config=RN), {"pixel_values": (1, 3, 128, 128)}),
    "table_transformer": ("TableTransformerForObjectDetection", dict(DETRB, backbone_config=RN), {"pixel_values": (1, 3, 128, 128)}),
    "textnet": ("TextNetModel", {}, {"pixel_values": ("n", 3, 128, 128)}),
    "hgnet_v2": ("HGNetV2ForImageClassification", {}, {"pixel_values": ("n", 3, 128, 128)}),
    "zoedepth": ("ZoeDepthForDepthEstimation", dict(backbone_config=dict(VISION, model_type="beit", num_hidden_layers=4, out_features=["stage1",
                 "stage2", "stage3", "stage4"], reshape_hidden_states=False), neck_hidden_sizes=[16, 32, 48, 64], fusion_hidden_size=32,
                 bottleneck_features=32, bin_embedding_dim=16, num_attractors=[4, 2, 1, 1], bin_configurations=[dict(n_bins=8, min_depth=0.001,
                 max_depth=10.0, name="x")]), PIXELS),
    "pp_lcnet": ("PPLCNetForImageClassification", {}, {"pixel_values": ("n", 3, 128, 128)}),
    "sam": ("SamModel", dict(
        vision_config=dict(VISION, output_channels=32, num_pos_feats=16, window_size=3, global_attn_indexes=[1], mlp_dim=192),
        prompt_encoder_config=dict(hidden_size=32, image_size=96, patch_size=16, mask_input_channels=8, image_embedding_size=6),
        mask_decoder_config=dict(hidden_size=32, mlp_dim=64, num_attention_heads=4, iou_head_hidden_dim=32)),
            {"pixel_values": (1, 3, 96, 96), "input_points": (1, 1, 3, 2)}),
    "clipseg": ("CLIPSegForImageSegmentation", dict(text_config=DECODER | {"eos_token_id": 2}, vision_config=dict(VISION, num_hidden_layers=10),
                                                    projection_dim=64, reduce_dim=32, extract_layers=[1, 2, 3]),
                {"input_ids": (1, 24), "pixel_values": (1, 3, 96, 96)}),
    "siglip": ("SiglipModel", dict(text_config=DECODER | {"max_position_embeddings": 64, "projection_size": 96}, vision_config=VISION),
               {"input_ids": (1, 64), "pixel_values": ("n", 3, 96, 96)}),
    "altclip_text": ("AltCLIPModel", dict(text_config=dict(DECODER, project_dim=64), vision_config=VISION, projection_dim=64), {"input_ids": (1,
                     24), "pixel_values": (1, 3, 96, 96)}),
    "chinese_clip": ("ChineseCLIPModel", dict(text_config=DECODER, vision_config=VISION, projection_dim=64), {"input_ids": (1, 24),
                     "pixel_values": (1, 3, 96, 96)}),
    "groupvit": ("GroupViTVisionModel", dict(VISION, depths=[1, 1, 1], num_group_tokens=[16, 8, 0], num_output_groups=[16, 8, 8]), PIXELS),
    "git": ("GitForCausalLM", dict(DECODER, vision_config=VISION), {"input_ids": (1, 24), "pixel_values": (1, 3, 96, 96)}),
    "aimv2": ("Aimv2VisionModel", VISION, PIXELS),
    "x_clip_vision": ("XCLIPVisionModel", dict(VISION, num_frames=2, mit_hidden_size=64), {"pixel_values": (2, 3, 96, 96)}),
    "owlvit": ("OwlViTForObjectDetection", dict(text_config=DECODER | {"max_position_embeddings": 16, "eos_token_id": 2},
               vision_config=dict(VISION), projection_dim=128), {"input_ids": (2, 16), "pixel_values": (1, 3, 96, 96), "attention_mask": (2, 16)}),
    "patchtsmixer": ("PatchTSMixerForPrediction", dict(num_input_channels=3, context_length=64, prediction_length=16, d_model=16, patch_length=8,
                     patch_stride=8), {"past_values": ("n", 64, 3)}),
    "timesfm": ("TimesFmModelForPrediction", dict(SMALL, head_dim=32, context_length=128, patch_length=16, horizon_length=16), {"past_values": (1,
                64)}),
    "qwen2_vl_text": ("Qwen2VLTextModel", dict(GROUPED, rope_scaling=dict(type="mrope", rope_type="default", mrope_section=[4, 6, 6])), TEXT),
    "trocr_decoder": ("TrOCRForCausalLM", dict(d_model=128, decoder_layers=2, decoder_attention_heads=4, decoder_ffn_dim=256, vocab_size=500), TEXT),
    "prompt_depth": ("PromptDepthAnythingForDepthEstimation", dict(backbone_config=dict(VISION, model_type="dinov2", num_hidden_layers=4,
                     out_features=["stage1", "stage2", "stage3", "stage4"], reshape_hidden_states=False, patch_size=14, image_size=98),
                     reassemble_hidden_size=96, neck_hidden_sizes=[16, 32, 48, 64], fusion_hidden_size=32, patch_size=14), {"pixel_values": (1, 3,
                     98, 98)}),
    "swin_odd": ("SwinModel", dict(image_size=64, embed_dim=24, depths=[2, 2], num_heads=[2, 4], window_size=5), {"pixel_values": (1, 3, 72, 56)}),
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


class Greedy(torch.nn.Module):
    """Decoders as scripts, whose loops stay loops: `ids` grows until all have said one of the first words, or 40 are said."""

    def __init__(self, words=50, size=32):
        super().__init__()
        self.table = torch.nn.Embedding(words, size)
        self.query, self.key, self.out = torch.nn.Linear(size, size), torch.nn.Linear(size, size), torch.nn.Linear(size, words)

    def forward(self, ids):
        done = False
        said = 0
        while not done and said < 40:
            x = self.table(ids)
            mixed = torch.softmax(self.query(x[:, -1:]) @ self.key(x).transpose(1, 2), -1) @ x
            word = self.out(mixed).argmax(-1)
            ids = torch.cat([ids, word], 1)
            said += 1
            done = bool((word < 5).all())
        return ids


class Cached(Greedy):
    """The same with a cache of keys."""

    def forward(self, ids):
        keys = self.key(self.table(ids))
        values = self.table(ids)
        word = ids[:, -1:]
        for i in range(40):
            x = self.table(word)
            keys = torch.cat([keys, self.key(x)], 1)
            values = torch.cat([values, x], 1)
            mixed = torch.softmax(self.query(x) @ keys.transpose(1, 2), -1) @ values
            word = self.out(mixed).argmax(-1)
            if bool((word < 5).all()):
                break
        return word, keys


SCRIPTS = {"greedy": (Greedy, {"input_ids": ("n", "t")}), "cached": (Cached, {"input_ids": ("n", "t")})}

NAMES = [f"{library}_{name}" for library, table in
         (("tv", TORCHVISION), ("tm", TIMM), ("hf", HF), ("df", DF), ("ts", SCRIPTS)) for name in table]


def value(name, dims, side):
    """A random input: what its name calls for, its named dims as the data set numbered `side` has them."""
    shape = [SIDES[d][side] if isinstance(d, str) else d for d in dims]
    if name in ("attention_mask", "decoder_attention_mask"):
        mask = torch.ones(shape, dtype=torch.int64)
        if shape[0] > 1:
            mask[1:, shape[1] // 2:] = 0
        return mask
    if name.endswith("_ids") or name == "inputs":
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
    if library == "ts":
        kind, inputs = SCRIPTS[name]
        return torch.jit.script(kind()), inputs
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
