"""Models of random settings and weights, through transformers in float64 and through assay: what the goldens' few settings leave open.

usage: random_settings.py ASSAY SEED [FAMILY...]     (pip install torch transformers safetensors tokenizers sentencepiece gguf; CPU is enough)

The families are those of convert.py. Of each, widths, heads, layers, windows, experts, ties and rotations are drawn, the folder is written, converted by
`assay convert --outtype f32` and run by `assay logits --numerics oracle`. A line a family: `ok` with the largest difference of a log-probability or logit,
`DIFFERS` above 1e-4 of the logits' span, or who refused it and why. Of an encoder: three poolings of the last norm's rows. Exit 1 where one differs. transformers' float32 tables of rotations are the limit, near 1e-5.
"""
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
        if key not in values or name == "kimi_linear":  # a list says which layers there are
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
    if "hidden_size" in values and name != "mamba2" and not name.startswith("granitehybrid") and name not in ("phi2", "phi3", "minicpm3", "laguna", "gemma4", "gemma4_e", "gemma4_moe"):
        values["hidden_size"] = draw.choice([64, 96, 128])
    if "intermediate_size" in values and name not in ("phi2", "gpt_oss_mxfp4", "hunyuan_moe"):
        values["intermediate_size"] = draw.choice([64, 96, 128, 200])
    for key in ("moe_intermediate_size", "shared_expert_intermediate_size", "shared_intermediate_size"):
        if isinstance(values.get(key), int):
            values[key] = draw.choice([32, 40, 48])
    if values.get("num_key_value_heads") == 2 and name not in ("laguna", "phi3"):
        values["num_attention_heads"] = draw.choice([2, 4, 8])
        values["num_key_value_heads"] = draw.choice([n for n in (1, 2, 4) if values["num_attention_heads"] % n == 0])


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
        if isinstance(values.get(key), int) and name != "llama4":
            values[key] = draw.choice([1, 2] if "n_group" in values else [1, 2, 3])
    if "routed_scaling_factor" in values:
        values["routed_scaling_factor"] = draw.choice([0.5, 1.0, 2.5])
    if isinstance(values.get("partial_rotary_factor"), float):
        values["partial_rotary_factor"] = draw.choice([0.25, 0.5, 1.0])
    if config_class in ("LlamaConfig", "MistralConfig", "Qwen3Config", "SeedOssConfig", "OlmoConfig", "ArceeConfig") and "rope_scaling" not in values:
        values["rope_scaling"] = draw.choice([None, dict(rope_type="linear", factor=2.0), dict(rope_type="yarn", factor=8.0, original_max_position_embeddings=64)])
    if "attention_multiplier" in values:
        values.update(attention_multiplier=draw.choice([0.1, 0.25]), residual_multiplier=draw.choice([0.5, 1.0]), logits_scaling=draw.choice([1.0, 2.0]))


def settle(name, values):
    """What follows from the number of layers."""
    n = values.get("num_hidden_layers")
    if name == "granite_swa":
        values["layer_rope_theta"] = [10000.0 if turns else 0 for turns in values["no_rope_layers"]]
    if name in ("afmoe", "exaone4_windows"):
        values.update(num_hidden_layers=4, layer_types=[WINDOW] * 3 + [FULL])
    if name == "exaone4_windows":
        values["sliding_window_pattern"] = 4
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
            if values.ndim == 1:
                drawn = drawn * 0.1 + (1 if name.endswith("weight") and float(values.abs().sum()) != 0 else 0)
            else:
                drawn = drawn * (0.7 if "embed" in name else 1.3 / values.shape[-1] ** 0.5)
            values.copy_(drawn.half().float())


def differences(assay, folder, ids, logits, torch):
    command = [assay, "logits", str(folder / "m.gguf"), "--ids", ",".join(map(str, ids)), "--all", "--top", "5", "--json", "--numerics", "oracle"]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    likely = torch.log_softmax(logits, -1)
    for i, token in enumerate(found["logprobs"]["content"][1:]):
        yield abs(token["logprob"] - float(likely[i][ids[i + 1]]))
    for token, logit in found["top"]:
        yield abs(logit - float(logits[-1][token]))


