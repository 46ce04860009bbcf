"""Models of random settings and weights, through transformers in float64 and through assay: what the goldens' few settings leave open.

usage: random_settings.py [--retell] [--with LLAMA_CPP] ASSAY SEED [FAMILY...]     (pip install torch transformers safetensors tokenizers sentencepiece gguf; CPU is enough)

The families are those of convert.py. Of each, widths, heads, layers, windows, experts, ties, norms' epsilons, biases, scales and rotations are drawn, the folder
is written and converted by `assay convert --outtype f32`; with a source folder of llama.cpp also by its converter, and then families that convert.py has not
(only_there) are drawn too. `assay logits` runs it in modes oracle and f32, the latter with other threads and chunks as well. A line a family: `ok` with the largest difference of a
log-probability or logit in either mode; `DIFFERS` above 1e-7 of the logits' span (oracle), 2e-4 of a span of 10 (f32), or where bits do; or who refused it and why. Of an
encoder: three poolings of the last norm's rows. Exit 1 where one differs that assay converted. transformers computes everything in float64 here (wide), rotations and norms too; what a
file keeps as float32 is the limit: epsilons and decays are taken as it keeps them. With --retell each file is told in other ways too (retell.py), whose bits
must be its own, and run with caches of 16 and 8 bits. What llama.cpp's converter has no key for it leaves out: its files may differ.
"""
import contextlib
import copy
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

import convert

os.environ["TRANSFORMERS_OFFLINE"] = "1"
N_TOKENS = 40
N_VOCAB = {"gemma4": 394}  # as many rows as tokens: of more, llama.cpp's converter and so ours keep a number that no reader takes
ENCODERS = ("bert", "xlm_roberta", "modern_bert", "eurobert", "gemma_embedding", "qwen3_embedding")
ONE_A_LAYER = ("layer_types", "mlp_layer_types", "no_rope_layers", "num_attention_heads_per_layer")
ORACLE_LIMIT, F32_LIMIT = 1e-7, 2e-4
RETELLS = False  # --retell
# Fields of many classes, each drawn now and then.
FIELDS = dict(
    rms_norm_eps=[1e-6, 1e-5, 1e-3], layer_norm_eps=[1e-6, 1e-5, 1e-3], layer_norm_epsilon=[1e-6, 1e-5, 1e-3], norm_eps=[1e-6, 1e-5, 1e-3], attention_bias=[False, True],
    mlp_bias=[False, True], lm_head_bias=[False, True], use_qkv_bias=[True, False], qkv_bias=[True, False], use_qk_norm=[True, False], norm_topk_prob=[True, False], logit_scale=[0.0625, 0.25, 1.0],
    embedding_multiplier=[1.0, 12.0, 0.5], final_logit_softcapping=[5.0, 30.0], clip_qkv=[None, 0.5, 8.0], rotary_pct=[0.25, 0.5, 1.0], use_parallel_residual=[True, False],
    conv_L_cache=[2, 3, 4], mamba_d_conv=[2, 3, 4], conv_kernel=[2, 3, 4], linear_conv_kernel_dim=[2, 3, 4], mamba_d_state=[8, 16, 24], ssm_state_size=[8, 16, 24], state_size=[8, 16, 24],
    linear_key_head_dim=[8, 16, 24], linear_value_head_dim=[8, 24, 32], time_step_rank=[4, 8, "auto"], q_lora_rank=[16, 24, 40, None], kv_lora_rank=[16, 24, 40], qk_nope_head_dim=[8, 16, 24],
    qk_rope_head_dim=[8, 16], v_head_dim=[8, 12, 16, 24], n_shared_experts=[1, 2], num_shared_experts=[1, 2], moe_num_shared_experts=[1, 2], route_scale=[0.5, 2.0],
    moe_routed_scaling_factor=[0.5, 2.5], router_scaling_factor=[0.5, 2.5])
ONE_ROTATION = ("minicpm3", "mimo2", "phi3", "phimoe", "hunyuan", "minimax_m3", "stablelm", "stablelm_12b", "gptneox", "falcon", "falcon_7b", "granite_swa", "gemma", "gemma2", "gemma4", "gemma4_e", "gemma4_moe", "laguna")
ROTATION_BY_KIND = ("Gemma3TextConfig", "Olmo3Config", "MellumConfig", "Gemma3nTextConfig")
LLAMA3 = ("llama", "llama_tied_yarn", "apertus", "exaone4", "smollm3", "mistral")
WINDOW, FULL = "sliding_attention", "full_attention"


