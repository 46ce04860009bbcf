#!/usr/bin/env python3
"""Facts for src/convert: what llama.cpp's converter makes of tiny random models of each family.

usage: convert.py LLAMA_CPP OUT.json [NAME...]

LLAMA_CPP: a source folder of llama.cpp 0.5.0. Needs Python's transformers 5.23, torch, safetensors, sentencepiece and tokenizers. For each family: a tiny
model of transformers gives the names and shapes of a folder's tensors; their values are a hash of name and place (random_values below, and the same in the
test), so that no weights need to be kept; the converter writes F32, F16 and BF16; of each tensor its shape and, file by file, type and digest are stored, and of the files the keys other than
general.*. Pre-tokenizers are named here, since the converter knows them by the hash of a text that a tiny vocabulary encodes otherwise.
"""
import base64
import json
import math
import os
import pathlib
import struct
import sys
import tempfile

import numpy as np

LETTERS = ["the", "and", "ing", "hello", "world", "int", "for", "return", "123", "2026", "don't", "café", "日本", "Привет", "\n\n", "    ", "  "]
CORPUS = ["Hello world, the quick brown fox jumps over the lazy dog and they'll return.", "for (int i = 0; i < 123; ++i) { return i; }\n\n", "日本語 Привет café 2026"]
PATTERNS = {
    "llama-bpe": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "qwen2": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}
PATTERNS["qwen35"] = PATTERNS["qwen2"].replace("\\p{L}+", "[\\p{L}\\p{M}]+").replace("[^\\s\\p{L}\\p{N}]+", "[^\\s\\p{L}\\p{M}\\p{N}]+")
PATTERNS["dbrx"] = PATTERNS["smaug-bpe"] = PATTERNS["glm4"] = PATTERNS["llama-bpe"]
PATTERNS["gpt-4o"] = PATTERNS["llama4"] = PATTERNS["minimax-m2"] = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")


LONG_ROPE_MAGNITUDE = math.sqrt(1 + math.log(512 / 128) / math.log(128))  # what the converter computes for 512 positions of 128


def fnv(data, seed=0xCBF29CE484222325):
    """FNV-1a over words of 8 bytes, the last one filled up with zeros."""
    data = bytes(data)
    data += b"\0" * (-len(data) % 8)
    h = seed
    for (word,) in struct.iter_unpack("<Q", data):
        h = ((h ^ word) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return h


def random_values(name, n):
    seed = np.uint64(fnv(name.encode()))
    with np.errstate(over="ignore"):
        z = seed + np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return ((z >> np.uint64(44)).astype(np.int64) - (1 << 19)).astype(np.float32) * np.float32(2.0 ** -20)


def stored(name, shape, dtype):
    values = random_values(name, int(np.prod(shape)))
    if dtype == "U8":  # scales near 1
        bits = values.view(np.uint32) >> 8
        return ((bits & 31) + 110 if name.endswith("_scales") else bits & 255).astype(np.uint8).tobytes()
    if dtype == "F32":
        return values.tobytes()
    if dtype == "F16":
        return values.astype(np.float16).tobytes()
    return (values.view(np.uint32) >> 16).astype(np.uint16).tobytes()


def write_safetensors(path, tensors):
    """tensors: [name, dtype, shape], in the order of their data."""
    header, data = {}, b""
    for name, dtype, shape in tensors:
        part = stored(name, shape, dtype)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def make_bpe():
    """The tokenizer that all byte-level ones here share; what tells them apart is patch_of()."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=[], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(CORPUS * 4 + LETTERS * 4, trainer)
    tokenizer.add_special_tokens(["<|begin|>", "<|end|>", "<|endoftext|>"])
    tokenizer.add_tokens(["<tool>", "\t\t"])
    return json.loads(tokenizer.to_str())


def patch_of(pre, base):
    """Members of tokenizer.json that a model with this pre-tokenizer has otherwise."""
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": pre not in PATTERNS}
    parts = [byte_level]
    if pre in PATTERNS:
        parts.insert(0, {"type": "Split", "pattern": {"Regex": PATTERNS[pre]}, "behavior": "Isolated", "invert": False})
    elif pre in ("smollm", "starcoder", "refact", "command-r"):
        parts.insert(0, {"type": "Digits", "individual_digits": True})
    patch = {"pre_tokenizer": {"type": "Sequence", "pretokenizers": parts}, "post_processor": dict(byte_level, trim_offsets=False)}
    if pre == "llama-bpe":
        begin = "<|begin|>"
        number = next(t["id"] for t in base["added_tokens"] if t["content"] == begin)
        patch["ignore_merges"] = True  # of the model
        patch["post_processor"] = {"type": "Sequence", "processors": [dict(byte_level, trim_offsets=False), {
            "type": "TemplateProcessing", "single": [{"SpecialToken": {"id": begin, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"SpecialToken": {"id": begin, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": begin, "type_id": 1}},
                     {"Sequence": {"id": "B", "type_id": 1}}], "special_tokens": {begin: {"id": begin, "ids": [number], "tokens": [begin]}}}]}
    if pre == "glm4":
        patch["ignore_merges"] = True
        patch["added_tokens"] = base["added_tokens"] + [dict(base["added_tokens"][0], id=base["added_tokens"][-1]["id"] + 1 + i, content=text)
                                                        for i, text in enumerate(["[gMASK]", "<|user|>", "<|observation|>"])]
    if pre in ("qwen2", "qwen35"):
        patch["normalizer"] = {"type": "NFC"}
    return patch


def patched(base, patch):
    whole = dict(base, **{k: v for k, v in patch.items() if k != "ignore_merges"})
    whole["model"] = dict(base["model"], ignore_merges=patch.get("ignore_merges", False))
    return json.dumps(whole)


def make_gemma4():
    """A tokenizer of SentencePiece's kind without its file: merges over texts with U+2581 for blanks, bytes that are no token as <0xNN>."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    trainer = trainers.BpeTrainer(vocab_size=390, special_tokens=special + [f"<0x{i:02X}>" for i in range(256)], show_progress=False)
    tokenizer.train_from_iterator(CORPUS * 4 + LETTERS * 4, trainer)
    whole = json.loads(tokenizer.to_str())
    whole["added_tokens"] = [t for t in whole["added_tokens"] if not t["content"].startswith("<0x")]
    tokenizer = Tokenizer.from_str(json.dumps(whole))
    tokenizer.add_special_tokens(["<|turn>", "<turn|>"])
    tokenizer.add_tokens(["<|channel>", "\n\n\n"])
    return tokenizer.to_str()


def make_wordpiece():
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(vocab_size=200, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], show_progress=False)
    tokenizer.train_from_iterator(CORPUS * 4 + LETTERS * 4, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[
        ("[CLS]", tokenizer.token_to_id("[CLS]")), ("[SEP]", tokenizer.token_to_id("[SEP]"))])
    return tokenizer.to_str()


