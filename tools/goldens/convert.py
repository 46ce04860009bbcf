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
PATTERNS["dbrx"] = PATTERNS["smaug-bpe"] = PATTERNS["llama-bpe"]


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
    elif pre in ("smollm", "starcoder", "refact"):
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
    if pre == "qwen2":
        patch["normalizer"] = {"type": "NFC"}
    return patch


def patched(base, patch):
    whole = dict(base, **{k: v for k, v in patch.items() if k != "ignore_merges"})
    whole["model"] = dict(base["model"], ignore_merges=patch.get("ignore_merges", False))
    return json.dumps(whole)


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


TOKENIZERS = {}
BASE = {}


def tokenizer_files(kind, pre):
    """Files by name; the texts of one kind are shared by all families that have it."""
    if (kind, pre) in TOKENIZERS:
        return TOKENIZERS[kind, pre]
    if kind == "bpe":
        bos = "<|begin|>" if pre == "llama-bpe" else None
        config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end|>", "pad_token": "<|endoftext|>", "clean_up_tokenization_spaces": False,
                  "chat_template": "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"}
        if bos:
            config["bos_token"] = bos
        if not BASE:
            BASE.update(make_bpe())
        files = {"tokenizer.json": patch_of(pre, BASE), "tokenizer_config.json": json.dumps(config)}
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


def make(name, config_class, values, tokenizer, dtype, llama_cpp, convert):
    import torch
    import transformers
    files = tokenizer_files(*tokenizer)
    vocab = {"bpe": 310, "pieces": 384, "phi": 392, "gemma": 490}[tokenizer[0]]
    ends = {"gemma": dict(pad_token_id=0, eos_token_id=1, bos_token_id=2)}.get(tokenizer[0], dict(bos_token_id=1, eos_token_id=2, pad_token_id=None))
    config = getattr(transformers, config_class)(vocab_size=vocab, **values, **ends)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary) / name
        model.to_empty(device="cpu").save_pretrained(folder)
        from safetensors import safe_open
        with safe_open(folder / "model.safetensors", "pt") as file:
            tied = config.tie_word_embeddings and {"lm_head.weight"} or {}  # which a model on no device has not shared yet
            tensors = [[key, dtype, file.get_slice(key).get_shape()] for key in file.keys() if key not in tied]
        write_safetensors(folder / "model.safetensors", tensors)
        (folder / "generation_config.json").unlink(missing_ok=True)
        for file_name, content in files.items():
            content = patched(BASE, content) if isinstance(content, dict) else content
            (folder / file_name).write_bytes(content if isinstance(content, bytes) else content.encode())
        found = {}
        keys = None
        for outtype in ("f32", "f16", "bf16"):
            out = pathlib.Path(temporary) / f"{outtype}.gguf"
            convert(folder, out, outtype, tokenizer[1])
            keys, tensors_found = read_gguf(out)
            for tensor, (kind, shape, digest) in tensors_found.items():
                found.setdefault(tensor, [shape]).extend([kind, digest])
        return {"config": (folder / "config.json").read_text(), "tokenizer": "/".join(map(str, tokenizer)), "tensors": tensors, "keys": keys, "outputs": found}


def converter(llama_cpp):
    sys.path.insert(0, str(llama_cpp))
    sys.path.insert(1, str(llama_cpp / "gguf-py"))
    import gguf
    import torch
    from conversion import ModelBase, ModelType, get_model_architecture, get_model_class
    from conversion.base import TextModel
    types = {"f32": gguf.LlamaFileType.ALL_F32, "f16": gguf.LlamaFileType.MOSTLY_F16, "bf16": gguf.LlamaFileType.MOSTLY_BF16}

    def convert(folder, out, outtype, pre):
        TextModel.get_vocab_base_pre = lambda self, tokenizer: pre
        with torch.inference_mode():
            config = ModelBase.load_hparams(folder, False)
            model_class = get_model_class(get_model_architecture(config, ModelType.TEXT))
            model_class(folder, types[outtype], out).write()
    return convert


def main():
    llama_cpp, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    os.environ["TRANSFORMERS_OFFLINE"] = "1"
    convert = converter(llama_cpp)
    facts = json.loads(out.read_text()) if sys.argv[3:] and out.exists() else {"families": {}, "files": {}}
    for name, config_class, values, tokenizer, dtype in families():
        if sys.argv[3:] and name not in sys.argv[3:]:
            continue
        print(name, flush=True)
        try:
            facts["families"][name] = make(name, config_class, values, tokenizer, dtype, llama_cpp, convert)
        except Exception as problem:  # the next family may do
            import traceback
            traceback.print_exc()
            print(f"{name}: {problem}", flush=True)
    for (kind, pre), files in TOKENIZERS.items():
        facts["files"][f"{kind}/{pre}"] = {n: (["base64", base64.b64encode(c).decode()] if isinstance(c, bytes) else ["patch" if isinstance(c, dict) else "text", c]) for n, c in files.items()}
    facts["tokenizer.json"] = BASE
    out.write_text(json.dumps(facts, separators=(",", ":"), ensure_ascii=True).replace('},"', '},\n"') + "\n")


if __name__ == "__main__":
    main()