def draw_layers(name, values, draw):
    if isinstance(values.get("layer_types"), list):
        times = draw.choice([1, 2])
        for key in ONE_A_LAYER:
            if isinstance(values.get(key), list):
                values[key] = values[key] * times
        values["num_hidden_layers"] *= times
    elif "moe_layer_end_index" not in values and name not in ("gemma3", "exaone4_windows"):
        key = "num_hidden_layers" if "num_hidden_layers" in values else "n_layer"
        if key not in values or name.startswith("kimi_linear"):  # a list says which layers there are
            return
        values[key] += draw.choice([0, 1, 2])
        if "first_k_dense_replace" in values:
            values["first_k_dense_replace"], values[key] = draw.choice([0, 1]), max(2, values[key])


def draw_widths(name, config_class, values, draw):
    if "head_dim" in values and "qk_rope_head_dim" not in values and "layer_types" not in values:
        values["head_dim"] = draw.choice([16, 32, 48, 64])
        if "query_pre_attn_scalar" in values:
            values["query_pre_attn_scalar"] = values["head_dim"]
        if "rotary_dim" in values:
            values["rotary_dim"] = draw.choice([8, 16])
    if "hidden_size" in values and name != "mamba2" and not name.startswith("granitehybrid") and name not in ("phi2", "phi3", "phimoe", "minicpm3", "laguna", "gemma4", "gemma4_e", "gemma4_moe"):
        values["hidden_size"] = draw.choice([64, 96, 128])
    if "intermediate_size" in values and name not in ("phi2", "gpt_oss_mxfp4", "hunyuan_moe"):
        values["intermediate_size"] = draw.choice([64, 96, 128, 200])
    for key in ("moe_intermediate_size", "shared_expert_intermediate_size", "shared_intermediate_size"):
        if isinstance(values.get(key), int):
            values[key] = draw.choice([32, 40, 48])
    if values.get("num_key_value_heads") == 2 and name not in ("laguna", "phi3", "phimoe"):
        values["num_attention_heads"] = draw.choice([2, 4, 8])
        values["num_key_value_heads"] = draw.choice([n for n in (1, 2, 4) if values["num_attention_heads"] % n == 0])


# Heads of queries and of keys: also as many as no power of two, and groups of 3, 5 and 7.
HEADS = ((3, 3), (6, 2), (9, 3), (5, 1), (10, 2), (7, 1), (14, 2), (12, 4), (6, 6), (1, 1))
FIXED_HEADS = ("laguna", "gemma4", "gemma4_e", "gemma4_moe", "gptneox", "granitehybrid", "granitehybrid_moe", "granitehybrid_attention", "minicpm3", "mimo2", "kimi_linear", "kimi_linear_tied",
               "gpt_oss_mxfp4", "qwen4exp")


def draw_odd(name, values, draw):
    """Heads and widths that are no powers of two; single layers."""
    if draw.random() < 0.5 or name in FIXED_HEADS:
        return
    if values.get("num_hidden_layers") in (2, 3, 4) and not any(isinstance(values.get(key), list) for key in ONE_A_LAYER) and "layer_group_size" not in values and draw.random() < 0.3:
        if not any(key in values for key in ("first_k_dense_replace", "sliding_window_pattern", "num_kv_shared_layers", "attn_layer_period", "layers_block_type", "num_dense_layers", "moe_layer_start_index", "interleave_moe_layer_step")):
            values["num_hidden_layers"] = 1
    if name == "gpt2":
        values["n_head"] = draw.choice([3, 5, 6])
        values["n_embd"] = values["n_head"] * draw.choice([12, 20, 24])
        return
    if "num_key_value_heads" not in values or "qk_rope_head_dim" in values:
        return
    heads, kv_heads = draw.choice(HEADS)
    if name in ("phi2", "llama4") or values["num_key_value_heads"] == values["num_attention_heads"] == 4:
        kv_heads = heads
    values.update(num_attention_heads=heads, num_key_value_heads=kv_heads)
    if name in ("phi3", "phimoe"):
        values["hidden_size"] = heads * 16
    elif "head_dim" in values and "hidden_size" in values:
        if "layer_types" not in values or name.startswith(("qwen3", "exaone", "gpt_oss", "afmoe", "granite_swa", "mellum", "cohere2moe")):
            values["head_dim"] = draw.choice([24, 40, 72, 96, 8, 20])
            if "query_pre_attn_scalar" in values:
                values["query_pre_attn_scalar"] = values["head_dim"]
            if isinstance(values.get("rotary_dim"), int):
                values["rotary_dim"] = draw.choice([8, values["head_dim"]])
        values["hidden_size"] = draw.choice([72, 80, 100, 36])
    elif "hidden_size" in values:
        values["hidden_size"] = heads * draw.choice([24, 40, 16, 8])
        if name == "phi2":
            values["intermediate_size"] = 4 * values["hidden_size"]