def make_unigram():
    """XLM-RoBERTa's: the vocabulary of tests/data/make_unigram_data.py with that model's special tokens, its rules and its way to cut words."""
    sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tests/data"))
    import make_unigram_data
    from sentencepiece import sentencepiece_model_pb2
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(make_unigram_data.train())
    pieces = [(text, 0.0) for text in ("<s>", "<pad>", "</s>", "<unk>")] + [(p.piece, p.score) for p in proto.pieces[3:]] + [("<mask>", 0.0)]
    tokenizer = Tokenizer(models.Unigram(pieces, 3, False))
    tokenizer.normalizer = normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")])
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    tokenizer.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", AddedToken("<mask>", lstrip=True)])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    return tokenizer.to_str()


def make_pieces(gemma):
    import io
    import sentencepiece
    model = io.BytesIO()
    unused = ["<mask>", "<2mass>", "[@BOS@]"] + [f"<unused{i}>" for i in range(99)] + ["<start_of_turn>", "<end_of_turn>"] if gemma else []
    ids = dict(pad_id=0, eos_id=1, bos_id=2, unk_id=3) if gemma else dict(unk_id=0, bos_id=1, eos_id=2)
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(CORPUS * 40 + LETTERS * 40), model_writer=model, model_type="bpe", vocab_size=480 if gemma else 380,
                                             byte_fallback=True, character_coverage=1.0, user_defined_symbols=unused, num_threads=1, minloglevel=2,
                                             normalization_rule_name="identity", **ids)
    return model.getvalue()


CONFIG = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=512)
EXPERTS = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32)


def families():
    """name: class of the config, its values, tokenizer, types of tensors"""
    def llama(**more):
        return dict(CONFIG, **more)
    spm, gpt = ("pieces", None), ("bpe", "gpt-2")
    yield "llama", "LlamaConfig", llama(rms_norm_eps=1e-5), spm, "BF16"
    yield "llama3", "LlamaConfig", llama(head_dim=32, rope_theta=500000.0, attention_bias=True, mlp_bias=True, num_hidden_layers=1, rope_scaling=dict(
        rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)), ("bpe", "llama-bpe"), "F16"
    yield "llama_tied_yarn", "LlamaConfig", llama(tie_word_embeddings=True, num_hidden_layers=1, rope_scaling=dict(
        rope_type="yarn", factor=4.0, original_max_position_embeddings=128, beta_fast=24.0)), ("bpe", "smollm"), "F32"
    yield "mistral", "MistralConfig", llama(sliding_window=None, num_hidden_layers=1), spm, "BF16"
    yield "mixtral", "MixtralConfig", llama(num_local_experts=4, num_hidden_layers=1), spm, "BF16"
    yield "qwen2", "Qwen2Config", llama(tie_word_embeddings=True), ("bpe", "qwen2"), "BF16"
    yield "qwen3", "Qwen3Config", llama(head_dim=32, num_hidden_layers=1), ("bpe", "qwen2"), "BF16"
    yield "gemma", "GemmaConfig", llama(head_dim=32, num_hidden_layers=1), ("gemma", None), "F16"
    yield "gemma2", "Gemma2Config", llama(head_dim=32, query_pre_attn_scalar=32, sliding_window=64), ("gemma", None), "BF16"
    yield "gemma3", "Gemma3TextConfig", llama(head_dim=32, query_pre_attn_scalar=32, sliding_window=64, num_hidden_layers=7, intermediate_size=64), ("gemma", None), "BF16"
    yield "phi3", "Phi3Config", llama(num_hidden_layers=1, max_position_embeddings=512, original_max_position_embeddings=128, sliding_window=256, rope_scaling=dict(
        rope_type="longrope", short_factor=[1.0 + i / 8 for i in range(8)], long_factor=[2.0 + i for i in range(8)])), ("phi", None), "BF16"
    yield "smollm3", "SmolLM3Config", llama(num_hidden_layers=4, tie_word_embeddings=True), ("bpe", "smaug-bpe"), "BF16"
    yield "granite", "GraniteConfig", llama(num_hidden_layers=1, attention_multiplier=0.015625, embedding_multiplier=12.0, residual_multiplier=0.22,
                                            logits_scaling=8.0), ("bpe", "refact"), "BF16"
    yield "arcee", "ArceeConfig", llama(num_hidden_layers=1), ("bpe", "llama-bpe"), "BF16"
    yield "olmo2", "Olmo2Config", llama(num_hidden_layers=1), ("bpe", "dbrx"), "F32"
    yield "olmo3", "Olmo3Config", llama(num_hidden_layers=4, sliding_window=64), ("bpe", "dbrx"), "BF16"
    yield "seed_oss", "SeedOssConfig", llama(num_hidden_layers=1, head_dim=32), gpt, "BF16"
    yield "starcoder2", "Starcoder2Config", llama(num_hidden_layers=1, sliding_window=None), ("bpe", "starcoder"), "F32"
    yield "qwen2moe", "Qwen2MoeConfig", llama(num_hidden_layers=1, shared_expert_intermediate_size=48, **EXPERTS), ("bpe", "qwen2"), "BF16"
    yield "qwen3moe", "Qwen3MoeConfig", llama(num_hidden_layers=1, norm_topk_prob=True, head_dim=16, **EXPERTS), ("bpe", "qwen2"), "BF16"
    yield "olmoe", "OlmoeConfig", llama(num_hidden_layers=1, num_experts=4, num_experts_per_tok=2), gpt, "BF16"
    yield from dense_families(llama, spm, gpt)
    yield from expert_families(llama, spm, gpt)
    yield from state_families(llama, gpt)
    yield from encoders(llama, gpt)
    yield from recurrent_families(llama, spm, gpt)