def converted(assay, tokenizer, files, folder):
    for file_name, content in {**convert.tokenizer_files(*tokenizer), **files}.items():
        content = convert.patched(convert.BASE, content) if isinstance(content, dict) else content
        (folder / file_name).parent.mkdir(exist_ok=True)
        (folder / file_name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return subprocess.run([assay, "convert", str(folder), str(folder / "m.gguf"), "--outtype", "f32"], capture_output=True, text=True)


def look_at_encoder(assay, name, config_class, values, tokenizer, files, draw, folder):
    import torch
    import transformers
    values.update(num_hidden_layers=draw.choice([1, 2, 3, 7]), hidden_size=draw.choice([64, 96, 128]), intermediate_size=draw.choice([64, 96, 200]))
    if name == "modern_bert":
        values.pop("num_key_value_heads", None)  # its class knows none
        values.update(local_attention=draw.choice([8, 16, 64]), global_attn_every_n_layers=draw.choice([2, 3]))
    if name in ("eurobert", "qwen3_embedding", "gemma_embedding"):
        values.update(num_attention_heads=draw.choice([2, 4, 8]), num_key_value_heads=draw.choice([1, 2]))
    if name == "gemma_embedding":
        values.update(sliding_window=draw.choice([8, 16, 64]))
    n_vocab = convert.VOCAB[tokenizer[0]]
    ends = convert.ENDS.get(tokenizer[0], dict(bos_token_id=1, eos_token_id=2, pad_token_id=None))
    model = transformers.AutoModel.from_config(getattr(transformers, config_class)(vocab_size=n_vocab, **{**ends, **values})).float().eval()
    model.set_attn_implementation("eager")
    fill(model, draw, torch)
    model.save_pretrained(folder)
    ids = [draw.randrange(5, n_vocab - 20) for _ in range(draw.choice([9, 40, 70]))]
    with torch.no_grad():
        rows = model.double()(torch.tensor([ids])).last_hidden_state[0]
    made = converted(assay, tokenizer, files, folder)
    if made.returncode != 0:
        return made.stderr.strip()
    worst, span = 0, float(rows.max() - rows.min())
    for pooling, expected in (("mean", rows.mean(0)), ("cls", rows[0]), ("last", rows[-1])):
        command = [assay, "embed", str(folder / "m.gguf"), "--ids", ",".join(map(str, ids)), "--pooling", pooling, "--no-normalize", "--json", "--numerics", "oracle"]
        found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["embedding"]
        worst = max(worst, *(abs(a - b) for a, b in zip(found, expected.tolist())))
    return f"{'ok' if worst < 1e-4 * span else 'DIFFERS'} {worst:.1e} of {span:.0f}"


def look_at(assay, name, config_class, values, tokenizer, draw, folder):
    import torch
    import transformers
    n_vocab = N_VOCAB.get(tokenizer[0], convert.VOCAB[tokenizer[0]])
    values.update({key: n_vocab for key in ("vocab_size_per_layer_input",) if key in values})
    ends = convert.ENDS.get(tokenizer[0], dict(bos_token_id=1, eos_token_id=2, pad_token_id=None))
    try:
        config = getattr(transformers, config_class)(vocab_size=n_vocab, **values, **ends)
        config._experts_implementation = "eager"  # the others know no float64
        made = transformers.Mistral4ForCausalLM if config_class == "Mistral4Config" else transformers.AutoModelForCausalLM.from_config
        model = made(config).float().eval()
        model.set_attn_implementation("eager")
        fill(model, draw, torch)
        model.tie_weights()
        model.save_pretrained(folder)
        ids = [draw.randrange(5, n_vocab - 20) for _ in range(N_TOKENS)]
        with torch.no_grad():
            logits = model.double()(torch.tensor([ids]), use_cache=False).logits[0]
    except Exception as problem:  # a combination that the class does not know
        return f"transformers: {problem}"
    (folder / "generation_config.json").unlink(missing_ok=True)
    made = converted(assay, tokenizer, {}, folder)
    if made.returncode != 0:
        return next((line for line in made.stderr.splitlines() if "FAIL" in line), made.stderr.strip().splitlines()[-1])
    worst, span = max(differences(assay, folder, ids, logits, torch)), float(logits.max() - logits.min())
    return f"{'ok' if worst < 1e-4 * span else 'DIFFERS'} {worst:.1e} of {span:.0f}"


def main():
    assay, seed, only = sys.argv[1], sys.argv[2], sys.argv[3:]
    differ = False
    for name, config_class, values, tokenizer, _, *more in convert.families():
        if (only and name not in only) or config_class is None:
            continue
        draw, values = random.Random(f"{seed}-{name}"), copy.deepcopy(values)
        if name in ENCODERS:
            with tempfile.TemporaryDirectory() as folder:
                said = look_at_encoder(assay, name, config_class, values, tokenizer, more[0]["files"], draw, pathlib.Path(folder))
            differ |= said.startswith("DIFFERS")
            print(f"{name}: {said}", flush=True)
            continue
        draw_layers(name, values, draw)
        draw_widths(name, config_class, values, draw)
        draw_rest(name, config_class, values, draw)
        settle(name, values)
        with tempfile.TemporaryDirectory() as folder:
            said = look_at(assay, name, config_class, values, tokenizer, draw, pathlib.Path(folder))
        differ |= said.startswith("DIFFERS")
        print(f"{name}: {said}" + (f"  {values}" if said.startswith("DIFFERS") else ""), flush=True)
    sys.exit(1 if differ else 0)


if __name__ == "__main__":
    main()