def draw_rest(name, config_class, values, draw):
    can_untie = not name.startswith(("gemma", "gpt2", "phi2"))
    if can_untie and draw.random() < 0.5:
        values["tie_word_embeddings"] = draw.choice([True, False])
    for key in ("sliding_window", "local_attention"):
        if values.get(key):
            values[key] = draw.choice([8, 16, 24, 64])
    for key in ("num_experts", "num_local_experts", "n_routed_experts"):
        if isinstance(values.get(key), int):
            values[key] = draw.choice([4, 8] if "n_group" in values else [4, 6, 8])
    for key in ("num_experts_per_tok", "top_k_experts"):
        if isinstance(values.get(key), int) and name not in ("llama4", "phimoe"):
            values[key] = draw.choice([1, 2] if "n_group" in values else [1, 2, 3])
    if "routed_scaling_factor" in values:
        values["routed_scaling_factor"] = draw.choice([0.5, 1.0, 2.5])
    if isinstance(values.get("partial_rotary_factor"), float):
        values["partial_rotary_factor"] = draw.choice([0.25, 0.5, 1.0])
    if name == "phimoe":
        values.update(sliding_window=draw.choice([None, 8, 24]), num_local_experts=draw.choice([4, 16]))
        values["rope_parameters"].update(draw.choice([{}, dict(short_mscale=1.3, long_mscale=1.3)]))
    if config_class in ("LlamaConfig", "MistralConfig", "Qwen3Config", "SeedOssConfig", "OlmoConfig", "ArceeConfig") and "rope_scaling" not in values:
        values["rope_scaling"] = draw.choice([None, dict(rope_type="linear", factor=2.0), dict(rope_type="yarn", factor=8.0, original_max_position_embeddings=64)])
    if "attention_multiplier" in values:
        values.update(attention_multiplier=draw.choice([0.1, 0.25]), residual_multiplier=draw.choice([0.5, 1.0]), logits_scaling=draw.choice([1.0, 2.0]))


def draw_fields(name, config_class, values, draw):
    known = {field for parent in config_class.__mro__ for field in getattr(parent, "__annotations__", {})}
    for key, choices in FIELDS.items():
        if key in known and draw.random() < 0.3 and not (key == "q_lora_rank" and name == "minicpm3"):
            values[key] = draw.choice(choices)
    if "n_group" in values and "n_routed_experts" in values:
        values.update(draw.choice([dict(n_routed_experts=8, n_group=4, topk_group=2, num_experts_per_tok=3), dict(n_routed_experts=6, n_group=2, topk_group=1, num_experts_per_tok=2)]))
    if values.get("sliding_window") and draw.random() < 0.5:
        values["sliding_window"] = draw.choice([1, 3, 7, 33, 100])
    if isinstance(values.get("intermediate_size"), int) and draw.random() < 0.4 and name not in ("phi2", "gpt_oss_mxfp4", "hunyuan_moe"):
        values["intermediate_size"] = draw.choice([33, 50, 77, 130])
    if "rope_parameters" in known and name not in ONE_ROTATION and draw.random() < 0.5:
        draw_rotation(name, config_class, values, draw)