def recurrent_families(llama, spm, gpt):
    """Layers that keep a state. transformers has other names for their kinds than the published files, whose names the converter reads."""
    one = dict(num_hidden_layers=1)
    lfm = dict(layer_types=["conv", "full_attention"], conv_L_cache=3)
    mamba2 = dict(mamba_n_heads=8, mamba_d_head=16, mamba_d_state=16, mamba_n_groups=2)
    granite = dict(mamba2, mamba_n_groups=1, layer_types=["mamba", "attention"], attention_multiplier=0.25, embedding_multiplier=12.0, residual_multiplier=0.22, logits_scaling=8.0)
    hybrid = dict(config=dict(layer_types=["mamba", "attention"]), as_published=True)
    yield "lfm2", "Lfm2Config", llama(block_multiple_of=32, block_ffn_dim_multiplier=1.3, **lfm), ("bpe", "llama-bpe"), "BF16"
    yield "lfm2_as_is", "Lfm2Config", llama(block_auto_adjust_ff_dim=False, tie_word_embeddings=False, **lfm), ("bpe", "llama-bpe"), "F16"
    yield "lfm2moe", "Lfm2MoeConfig", llama(num_dense_layers=1, **EXPERTS, **lfm), ("bpe", "llama-bpe"), "BF16"
    yield "granitehybrid", "GraniteMoeHybridConfig", llama(num_local_experts=0, num_experts_per_tok=0, shared_intermediate_size=96, **granite), spm, "BF16", hybrid
    yield "granitehybrid_moe", "GraniteMoeHybridConfig", llama(num_local_experts=4, num_experts_per_tok=2, shared_intermediate_size=48, **granite), spm, "F16", hybrid
    yield "granitehybrid_attention", "GraniteMoeHybridConfig", dict(llama(num_local_experts=0, num_experts_per_tok=0, shared_intermediate_size=96, position_embedding_type="rope",
                                                                     **granite), layer_types=["attention"] * 2), spm, "BF16", dict(config=dict(layer_types=["attention"] * 2), as_published=True, without=".ssm.")
    yield "mamba", "MambaConfig", dict(hidden_size=64, num_hidden_layers=2), spm, "BF16"
    yield "mamba2", "Mamba2Config", dict(hidden_size=64, num_heads=8, head_dim=16, state_size=16, n_groups=2, num_hidden_layers=2), spm, "F32"
    nemotron = dict(hidden_size=64, intermediate_size=96, num_attention_heads=4, num_key_value_heads=2, head_dim=16, mamba_num_heads=8, mamba_head_dim=16,
                    ssm_state_size=16, n_groups=2)
    yield "nemotron_h", "NemotronHConfig", dict(nemotron, layers_block_type=["mamba", "mlp", "attention"]), ("glm", "llama-bpe"), "BF16", dict(
        config=dict(hybrid_override_pattern="M-*", num_hidden_layers=3), drop=["num_experts_per_tok", "n_routed_experts", "n_group", "topk_group", "layers_block_type", "layer_types"], as_published=True)
    yield "nemotron_h_moe", "NemotronHConfig", dict(nemotron, layers_block_type=["mamba", "moe", "attention"], n_routed_experts=4, num_experts_per_tok=2,
        moe_intermediate_size=32, moe_shared_expert_intermediate_size=48, routed_scaling_factor=2.5), ("glm", "llama-bpe"), "BF16", dict(as_published=True)
    yield "falcon_h1", "FalconH1Config", llama(head_dim=16, mamba_d_ssm=128, embedding_multiplier=5.5, lm_head_multiplier=0.03, key_multiplier=0.4, attention_in_multiplier=0.9,
        attention_out_multiplier=0.94, ssm_in_multiplier=1.25, ssm_out_multiplier=0.24, mlp_multipliers=[0.88, 0.3], ssm_multipliers=[0.35, 0.25, 0.18, 0.5, 0.31], **mamba2), gpt, "BF16"
    yield "falcon_h1_norm", "FalconH1Config", llama(head_dim=16, mamba_d_ssm=128, mamba_rms_norm=True, mamba_norm_before_gate=False, key_multiplier=0.4, **mamba2, **one), gpt, "F16"
    yield "jamba", "JambaConfig", dict(llama(num_experts=4, num_experts_per_tok=2, attn_layer_period=2, attn_layer_offset=1, expert_layer_period=2, expert_layer_offset=1,
        mamba_d_state=16, use_mamba_kernels=False), num_hidden_layers=4), spm, "BF16"


def dense_families(llama, spm, gpt):
    yarn = dict(rope_type="yarn", factor=16.0, original_max_position_embeddings=128, beta_fast=32.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0,
                llama_4_scaling_beta=0.1, rope_theta=1000000.0)
    llama3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64, rope_theta=500000.0)
    long_rope = dict(rope_type="longrope", short_factor=[1.0 + i / 8 for i in range(8)], long_factor=[2.0 + i for i in range(8)], original_max_position_embeddings=128)
    heads = dict(head_dim=32, global_head_dim=64, sliding_window=64, layer_types=["sliding_attention", "full_attention"])
    one = dict(num_hidden_layers=1)
    yield "ernie4_5", "Ernie4_5Config", llama(head_dim=16, **one), spm, "BF16"
    yield "glm4", "Glm4Config", llama(head_dim=32, attention_bias=True, **one), ("glm", "glm4"), "BF16"
    yield "ministral3", "Ministral3Config", llama(head_dim=32, sliding_window=None, rope_parameters=yarn, **one), ("bpe", "llama-bpe"), "BF16"
    yield "gemma4", "Gemma4TextConfig", llama(num_global_key_value_heads=1, attention_k_eq_v=True, num_kv_shared_layers=0, hidden_size_per_layer_input=0,
                                              vocab_size_per_layer_input=400, **heads), ("gemma4", None), "BF16"
    yield "gemma4_e", "Gemma4TextConfig", dict(llama(num_kv_shared_layers=2, hidden_size_per_layer_input=32, use_double_wide_mlp=True,
                                               vocab_size_per_layer_input=400, **heads), num_hidden_layers=4, layer_types=heads["layer_types"] * 2), ("gemma4", None), "BF16"
    yield "gemma4_moe", "Gemma4TextConfig", llama(num_kv_shared_layers=0, hidden_size_per_layer_input=0, enable_moe_block=True, num_experts=4, top_k_experts=2,
                                                  moe_intermediate_size=32, vocab_size_per_layer_input=400, **heads), ("gemma4", None), "BF16"
    yield "cohere", "CohereConfig", llama(logit_scale=0.0625, use_qk_norm=True, **one), ("bpe", "command-r"), "F16"
    yield "cohere2", "Cohere2Config", dict(llama(logit_scale=0.25, sliding_window=64, rotary_pct=1.0), num_hidden_layers=4, layer_types=["sliding_attention"] * 3 + ["full_attention"]), gpt, "BF16"
    yield "exaone4", "Exaone4Config", llama(sliding_window=None, rope_parameters=llama3, **one), ("bpe", "exaone4"), "BF16"
    yield "exaone4_windows", "Exaone4Config", dict(llama(sliding_window=64), sliding_window_pattern="LLLG", num_hidden_layers=4), ("bpe", "exaone4"), "BF16"
    yield "hunyuan", "HunYuanDenseV1Config", dict(llama(head_dim=32, **one), max_position_embeddings=32768, rope_parameters=dict(
        rope_type="dynamic", alpha=50.0, rope_theta=10000.0, factor=1.0)), gpt, "BF16"
    yield "stablelm", "StableLmConfig", llama(use_qkv_bias=True, **one), gpt, "F16"
    yield "stablelm_12b", "StableLmConfig", llama(qk_layernorm=True, use_parallel_residual=True, **one), gpt, "BF16"
    yield "gpt2", "GPT2Config", dict(n_embd=64, n_layer=2, n_head=4, n_positions=128, n_ctx=128), gpt, "F32"
    yield "gptneox", "GPTNeoXConfig", llama(num_key_value_heads=4, rotary_pct=0.5, **one), gpt, "F16", dict(config=dict(rotary_pct=0.5), as_published=True)
    yield "falcon", "FalconConfig", dict(hidden_size=64, num_hidden_layers=1, num_attention_heads=4, new_decoder_architecture=True, num_kv_heads=2), gpt, "BF16"
    yield "falcon_7b", "FalconConfig", dict(hidden_size=64, num_hidden_layers=1, num_attention_heads=4, multi_query=True, parallel_attn=True, num_kv_heads=1), gpt, "BF16"
    yield "phi2", "PhiConfig", llama(num_key_value_heads=4, partial_rotary_factor=0.5, **one) | dict(intermediate_size=256), ("bpe", "phi-2"), "F16"
    yield "olmo", "OlmoConfig", llama(clip_qkv=8.0, **one), ("bpe", "olmo"), "F32"
    yield "nemotron", "NemotronConfig", llama(partial_rotary_factor=0.5, **one), spm, "BF16"
    yield "apertus", "ApertusConfig", llama(rope_parameters=llama3), gpt, "BF16"
    yield "granite_swa", "GraniteSWAConfig", llama(sliding_window=64, layer_types=["sliding_attention", "full_attention"], no_rope_layers=[1, 0], layer_rope_theta=[10000.0, 0], attention_multiplier=0.25,
                                                  embedding_multiplier=12.0, residual_multiplier=0.22, logits_scaling=8.0), ("bpe", "refact"), "BF16"
    yield "jais2", "Jais2Config", llama(**one), gpt, "F32"
    yield "minicpm3", "MiniCPM3Config", llama(num_key_value_heads=4, q_lora_rank=32, kv_lora_rank=24, qk_nope_head_dim=16, qk_rope_head_dim=16, v_head_dim=16,
                                              rope_parameters=dict(long_rope, rope_theta=10000.0, original_max_position_embeddings=512), **one), spm, "BF16"


def expert_families(llama, spm, gpt):
    one = dict(num_hidden_layers=1)
    windows = dict(sliding_window=64, layer_types=["sliding_attention", "full_attention"])
    latent = dict(num_key_value_heads=4, q_lora_rank=32, kv_lora_rank=24, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=12, n_routed_experts=4,
                  num_experts_per_tok=2, moe_intermediate_size=32, n_shared_experts=1, first_k_dense_replace=1)
    yarn = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=128, beta_fast=32.0, beta_slow=1.0, rope_theta=10000.0)
    routed = dict(n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=32, n_shared_experts=1, first_k_dense_replace=1)
    yield "gpt_oss", "GptOssConfig", llama(head_dim=32, num_local_experts=4, num_experts_per_tok=2, rope_parameters=dict(yarn, truncate=False, rope_theta=150000.0), **windows), ("bpe", "gpt-4o"), "BF16"
    yield "gpt_oss_mxfp4", "GptOssConfig", llama(head_dim=32, num_local_experts=4, num_experts_per_tok=2, rope_parameters=dict(yarn, truncate=False, rope_theta=150000.0),
                                                 **dict(windows, num_hidden_layers=1, layer_types=["sliding_attention"])), ("bpe", "gpt-4o"), "BF16", dict(
        config=dict(quantization_config=dict(quant_method="mxfp4", modules_to_not_convert=["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"])),
        tensors_of=packed_experts, as_published=True)
    yield "glm4moe", "Glm4MoeConfig", llama(head_dim=32, use_qk_norm=True, attention_bias=True, routed_scaling_factor=2.5, **routed), ("glm", "glm4"), "BF16"
    yield "granitemoe", "GraniteMoeConfig", llama(num_local_experts=4, num_experts_per_tok=2, attention_multiplier=0.25, embedding_multiplier=12.0,
                                                  residual_multiplier=0.22, logits_scaling=8.0, **one), ("bpe", "refact"), "BF16"
    yield "granitemoe_shared", "GraniteMoeSharedConfig", llama(num_local_experts=4, num_experts_per_tok=2, shared_intermediate_size=48, **one), ("bpe", "refact"), "BF16"
    yield "ernie4_5_moe", "Ernie4_5_MoeConfig", llama(moe_num_experts=4, moe_k=2, moe_intermediate_size=32, moe_num_shared_experts=2, moe_layer_start_index=1,
                                                      moe_layer_end_index=-1, moe_layer_interval=1), spm, "BF16"
    yield "hunyuan_moe", "HunYuanMoEV1Config", llama(head_dim=16, num_experts=4, moe_topk=[2], moe_intermediate_size=[96], num_shared_expert=[1], **one), gpt, "BF16"
    yield "phimoe", "PhimoeConfig", llama(num_hidden_layers=1, num_local_experts=4, attention_bias=True, lm_head_bias=True, rope_parameters=dict(
        rope_type="longrope", short_factor=[1.0 + i / 8 for i in range(8)], long_factor=[2.0 + i for i in range(8)], original_max_position_embeddings=128, rope_theta=10000.0,
        short_mscale=LONG_ROPE_MAGNITUDE, long_mscale=LONG_ROPE_MAGNITUDE)), ("phi", None), "BF16", dict(config=dict(architectures=["PhiMoEForCausalLM"]))
    yield "minimax_m2", "MiniMaxM2Config", llama(head_dim=32, rotary_dim=16, num_local_experts=4, num_experts_per_tok=2, scoring_func="sigmoid", use_qk_norm=True, **one), ("bpe", "minimax-m2"), "BF16"
    yield "llama4", "Llama4TextConfig", llama(head_dim=16, intermediate_size_mlp=80, num_local_experts=4, num_experts_per_tok=1, interleave_moe_layer_step=2), ("bpe", "llama4"), "BF16"
    yield "exaone_moe", "ExaoneMoeConfig", llama(head_dim=32, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32, num_shared_experts=1, routed_scaling_factor=2.5,
                                                 first_k_dense_replace=1, scoring_func="sigmoid", norm_topk_prob=True, **windows), gpt, "BF16"
    yield "cohere2moe", "Cohere2MoeConfig", llama(head_dim=16, num_experts=4, num_experts_per_tok=2, num_shared_experts=1, first_k_dense_replace=1, logit_scale=0.25,
                                                  prefix_dense_intermediate_size=80, norm_topk_prob=True, **windows), gpt, "BF16"
    yield "afmoe", "AfmoeConfig", llama(head_dim=32, mup_enabled=True, num_experts=4, num_experts_per_tok=2, num_shared_experts=1, num_dense_layers=1, moe_intermediate_size=32, n_group=1,
                                        topk_group=1, route_scale=2.0, **dict(windows, layer_types=["sliding_attention"] * 2)), gpt, "BF16"
    yield "laguna", "LagunaConfig", llama(head_dim=32, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32, shared_expert_intermediate_size=48,
                                          num_attention_heads_per_layer=[4, 2], moe_routed_scaling_factor=2.5, mlp_layer_types=["dense", "sparse"], gating="per-head",
                                          sliding_window=64, layer_types=["full_attention", "sliding_attention"], rope_parameters=dict(
                                              full_attention=dict(yarn, partial_rotary_factor=0.5, attention_factor=1.0, rope_theta=500000.0),
                                              sliding_attention=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=1.0))), gpt, "BF16"
    yield "mimo2", None, {}, ("bpe", "qwen2"), "BF16", dict(config=MIMO, tensors=mimo_tensors(), as_published=True)
    yield "dots1", "Dots1Config", llama(head_dim=32, norm_topk_prob=True, routed_scaling_factor=2.5, **routed), ("bpe", "qwen2"), "BF16"
    yield "mellum", "MellumConfig", llama(head_dim=32, **EXPERTS, **windows), ("bpe", "mellum"), "BF16"
    yield "hy_v3", "HYV3Config", llama(head_dim=32, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32, num_shared_experts=1, first_k_dense_replace=1,
                                       router_scaling_factor=2.5), gpt, "BF16"
    yield "deepseek2_lite", "DeepseekV2Config", llama(**dict(latent, q_lora_rank=None, topk_method="greedy", scoring_func="softmax", norm_topk_prob=False)), gpt, "BF16"
    yield "deepseek3", "DeepseekV3Config", llama(**latent, scoring_func="sigmoid", n_group=2, topk_group=1, routed_scaling_factor=2.5, norm_topk_prob=True, rope_parameters=dict(
        yarn, mscale=1.0, mscale_all_dim=1.0)), ("bpe", "llama-bpe"), "BF16"
    yield "glm4_moe_lite", "Glm4MoeLiteConfig", llama(**latent, scoring_func="sigmoid", routed_scaling_factor=1.8, norm_topk_prob=True, n_group=1, topk_group=1), ("glm", "glm4"), "BF16"
    yield "mistral4", "Mistral4Config", llama(**latent, norm_topk_prob=True, rope_parameters=dict(yarn, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.1)), ("bpe", "llama-bpe"), "BF16", dict(
        config=dict(architectures=["Mistral3ForConditionalGeneration"]), also={"mistral4.attention.temperature_scale": np.float32(0.1), "mistral4.attention.temperature_length": np.uint32(128)})