def draw_rotation(name, config_class, values, draw):
    kept = {k: v for k, v in (values.get("rope_parameters") or {}).items() if k in ("partial_rotary_factor", "llama_4_scaling_beta", "mrope_section", "mrope_interleaved", "truncate")}
    if isinstance(values.get("partial_rotary_factor"), float):
        kept["partial_rotary_factor"] = values["partial_rotary_factor"]
    for key in ("rope_scaling", "rope_theta"):
        values.pop(key, None)
    kind = "yarn" if "llama_4_scaling_beta" in kept else draw.choice(["default", "linear", "yarn"] + (["llama3"] if name in LLAMA3 else []))
    drawn = dict(kept, rope_type=kind, rope_theta=draw.choice([10000.0, 500000.0, 1000.0]))
    if kind == "linear":
        drawn.update(factor=draw.choice([1.5, 4.0]))
    if kind == "llama3":
        drawn.update(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=draw.choice([32, 64, 128]))
    if kind == "yarn":
        drawn.update(factor=draw.choice([2.0, 8.0, 16.0]), original_max_position_embeddings=draw.choice([32, 64, 128]), beta_fast=draw.choice([8.0, 32.0]), beta_slow=draw.choice([1.0, 2.0]))
        drawn.update(draw.choice([{}, dict(attention_factor=1.3), dict(mscale=0.707, mscale_all_dim=1.0)]))
        if "llama_4_scaling_beta" in kept:
            drawn.update(mscale=1.0, mscale_all_dim=draw.choice([1.0, 0.707]))
    if config_class.__name__ in ROTATION_BY_KIND:
        drawn = dict(full_attention=drawn, sliding_attention=dict(rope_type="default", rope_theta=draw.choice([10000.0, 1000.0])))
    values["rope_parameters"] = drawn