def state_families(llama, gpt):
    delta = dict(head_dim=32, linear_num_key_heads=2, linear_num_value_heads=6, linear_key_head_dim=16, linear_value_head_dim=24, linear_conv_kernel_dim=4)
    shared = dict(EXPERTS, shared_expert_intermediate_size=48)
    two = dict(layer_types=["linear_attention", "full_attention"])
    sections = dict(rope_type="default", rope_theta=10000000.0, partial_rotary_factor=0.25, mrope_interleaved=True, mrope_section=[2, 1, 1])
    yield "qwen3next", "Qwen3NextConfig", llama(**delta, **shared, **two), ("bpe", "qwen2"), "BF16"
    yield "qwen35", "Qwen3_5TextConfig", llama(tie_word_embeddings=True, rope_parameters=sections, **dict(delta, linear_num_value_heads=4)) | dict(num_hidden_layers=4), ("bpe", "qwen35"), "BF16"
    yield "qwen35_heads", "Qwen3_5TextConfig", llama(attention_bias=True, **dict(delta, linear_num_value_heads=2), **two), ("bpe", "qwen35"), "F32"
    yield "qwen35moe", "Qwen3_5MoeTextConfig", {k: v for k, v in llama(**delta, **shared, **two).items() if k != "intermediate_size"}, ("bpe", "qwen35"), "F16"
    yield "qwen35moe_fused", "Qwen3_5MoeTextConfig", {k: v for k, v in llama(**delta, **shared, **two).items() if k != "intermediate_size"}, ("bpe", "qwen35"), "BF16", dict(
        tensors_of=fused_experts)
    kimi = dict(head_dim=16, num_heads=4, short_conv_kernel_size=4, full_attn_layers=[2], kda_layers=[1, 3])
    kimi_values = llama(num_key_value_heads=4) | dict(num_hidden_layers=3, num_experts=4, num_experts_per_token=2, moe_intermediate_size=32,
        num_shared_experts=1, kv_lora_rank=24, qk_rope_head_dim=8, qk_nope_head_dim=16, v_head_dim=12, linear_attn_config=kimi, first_k_dense_replace=1,
        rope_theta=10000.0, moe_router_activation_func="sigmoid")
    yield "kimi_linear", "KimiLinearConfig", kimi_values, gpt, "BF16", dict(tensors_of=published_dense)
    yield "kimi_linear_tied", "KimiLinearConfig", dict(kimi_values, tie_word_embeddings=True), gpt, "BF16", dict(tensors_of=published_dense)  # which its class does not do
    wide = dict(head_dim=16, hidden_size_per_layer_input=32, laurel_rank=8, sliding_window=16, layer_types=["sliding_attention", "full_attention"] * 2)
    yield "gemma3n", "Gemma3nTextConfig", llama(num_kv_shared_layers=2, vocab_size_per_layer_input=480, activation_sparsity_pattern=[0.95, 0.9, 0.0, 0.75],
                                                **wide) | dict(num_hidden_layers=4), ("gemma", None), "BF16"


def published_dense(tensors):
    """The first layers' FFN has another name in the published checkpoints than where transformers saves it."""
    for name, dtype, shape in tensors:
        yield name.replace(".block_sparse_moe.", ".mlp.") if ".0.block_sparse_moe." in name else name, dtype, shape


def fused_experts(tensors):
    """As the published checkpoints have them: one tensor for the gates and ups of a layer, one for its downs."""
    for name, dtype, shape in tensors:
        at, _, part = name.partition(".experts.")
        if not part:
            yield name, dtype, shape
        elif part == "0.gate_proj.weight":
            yield at + ".experts.gate_up_proj", dtype, [EXPERTS["num_experts"], 2 * shape[0], shape[1]]
        elif part == "0.down_proj.weight":
            yield at + ".experts.down_proj", dtype, [EXPERTS["num_experts"], *shape]


def packed_experts(tensors):
    """Experts as the published checkpoints have them: 32 values in 16 bytes, and a scale."""
    for name, dtype, shape in tensors:
        if name.endswith(("_proj", )) and ".experts." in name:
            experts, columns, rows = shape
            yield name + "_blocks", "U8", [experts, rows, columns // 32, 16]
            yield name + "_scales", "U8", [experts, rows, columns // 32]
        else:
            yield name, dtype, shape


# As the model's own code has them: transformers spells its configuration otherwise.
MIMO = dict(architectures=["MiMoV2FlashForCausalLM"], model_type="mimo_v2_flash", hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=1, max_position_embeddings=512, head_dim=32, v_head_dim=16, swa_head_dim=32, swa_v_head_dim=16, swa_num_attention_heads=4,
            swa_num_key_value_heads=2, hybrid_layer_pattern=[0, 1], moe_layer_freq=[0, 1], sliding_window=64, sliding_window_size=64, partial_rotary_factor=0.5,
            rope_theta=5000000, swa_rope_theta=10000, n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=32, n_group=1, topk_group=1, topk_method="noaux_tc",
            scoring_func="sigmoid", norm_topk_prob=True, layernorm_epsilon=1e-5, attention_value_scale=0.707, add_swa_attention_sink_bias=True,
            add_full_attention_sink_bias=False, hidden_act="silu", attention_bias=False, tie_word_embeddings=False, routed_scaling_factor=None, n_shared_experts=None)
NOMIC = dict(architectures=["NomicBertModel"], model_type="nomic_bert", n_embd=64, n_head=4, n_inner=96, n_layer=1, n_positions=8192, max_trained_positions=2048,
             activation_function="swiglu", causal=False, qkv_proj_bias=False, mlp_fc1_bias=False, mlp_fc2_bias=False, prenorm=False, rotary_emb_fraction=1.0,
             rotary_emb_base=1000, rotary_emb_interleaved=False, rotary_emb_scale_base=None, layer_norm_epsilon=1e-12, type_vocab_size=2, use_rms_norm=False, pad_vocab_size_multiple=64)


def mimo_tensors():
    yield "model.embed_tokens.weight", [VOCAB["bpe"], 64]
    yield "model.norm.weight", [64]
    yield "lm_head.weight", [VOCAB["bpe"], 64]
    for layer, kv in ((0, 1), (1, 2)):
        at = f"model.layers.{layer}."
        yield from ((at + "input_layernorm.weight", [64]), (at + "post_attention_layernorm.weight", [64]))
        yield from ((at + "self_attn.q_proj.weight", [128, 64]), (at + "self_attn.k_proj.weight", [32 * kv, 64]), (at + "self_attn.v_proj.weight", [16 * kv, 64]))
        yield at + "self_attn.o_proj.weight", [64, 64]
    yield "model.layers.1.self_attn.attention_sink_bias", [4]
    for part, shape in (("gate", [96, 64]), ("up", [96, 64]), ("down", [64, 96])):
        yield f"model.layers.0.mlp.{part}_proj.weight", shape
        for x in range(4):
            yield f"model.layers.1.mlp.experts.{x}.{part}_proj.weight", [32 if n == 96 else n for n in shape]
    yield "model.layers.1.mlp.gate.weight", [4, 64]
    yield "model.layers.1.mlp.gate.e_score_correction_bias", [4]


def nomic_tensors():
    yield from (("embeddings.word_embeddings.weight", [VOCAB["wordpiece"], 64]), ("embeddings.token_type_embeddings.weight", [2, 64]), ("emb_ln.weight", [64]), ("emb_ln.bias", [64]))
    at = "encoder.layers.0."
    yield from ((at + "attn.Wqkv.weight", [192, 64]), (at + "attn.out_proj.weight", [64, 64]), (at + "mlp.fc11.weight", [96, 64]), (at + "mlp.fc12.weight", [96, 64]),
                (at + "mlp.fc2.weight", [64, 96]))
    for norm in ("norm1", "norm2"):
        yield from ((f"{at}{norm}.weight", [64]), (f"{at}{norm}.bias", [64]))


def nomic_moe_tensors():
    yield from (("embeddings.word_embeddings.weight", [VOCAB["unigram"], 64]), ("embeddings.token_type_embeddings.weight", [1, 64]), ("emb_ln.weight", [64]), ("emb_ln.bias", [64]))
    for layer in range(2):
        at = f"encoder.layers.{layer}."
        for part, shape in (("attn.Wqkv", [192, 64]), ("attn.out_proj", [64, 64]), ("norm1", [64]), ("norm2", [64])):
            yield from ((f"{at}{part}.weight", shape), (f"{at}{part}.bias", shape[:1]))
    for part, shape in (("fc1", [96, 64]), ("fc2", [64, 96])):
        yield from ((f"encoder.layers.0.mlp.{part}.weight", shape), (f"encoder.layers.0.mlp.{part}.bias", shape[:1]))
    at = "encoder.layers.1.mlp."
    yield from ((at + "router.layer.weight", [4, 64]), (at + "experts.mlp.w1", [4 * 96, 64]), (at + "experts.mlp.w2", [4 * 96, 64]), (at + "experts.bias", [64]))


def encoders(llama, gpt):
    bert = dict(CONFIG, num_hidden_layers=1, max_position_embeddings=128)
    del bert["num_key_value_heads"]
    mean = {"modules.json": json.dumps([{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
                                        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}]),
            "1_Pooling/config.json": json.dumps({"word_embedding_dimension": 64, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True})}
    last = dict(mean, **{"1_Pooling/config.json": json.dumps({"word_embedding_dimension": 64, "pooling_mode_mean_tokens": False, "pooling_mode_lasttoken": True})})
    yield "bert", "BertConfig", bert, ("wordpiece", "jina-v2-en"), "F32", dict(files=mean)
    yield "nomic_bert", None, {}, ("wordpiece", "jina-v2-en"), "F32", dict(files=mean, config=NOMIC, tensors=nomic_tensors(), as_published=True)
    yield "xlm_roberta", "XLMRobertaConfig", dict(bert, type_vocab_size=1, layer_norm_eps=1e-5), ("unigram", None), "F32", dict(files=mean)
    experts = dict(activation_function="gelu", qkv_proj_bias=True, mlp_fc1_bias=True, mlp_fc2_bias=True, n_layer=2, n_positions=2048, rotary_emb_base=10000, moe_every_n_layers=2,
                   num_experts=4, moe_top_k=2, num_shared_experts=0, moe_normalize_expert_weights=False, expert_choice_router=False, type_vocab_size=1, pad_token_id=1, bos_token_id=0,
                   eos_token_id=2, layer_norm_epsilon=1e-5)
    yield "nomic_bert_moe", None, {}, ("unigram", None), "F32", dict(files=mean, config=dict(NOMIC, **experts), tensors=nomic_moe_tensors(), as_published=True)
    yield "modern_bert", "ModernBertConfig", dict(CONFIG, num_hidden_layers=4, local_attention=64, global_attn_every_n_layers=3, sep_token_id=3, cls_token_id=1), gpt, "F32", dict(files=mean)
    yield "eurobert", "EuroBertConfig", llama(num_hidden_layers=1, classifier_pooling="mean", mask_token_id=4), ("bpe", "llama-bpe"), "BF16", dict(files=mean)
    yield "gemma_embedding", "Gemma3TextConfig", llama(head_dim=32, query_pre_attn_scalar=32, sliding_window=64, num_hidden_layers=1, use_bidirectional_attention=True), ("gemma", None), "BF16", dict(files=mean)
    yield "qwen3_embedding", "Qwen3Config", llama(head_dim=32, num_hidden_layers=1), ("bpe", "qwen2"), "BF16", dict(files=last)


TOKENIZERS = {}
BASE = {}


def tokenizer_files(kind, pre):
    """Files by name; the texts of one kind are shared by all families that have it."""
    if (kind, pre) in TOKENIZERS:
        return TOKENIZERS[kind, pre]
    if kind in ("bpe", "glm"):
        bos = "<|begin|>" if pre == "llama-bpe" else None
        config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end|>", "pad_token": "<|endoftext|>", "clean_up_tokenization_spaces": False,
                  "chat_template": "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"}
        if bos:
            config["bos_token"] = bos
        if not BASE:
            BASE.update(make_bpe())
        files = {"tokenizer.json": patch_of(pre, BASE), "tokenizer_config.json": json.dumps(config)}
    elif kind == "gemma4":
        config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<bos>", "eos_token": "<turn|>", "pad_token": "<pad>", "unk_token": "<unk>", "mask_token": "<mask>",
                  "chat_template": "{{ bos_token }}{{ messages[0]['content'] }}"}
        files = {"tokenizer.json": make_gemma4(), "tokenizer_config.json": json.dumps(config)}
    elif kind == "wordpiece":
        config = {"tokenizer_class": "PreTrainedTokenizerFast", "cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "unk_token": "[UNK]", "mask_token": "[MASK]"}
        files = {"tokenizer.json": make_wordpiece(), "tokenizer_config.json": json.dumps(config)}
    elif kind == "unigram":
        config = {"tokenizer_class": "XLMRobertaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "sep_token": "</s>", "cls_token": "<s>", "unk_token": "<unk>", "pad_token": "<pad>",
                  "mask_token": "<mask>", "clean_up_tokenization_spaces": True}
        files = {"tokenizer.json": make_unigram(), "tokenizer_config.json": json.dumps(config)}
    else:
        config = {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True, "add_eos_token": False, "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>",
                  "added_tokens_decoder": {"0": {"content": "<unk>", "special": True}, "1": {"content": "<s>", "special": True}, "2": {"content": "</s>", "special": True},
                                           "381": {"content": "<|user|>", "special": False}, "382": {"content": "\u2581\u2581tool", "special": False}}}
        if kind == "gemma":
            config = {"tokenizer_class": "GemmaTokenizer", "add_bos_token": True, "bos_token": "<bos>", "eos_token": "<eos>", "chat_template": [
                {"name": "default", "template": "{{ bos_token }}{{ messages[0]['content'] }}"}, {"name": "rag", "template": "{{ documents }}"}]}
        files = {"tokenizer.model": make_pieces(kind == "gemma"), "tokenizer_config.json": json.dumps(config)}
        if kind == "phi":
            files["added_tokens.json"] = json.dumps({"<|assistant|>": 383, "<|far|>": 100000})
    TOKENIZERS[kind, pre] = files
    return files


TEXTS = ["Hello, world! It's a test; they'll see what we've done, DON'T they?", "for (int i = 0; i < 123; ++i) {\n\treturn \"%d\\n\";\n}\n\n",
         "0 1 12 123 1234 12345 1234567890 3.14159 1,000,000 0x7f 2026-11-24", "  two   three    four\n\n\nlines\r\n \t tabs \t\t end ",
         "\u00fcber caf\u00e9 na\u00efve \u0141\u00f3d\u017a \u041f\u0440\u0438\u0432\u0435\u0442", "\u65e5\u672c\u8a9e\u3002 \u3053\u3093\u306b\u3061\u306f \ud55c\uad6d\uc5b4",
         "\U0001f600 \U0001f680\U0001f469\u200d\U0001f52c \u2705 ... !!! ??? ---", "CamelCase snake_case HTTPServer v2.0.1 a+b=c x^2 $5 50% #tag @user", "a", " ", "\n", "<tool> the <|end|> and"]


def ids_of(files, base):
    """What the tokenizers package makes of the texts: no special tokens before or behind."""
    if "tokenizer.json" not in files:
        return None
    from tokenizers import Tokenizer
    kind, content = files["tokenizer.json"]
    tokenizer = Tokenizer.from_str(patched(base, content) if kind == "patch" else content)
    return [tokenizer.encode(text, add_special_tokens=False).ids for text in TEXTS]


def read_gguf(path):
    """Keys: [type, element type, count, digest of the bytes or the value]; tensors: [type, shape, digest]."""
    from gguf import GGUFReader
    reader = GGUFReader(path)
    keys = {}
    for key, field in reader.fields.items():
        if key.startswith(("GGUF.", "general.")):
            continue
        types = [int(t) for t in field.types]
        if types[0] == 9:
            parts = [np.asarray(p) for p in field.parts[5:]]  # key length, key, type, element type, count
            payload = b"".join(p.tobytes() for p in parts)
            count = int(np.asarray(field.parts[4])[0])
            keys[key] = [9, types[1] if count else 0, count, fnv(payload)]
        elif types[0] == 8:
            keys[key] = [8, 0, 0, bytes(field.parts[-1]).decode()]
        else:
            keys[key] = [types[0], 0, 0, bytes(np.asarray(field.parts[-1]).tobytes()).hex()]
    tensors = {}
    for t in reader.tensors:
        tensors[t.name] = [t.tensor_type.name, [int(n) for n in reversed(t.shape)], fnv(t.data.tobytes())]
    return keys, tensors


VOCAB = {"bpe": 310, "glm": 312, "pieces": 384, "phi": 392, "gemma": 490, "gemma4": 400, "wordpiece": 210, "unigram": 370}
ENDS = {"gemma": dict(pad_token_id=0, eos_token_id=1, bos_token_id=2), "gemma4": dict(pad_token_id=0, eos_token_id=1, bos_token_id=2), "wordpiece": dict(pad_token_id=0), "unigram": dict(bos_token_id=0, pad_token_id=1, eos_token_id=2)}


def model_of(config_class, values, tokenizer):
    """A model of no weights: its folder has the names and shapes that transformers writes."""
    import torch
    import transformers
    ends = ENDS.get(tokenizer[0], dict(bos_token_id=1, eos_token_id=2, pad_token_id=None))
    config = getattr(transformers, config_class)(vocab_size=VOCAB[tokenizer[0]], **values, **ends)
    with torch.device("meta"):
        if config_class in ("BertConfig", "XLMRobertaConfig", "ModernBertConfig", "EuroBertConfig") or values.get("use_bidirectional_attention") is True:
            return config, transformers.AutoModel.from_config(config)
        if config_class == "Mistral4Config":  # which has no automatic class
            return config, transformers.Mistral4ForCausalLM(config)
        return config, transformers.AutoModelForCausalLM.from_config(config)


def make(name, config_class, values, tokenizer, dtype, more, convert):
    files = dict(tokenizer_files(*tokenizer), **more.get("files", {}))
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary) / name
        if config_class:
            config, model = model_of(config_class, values, tokenizer)
            model.to_empty(device="cpu").save_pretrained(folder)
            from safetensors import safe_open
            with safe_open(folder / "model.safetensors", "pt") as file:
                tied = config.tie_word_embeddings and model._tied_weights_keys and {"lm_head.weight"} or {}  # which a model on no device has not shared yet
                tensors = [[key, dtype, file.get_slice(key).get_shape()] for key in file.keys() if key not in tied]
        else:  # a class that transformers has under other names
            folder.mkdir()
            (folder / "config.json").write_text(json.dumps(dict(values, vocab_size=VOCAB[tokenizer[0]], **more["config"]), indent=2))
            tensors = [[key, dtype, shape] for key, shape in more["tensors"]]
        if "tensors_of" in more:
            tensors = [list(t) for t in more["tensors_of"](tensors)]
        if "config" in more and config_class:
            changed = dict(json.loads((folder / "config.json").read_text()), **more["config"])
            (folder / "config.json").write_text(json.dumps({k: v for k, v in changed.items() if k not in more.get("drop", [])}, indent=2))
        write_safetensors(folder / "model.safetensors", tensors)
        (folder / "generation_config.json").unlink(missing_ok=True)
        for file_name, content in files.items():
            content = patched(BASE, content) if isinstance(content, dict) else content
            (folder / file_name).parent.mkdir(exist_ok=True)
            (folder / file_name).write_bytes(content if isinstance(content, bytes) else content.encode())
        found = {}
        keys = None
        for outtype in ("f32", "f16", "bf16"):
            out = pathlib.Path(temporary) / f"{outtype}.gguf"
            convert(folder, out, outtype, tokenizer[1], more.get("as_published", False))
            keys, tensors_found = read_gguf(out)
            keys = {k: v for k, v in keys.items() if "without" not in more or more["without"] not in k}  # of layers that the model has not
            for key, value in more.get("also", {}).items():  # which its reader knows, and it does not write
                keys[key] = [{"float32": 6, "uint32": 4}[value.dtype.name], 0, 0, value.tobytes().hex()]
            for tensor, (kind, shape, digest) in tensors_found.items():
                found.setdefault(tensor, [shape]).extend([kind, digest])
        made = {"config": (folder / "config.json").read_text(), "tokenizer": "/".join(map(str, tokenizer)), "tensors": tensors, "keys": keys, "outputs": found}
        if "files" in more:
            made["files"] = more["files"]
        return made