def settle(name, values):
    """What follows from the number of layers, and what the class does not know."""
    n = values.get("num_hidden_layers")
    if name == "deepseek2_lite":  # its class does not read the key, the published code does
        values["norm_topk_prob"] = False
    if name == "granite_swa":
        values["layer_rope_theta"] = [10000.0 if turns else 0 for turns in values["no_rope_layers"]]
    if name in ("afmoe", "exaone4_windows"):
        values.update(num_hidden_layers=4, layer_types=[WINDOW] * 3 + [FULL])
    if name == "exaone4_windows":
        values["sliding_window_pattern"] = 4
    if name == "bailing3":
        values["num_hidden_layers"] = max(3, n // 3 * 3)  # the last layer of three attends
    if name == "exaone4":
        values.update(layer_types=[FULL] * n, sliding_window=4096, sliding_window_pattern=4)
    if name == "laguna":
        values.update(num_hidden_layers=4, layer_types=[FULL] + [WINDOW] * 3, mlp_layer_types=["dense"] + ["sparse"] * 3, num_attention_heads_per_layer=[4, 2, 2, 4])
    if name == "hunyuan_moe":
        values.update(moe_topk=[2] * n, moe_intermediate_size=[values["intermediate_size"]] * n, num_shared_expert=[1] * n)
    if name == "glm4_moe_lite":
        first = values["first_k_dense_replace"]
        values["mlp_layer_types"] = ["dense"] * first + ["sparse"] * (n - first)


def fill(model, draw, torch):
    generator = torch.Generator().manual_seed(draw.randrange(1 << 30))
    named = list(model.named_parameters()) + [(n, b) for n, b in model.named_buffers() if n.endswith(("correction_bias", "expert_bias"))]
    with torch.no_grad():
        for name, values in named:
            drawn = torch.randn(values.shape, generator=generator)
            if values.ndim == 1:  # also where a file has 1 + w, as float32
                drawn = (drawn * 0.1 * 2048).round() / 2048 + (1 if name.endswith("weight") and float(values.abs().sum()) != 0 else 0)
            else:
                drawn = drawn * (0.7 if "embed" in name else 1.3 / values.shape[-1] ** 0.5)
            values.copy_(drawn.half().float())


@contextlib.contextmanager
def wide(torch):
    """What asks for float32 gets float64: rotations, norms, softmax, routers."""
    saved = torch.float, torch.float32, torch.Tensor.float, torch.get_default_dtype()
    torch.float = torch.float32 = torch.float64
    torch.Tensor.float = torch.Tensor.double
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.float, torch.float32, torch.Tensor.float = saved[:3]
        torch.set_default_dtype(saved[3])


def wide_logits(make, config, weights, ids, torch):
    float32 = torch.float32

    def as_kept(name, values):  # a file has float32 of -exp(A_log), and of epsilons
        return values.double().exp().to(float32).double().log() if name.endswith("A_log") else values
    for key, value in vars(config).items():
        if key.endswith(("eps", "epsilon")) and isinstance(value, float):
            setattr(config, key, float(torch.tensor(value, dtype=float32)))
    with wide(torch), torch.no_grad():
        config.dtype = None
        model = make(config).eval()
        model.set_attn_implementation("eager")
        model.tie_weights()
        model.double().load_state_dict({name: as_kept(name, values) for name, values in weights.items()}, strict=False)
        return model(torch.tensor([ids]), use_cache=False).logits[0]


def run(assay, path, ids, *flags):
    command = [assay, "logits", str(path), "--ids", ",".join(map(str, ids)), "--all", "--top", "5", "--json", "-ctk", "f32", "-ctv", "f32", *flags]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise ValueError(done.stderr.strip())
    return json.loads(done.stdout)


def worst(found, ids, logits, torch):
    likely = torch.log_softmax(logits, -1)
    of_tokens = [abs(token["logprob"] - float(likely[i][ids[i + 1]])) for i, token in enumerate(found["logprobs"]["content"][1:])]
    return max(of_tokens + [abs(logit - float(logits[-1][token])) for token, logit in found["top"]])


def median(found, ids, logits, torch):
    """Of tokens: a router may choose otherwise for some."""
    likely = torch.log_softmax(logits, -1)
    off = sorted(abs(token["logprob"] - float(likely[i][ids[i + 1]])) for i, token in enumerate(found["logprobs"]["content"][1:]))
    return off[len(off) // 2]


def held(assay, path, ids, logits, torch):
    span = float(logits.max() - logits.min())
    try:
        oracle = worst(run(assay, path, ids, "--numerics", "oracle"), ids, logits, torch)
        plain, cut = (run(assay, path, ids, "--numerics", "f32", "-t", *how) for how in (("1",), ("3", "-ub", "7")))
    except ValueError as refusal:
        return f"DIFFERS: {refusal}"
    in_f32, same = worst(plain, ids, logits, torch), plain["logits_digest"] == cut["logits_digest"]
    ok = oracle < ORACLE_LIMIT * max(span, 10) and in_f32 < F32_LIMIT * max(1, span / 10) and same
    return f"{'ok' if ok else 'DIFFERS'} oracle {oracle:.1e} f32 {in_f32:.1e} of {span:.0f}{'' if same else ', other bits'}"


def told_again(assay, path, ids, logits, torch):
    """What differs of the file told in other ways (retell.py), of other caches, and of shards."""
    span = max(10, float(logits.max() - logits.min()))
    import retell  # behind converter_of(), which chooses between two packages named gguf
    plain = run(assay, path, ids, "--numerics", "f32")["logits_digest"]
    wrong = []
    for way, other in retell.retellings(path, path.parent):
        try:
            if way == "f16_matrices":
                off = worst(run(assay, other, ids, "--numerics", "oracle"), ids, logits, torch)
                wrong += [f"{way} {off:.1e}"] if off > ORACLE_LIMIT * span else []
            elif run(assay, other, ids, "--numerics", "f32")["logits_digest"] != plain:
                wrong.append(f"{way}: other bits")
        except ValueError as refusal:
            wrong.append(f"{way}: {refusal}")
    for cache in ("f16", "q8_0"):  # the last of two flags counts; what they round is far below a logit's span
        flags = ("-ctk", cache, "-ctv", cache)
        try:
            first, cut = run(assay, path, ids, *flags, "-t", "1"), run(assay, path, ids, *flags, "-t", "2", "-ub", "5")
        except ValueError as refusal:
            wrong += [] if "q8_0" in str(refusal) else [f"cache {cache}: {refusal}"]  # heads that its blocks do not fit
            continue
        off = median(first, ids, logits, torch)
        wrong += [f"cache {cache}: other bits"] if first["logits_digest"] != cut["logits_digest"] else []
        wrong += [f"cache {cache}: {off:.1e}"] if not off < 0.05 * span else []
    return wrong


def converted(assay, tokenizer, files, folder):
    for file_name, content in {**convert.tokenizer_files(*tokenizer), **files}.items():
        content = convert.patched(convert.BASE, content) if isinstance(content, dict) else content
        (folder / file_name).parent.mkdir(exist_ok=True)
        (folder / file_name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return subprocess.run([assay, "convert", str(folder), str(folder / "m.gguf"), "--outtype", "f32"], capture_output=True, text=True)


def look_at_encoder(assay, name, config_class, values, tokenizer, files, draw, folder):
    import torch
    import transformers
    for key in ("rms_norm_eps", "layer_norm_eps", "norm_eps"):
        if draw.random() < 0.5 and key in {field for parent in getattr(transformers, config_class).__mro__ for field in getattr(parent, "__annotations__", {})}:
            values[key] = draw.choice(FIELDS[key])
    values.update(num_hidden_layers=draw.choice([1, 2, 3, 7]), hidden_size=draw.choice([64, 72, 80, 96, 128]), intermediate_size=draw.choice([33, 64, 96, 200]))
    if name == "modern_bert":
        values.pop("num_key_value_heads", None)  # its class knows none
        values.update(local_attention=draw.choice([8, 16, 64]), global_attn_every_n_layers=draw.choice([2, 3]))
    if name in ("eurobert", "qwen3_embedding", "gemma_embedding"):
        values.update(num_attention_heads=draw.choice([2, 4, 8]), num_key_value_heads=draw.choice([1, 2]))
    if name == "gemma_embedding":
        values.update(sliding_window=draw.choice([8, 16, 64]))
    n_vocab = convert.VOCAB[tokenizer[0]]
    ends = convert.ENDS.get(tokenizer[0], dict(bos_token_id=1, eos_token_id=2, pad_token_id=None))
    config = getattr(transformers, config_class)(vocab_size=n_vocab, **{**ends, **values})
    again = copy.deepcopy(config)
    model = transformers.AutoModel.from_config(config).float().eval()
    model.set_attn_implementation("eager")
    fill(model, draw, torch)
    model.save_pretrained(folder)
    ids = [draw.randrange(5, n_vocab - 20) for _ in range(draw.choice([9, 40, 70]))]
    with wide(torch), torch.no_grad():
        again.dtype = None
        exact = transformers.AutoModel.from_config(again).eval()
        exact.set_attn_implementation("eager")
        exact.load_state_dict(model.state_dict(), strict=False)
        rows = exact.double()(torch.tensor([ids])).last_hidden_state[0]
    made = converted(assay, tokenizer, files, folder)
    if made.returncode != 0:
        return made.stderr.strip()
    worst, span = 0, float(rows.max() - rows.min())  # of what is pooled
    for pooling, expected in (("mean", rows.mean(0)), ("cls", rows[0]), ("last", rows[-1])):
        command = [assay, "embed", str(folder / "m.gguf"), "--ids", ",".join(map(str, ids)), "--pooling", pooling, "--no-normalize", "--json", "--numerics", "oracle"]
        found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["embedding"]
        worst = max(worst, *(abs(a - b) for a, b in zip(found, expected.tolist())))
    return f"{'ok' if worst < ORACLE_LIMIT * max(span, 10) else 'DIFFERS'} {worst:.1e} of {span:.0f}"


def build(name, config_class, values, tokenizer, draw, folder, change=None):
    """Writes the model's folder; its tokens and their logits. change: is given the model that computes them first."""
    import torch
    import transformers
    n_vocab = N_VOCAB.get(tokenizer[0], convert.VOCAB[tokenizer[0]])
    values.update({key: n_vocab for key in ("vocab_size_per_layer_input",) if key in values})
    ends = convert.ENDS.get(tokenizer[0], dict(bos_token_id=1, eos_token_id=2, pad_token_id=None))
    config = getattr(transformers, config_class)(vocab_size=n_vocab, **copy.deepcopy(values), **ends)
    config._experts_implementation = "eager"  # the others know no float64
    again = copy.deepcopy(config)
    make = transformers.Mistral4ForCausalLM if config_class == "Mistral4Config" else transformers.AutoModelForCausalLM.from_config
    model = make(config).float().eval()
    model.set_attn_implementation("eager")
    fill(model, draw, torch)
    model.tie_weights()
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    ids = [draw.randrange(5, n_vocab - 20) for _ in range(draw.choice([20, 40, 70]))]
    return ids, wide_logits(make if change is None else lambda c: change(make(c)), again, model.state_dict(), ids, torch)


def look_at(assay, name, config_class, values, tokenizer, more, draw, folder, theirs):
    import torch
    try:
        ids, logits = build(name, config_class, values, tokenizer, draw, folder)
    except Exception as problem:  # a combination that the class does not know
        return f"transformers: {problem}"
    said = []
    if theirs is None or not more.get("only_there"):
        made = converted(assay, tokenizer, {}, folder)
        refusal = None if made.returncode == 0 else next((line for line in made.stderr.splitlines() if "FAIL" in line), made.stderr.strip().splitlines()[-1])
        said.append(refusal or held(assay, folder / "m.gguf", ids, logits, torch))
        if refusal is None and RETELLS and said[-1].startswith("ok"):
            wrong = told_again(assay, folder / "m.gguf", ids, logits, torch)
            said += ["retold"] if not wrong else ["retold DIFFERS: " + "; ".join(wrong)]
    if theirs is not None and "tensors_of" not in more:
        for file_name, content in convert.tokenizer_files(*tokenizer).items():
            content = convert.patched(convert.BASE, content) if isinstance(content, dict) else content
            (folder / file_name).write_bytes(content if isinstance(content, bytes) else content.encode())
        as_published(name, folder)
        try:
            theirs(folder, folder / "theirs.gguf", "f32", tokenizer[1], more.get("as_published", False))
            said.append("llama.cpp's file: " + held(assay, folder / "theirs.gguf", ids, logits, torch).replace("DIFFERS", "differs"))
        except Exception as problem:
            said.append(f"llama.cpp's converter: {type(problem).__name__} {problem}")
    return " | ".join(said)


def as_published(name, folder):
    """Keys of config.json under the names that llama.cpp's converter asks for."""
    config = json.loads((folder / "config.json").read_text())
    if name.startswith("granitehybrid"):
        config["layer_types"] = [{"linear_attention": "mamba", "full_attention": "attention"}.get(kind, kind) for kind in config["layer_types"]]
    if name == "gptneox":
        config.update(rotary_pct=(config.get("rope_parameters") or {}).get("partial_rotary_factor", 0.25))
    if name == "phimoe":
        config["architectures"] = ["PhiMoEForCausalLM"]
    if name == "mistral4":
        config["architectures"] = ["Mistral3ForConditionalGeneration"]
    if name == "nemotron_h":
        kinds = config.pop("layers_block_type", None) or config.pop("layer_types")
        letters = {"mamba": "M", "linear_attention": "M", "mlp": "-", "attention": "*", "full_attention": "*"}
        config.update(hybrid_override_pattern="".join(letters[kind] for kind in kinds), num_hidden_layers=len(kinds))
        for key in ("num_experts_per_tok", "n_routed_experts", "n_group", "topk_group", "layers_block_type", "layer_types"):
            config.pop(key, None)
    if name == "bailing3":
        n_shared = config.get("n_shared_experts", config.get("num_shared_experts"))
        config.update(architectures=["BailingMoeV3ForCausalLM"], head_dim=config["linear_head_dim"], n_group=config["num_expert_group"], no_kda_lora=True, num_shared_experts=n_shared,
                      gated_attention_proj_granularity_type="head_wise", moe_shared_expert_intermediate_size=config["moe_intermediate_size"] * n_shared, score_function="sigmoid", norm_topk_prob=True)
    if name == "mimo2":
        full, window = (config["rope_parameters"][kind] for kind in (FULL, WINDOW))
        config.update(hybrid_layer_pattern=[int(kind == WINDOW) for kind in config["layer_types"]], moe_layer_freq=[int(kind == "sparse") for kind in config["mlp_layer_types"]],
                      swa_head_dim=config["head_dim"], swa_v_head_dim=config["v_head_dim"], swa_num_attention_heads=config["num_attention_heads"], swa_num_key_value_heads=2 * config["num_key_value_heads"],
                      topk_method="noaux_tc", scoring_func="sigmoid", layernorm_epsilon=config["rms_norm_eps"], rope_parameters=full, swa_rope_theta=window["rope_theta"],
                      partial_rotary_factor=full["partial_rotary_factor"], rope_theta=full["rope_theta"], add_swa_attention_sink_bias=True, add_full_attention_sink_bias=False)
    (folder / "config.json").write_text(json.dumps(config, indent=2))


def only_there():
    """Families that `assay convert` does not know."""
    latent = dict(convert.CONFIG, num_hidden_layers=3, num_key_value_heads=4, q_lora_rank=32, kv_lora_rank=24, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=12, num_experts_per_tok=2,
                  moe_intermediate_size=32, first_k_dense_replace=1, n_shared_experts=1)
    chosen = dict(latent, n_routed_experts=8, index_topk=8, index_head_dim=16, index_n_heads=12, head_dim=8, topk_group=1)
    there, gpt = dict(only_there=True), ("bpe", "gpt-2")
    yield "deepseek32", "DeepseekV32Config", dict(chosen, n_group=2, rope_parameters=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=128, rope_theta=10000.0, mscale=1.0,
                                                                                         mscale_all_dim=1.0)), gpt, "F32", there
    yield "glm_dsa", "GlmMoeDsaConfig", dict(chosen, n_group=1), ("glm", "glm4"), "F32", there
    yield "bailing3", "BailingHybridConfig", dict(latent, num_local_experts=8, n_group=2, topk_group=1, head_dim=16, layer_group_size=3), gpt, "F32", dict(there, as_published=True)
    yield "mimo2", "MiMoV2FlashConfig", dict(convert.CONFIG, head_dim=32, v_head_dim=16, num_key_value_heads=1, sliding_window=16, n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=32,
                                             num_hidden_layers=3, layer_types=[FULL, WINDOW, WINDOW], mlp_layer_types=["dense", "sparse", "sparse"]), ("bpe", "qwen2"), "F32", dict(there, as_published=True)
    yield "qwen4exp", "Qwen4ExpTextConfig", dict({k: v for k, v in convert.CONFIG.items() if k != "intermediate_size"}, num_hidden_layers=4, head_dim=32, linear_num_key_heads=2, linear_num_value_heads=4,
                                                 linear_key_head_dim=16, linear_value_head_dim=16, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32, shared_expert_intermediate_size=48,
                                                 hc_count=4, hc_lowrank=16, indexer_n_heads=2, indexer_kv_heads=1, indexer_head_dim=32, indexer_budget=1024, indexer_compress_ratio=4, output_gate_type="sigmoid",
                                                 rope_parameters=dict(rope_type="default", rope_theta=10000000.0, partial_rotary_factor=0.25)), ("bpe", "qwen35"), "F32", dict(there, as_published=True)


def converter_of(llama_cpp):
    theirs = convert.converter(pathlib.Path(llama_cpp))
    from conversion.base import TextModel
    from conversion.deepseek import DeepseekV32Model
    DeepseekV32Model.set_vocab = TextModel._set_vocab_gpt2  # its own wants a tokenizer that adds tokens
    return theirs


def main():
    global RETELLS
    arguments = sys.argv[1:]
    RETELLS = arguments[0] == "--retell" and bool(arguments.pop(0))
    theirs = converter_of(arguments.pop(0)) if arguments[0] == "--with" and arguments.pop(0) else None
    assay, seed, only = arguments[0], arguments[1], arguments[2:]
    import transformers
    differ = False
    for name, config_class, values, tokenizer, _, *more in [*convert.families(), *(only_there() if theirs else ())]:
        if (only and name not in only) or config_class is None:
            continue
        draw, values, more = random.Random(f"{seed}-{name}"), copy.deepcopy(values), more[0] if more else {}
        with tempfile.TemporaryDirectory() as folder:
            if name in ENCODERS:
                said = look_at_encoder(assay, name, config_class, values, tokenizer, more["files"], draw, pathlib.Path(folder))
            else:
                draw_layers(name, values, draw)
                draw_widths(name, config_class, values, draw)
                draw_rest(name, config_class, values, draw)
                draw_fields(name, getattr(transformers, config_class), values, draw)
                draw_odd(name, values, draw)
                settle(name, values)
                said = look_at(assay, name, config_class, values, tokenizer, more, draw, pathlib.Path(folder), theirs)
        differ |= "DIFFERS" in said
        print(f"{name}: {said}" + (f"  {values}" if "differs" in said.lower() else ""), flush=True)
    sys.exit(1 if differ else 0)


if __name__ == "__main__":
    main()