def converter(llama_cpp):
    sys.path.insert(0, str(llama_cpp))
    sys.path.insert(1, str(llama_cpp / "gguf-py"))
    import gguf
    import torch
    from conversion import ModelBase, ModelType, get_model_architecture, get_model_class
    from conversion.base import TextModel
    from conversion.stablelm import StableLMModel
    plain = StableLMModel.modify_tensors

    def with_norms(self, *tensor):  # it returns the norms of heads from a generator, where nobody sees them
        norms = yield from plain(self, *tensor)
        yield from norms or ()
    StableLMModel.modify_tensors = with_norms
    torch_exp = torch.exp
    torch.exp = lambda x: torch_exp(x.double()).to(x.dtype)  # in float32 its last bit depends on the machine's vectors
    types = {"f32": gguf.LlamaFileType.ALL_F32, "f16": gguf.LlamaFileType.MOSTLY_F16, "bf16": gguf.LlamaFileType.MOSTLY_BF16}

    exp = torch.exp
    torch.exp = lambda x: exp(x.double()).to(x.dtype)  # rounded once; the vector code of some builds is a bit off

    from conversion.hunyuan import HunYuanMoEModel
    HunYuanMoEModel.set_vocab = TextModel._set_vocab_gpt2  # its own reads a file of ranks that only remote code understands

    def convert(folder, out, outtype, pre, as_published):
        """as_published: keys of config.json that transformers' classes drop, and the converter asks for."""
        TextModel.get_vocab_base_pre = lambda self, tokenizer: pre
        with torch.inference_mode():
            config = json.loads((folder / "config.json").read_text()) if as_published else ModelBase.load_hparams(folder, False)
            model_class = get_model_class(get_model_architecture(config, ModelType.TEXT))
            model_class.no_mtp = True  # heads that predict further tokens, which these folders lack
            model_class(folder, types[outtype], out, **(dict(hparams=config) if as_published else {})).write()
    return convert


def main():
    llama_cpp, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    os.environ["TRANSFORMERS_OFFLINE"] = "1"
    convert = converter(llama_cpp)
    facts = json.loads(out.read_text()) if sys.argv[3:] and out.exists() else {"families": {}, "files": {}}
    BASE.update(facts.get("tokenizer.json", {}))
    for name, config_class, values, tokenizer, dtype, *more in families():
        if sys.argv[3:] and name not in sys.argv[3:]:
            continue
        print(name, flush=True)
        try:
            facts["families"][name] = make(name, config_class, values, tokenizer, dtype, more[0] if more else {}, convert)
        except Exception as problem:  # the next family may do
            import traceback
            traceback.print_exc()
            print(f"{name}: {problem}", flush=True)
    for (kind, pre), files in TOKENIZERS.items():
        facts["files"][f"{kind}/{pre}"] = {n: (["base64", base64.b64encode(c).decode()] if isinstance(c, bytes) else ["patch" if isinstance(c, dict) else "text", c]) for n, c in files.items()}
    facts["tokenizer.json"] = BASE
    facts["texts"] = TEXTS
    facts["ids"] = {name: ids_of(files, facts["tokenizer.json"]) for name, files in facts["files"].items()}
    out.write_text(json.dumps(facts, separators=(",", ":"), ensure_ascii=True).replace('},"', '},\n"') + "\n")


if __name__ == "__main__":
    main()
