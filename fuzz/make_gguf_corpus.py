"""Writes the first inputs of fuzz_gguf into corpus/gguf, one small file for each feature of the format, and those of fuzz_model into corpus/model: keys of
families, right and wrong."""
import struct
from pathlib import Path

OUT = Path(__file__).parent / "corpus/gguf"
SCALARS = "<B <b <H <h <I <i <f <B s a <Q <q <d".split()


def string(text):
    return struct.pack("<Q", len(text)) + text.encode()


def entry(key, kind, payload):
    return string(key) + struct.pack("<I", kind) + payload


def array(kind, items):
    return struct.pack("<IQ", kind, len(items)) + b"".join(items)


def tensor(name, dims, kind, offset):
    return string(name) + struct.pack("<I", len(dims)) + b"".join(struct.pack("<Q", d) for d in dims) + struct.pack("<IQ", kind, offset)


def write(name, entries=(), tensors=(), data=b"", version=3, align=32, out_folder=OUT):
    out = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(entries)) + b"".join(entries) + b"".join(tensors)
    out += b"\0" * (-len(out) % align)
    (out_folder / name).write_bytes(out + data)


OUT.mkdir(parents=True, exist_ok=True)
write("empty")
write("version2", version=2)
write("scalars", [entry(f"k{i}", i, struct.pack(f, 1)) for i, f in enumerate(SCALARS) if f[0] == "<"] + [entry("s", 8, string("text"))])
write("arrays", [entry(f"a{i}", 9, array(i, [struct.pack(f, 1)] * 3)) for i, f in enumerate(SCALARS) if f[0] == "<"]
      + [entry("s", 9, array(8, [string("a"), string(""), string("bc")])), entry("none", 9, array(8, []))])
inner = array(4, [struct.pack("<I", 7)])
write("nested", [entry("n", 9, array(9, [inner, array(8, [string("x")]), array(9, [inner])]))])
write("tensors", [entry("general.architecture", 8, string("llama"))],
      [tensor("a", [4], 0, 0), tensor("b.weight", [32, 2], 8, 32), tensor("c", [3, 2, 1, 2], 24, 128)], bytes(160))
write("alignment", [entry("general.alignment", 4, struct.pack("<I", 8))], [tensor("a", [1], 0, 0), tensor("b", [1], 1, 8)], bytes(16), align=8)
write("split", [entry("split.no", 2, b"\0\0"), entry("split.count", 2, b"\1\0"), entry("split.tensors.count", 5, bytes(4))])
(OUT / "magic").write_bytes(b"GGUF")
(OUT / "big_endian").write_bytes(b"GGUF" + struct.pack(">IQQ", 3, 0, 0))
write("huge_string", [entry("s", 8, struct.pack("<Q", 2**64 - 1))])
write("huge_array", [entry("s", 9, struct.pack("<IQ", 10, 2**61))])
write("huge_tensor", [], [tensor("t", [2**32, 2**32], 24, 0)])
write("five_dimensions", [], [tensor("t", [1] * 5, 0, 0)])

# Models: the keys of a family with one of them wrong, and the embedding, so that a plan is begun.
MODELS = OUT.parent / "model"
MODELS.mkdir(parents=True, exist_ok=True)
BASE = {"block_count": 2, "context_length": 64, "embedding_length": 32, "feed_forward_length": 32, "attention.head_count": 2, "attention.head_count_kv": 1,
        "attention.layer_norm_rms_epsilon": 1e-5, "attention.layer_norm_epsilon": 1e-5, "rope.dimension_count": 16}
MIXTURE = {"expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 16, "expert_group_count": 2, "expert_group_used_count": 1,
           "expert_weights_scale": 1.5, "expert_weights_norm": True, "expert_gating_func": 2, "leading_dense_block_count": 1, "expert_shared_count": 1,
           "expert_shared_feed_forward_length": 16}
LATENT = {"attention.kv_lora_rank": 16, "attention.q_lora_rank": 16, "attention.key_length_mla": 24, "attention.value_length_mla": 16, "rope.dimension_count": 8,
          "rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 16, "rope.scaling.yarn_log_multiplier": 0.1}
STATE = {"ssm.conv_kernel": 4, "ssm.state_size": 16, "ssm.group_count": 1, "ssm.time_step_rank": 4, "ssm.inner_size": 64, "full_attention_interval": 2}
WINDOWS = {"attention.sliding_window": 8, "attention.sliding_window_pattern": [True, False], "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
           "attention.key_length": 16, "attention.value_length": 16}
SCALES = {"embedding_scale": 12.0, "residual_scale": 0.25, "logit_scale": 8.0, "attention.scale": 0.125}
FAMILIES = {"mixture": ("qwen3moe", MIXTURE), "latent": ("deepseek2", MIXTURE | LATENT), "state": ("qwen35", STATE), "scan": ("mamba2", STATE),
            "windows": ("gemma2", WINDOWS), "scales": ("granite", SCALES), "streams": ("gemma3n", WINDOWS | {"altup.num_inputs": 4, "altup.active_idx": 0,
            "activation_sparsity_scale": [1.0, 0.0], "embedding_length_per_layer_input": 8, "attention.shared_kv_layers": 1}),
            "hybrid": ("bailingmoe3", MIXTURE | LATENT | STATE), "delta": ("kimi-linear", MIXTURE | LATENT | STATE | {"kda.head_dim": 16}),
            "sinks": ("gpt-oss", MIXTURE | WINDOWS), "chunks": ("llama4", MIXTURE | {"interleave_moe_layer_step": 1}),
            "indexer": ("minimax-m3", MIXTURE | WINDOWS), "experimental": ("qwen4exp", MIXTURE | STATE | {"hyper_connection.count": 4, "hyper_connection.low_rank": 8}),
            "sections": ("glm4", {"rope.dimension_sections": [2, 1, 1, 0]}), "bases": ("cohere2moe", MIXTURE | WINDOWS | {"rope.freq_base": 10000.0, "rope.freq_base_swa": 1000.0}),
            "heads": ("laguna", MIXTURE | WINDOWS | {"rope.dimension_count_swa": 8, "attention.head_count": [2, 4]}), "short": ("lfm2", {"shortconv.l_cache": 3, "attention.sliding_window": 8,
            "attention.head_count_kv": [0, 1]}), "predict": ("exaone-moe", MIXTURE | {"block_count": 3, "nextn_predict_layers": 1, "attention.sliding_window": 8,
            "attention.sliding_window_pattern": [True, False]}), "chosen": ("glm-dsa", MIXTURE | LATENT | {"attention.indexer.head_count": 2, "attention.indexer.key_length": 16,
            "attention.indexer.top_k": 8, "attention.indexer.types": [True, False]}), "shared": ("gemma4", WINDOWS | {"attention.key_length_swa": 8, "attention.value_length_swa": 8,
            "rope.dimension_count_swa": 8, "attention.shared_kv_layers": 1, "embedding_length_per_layer_input": 8}), "values": ("mimo2", MIXTURE | WINDOWS | {"attention.value_scale": 0.7}),
            "blocks": ("nemotron_h_moe", MIXTURE | STATE | {"feed_forward_length": [0, 32], "moe_latent_size": 8}), "normed": ("mamba", STATE | {"ssm.dt_b_c_rms": True}),
            "positions": ("mistral3", {"attention.temperature_scale": 0.1, "rope.scaling.yarn_attn_factor": 1.0, "rope.scaling.yarn_beta_fast": 32.0, "rope.scaling.yarn_ext_factor": 1.0}),
            "clamped": ("olmo", {"attention.clamp_kqv": 8.0}), "pooled": ("gemma-embedding", {"pooling_type": 1, "attention.causal": False, "dense_2_feat_in": 32, "dense_2_feat_out": 16})}
WRONG = {bool: [True], int: [0, 1, 2**31, 2**32 - 1], float: [0.0, -1.0, float("nan"), float("inf"), 1e38], str: ["", "odd"], list: [[], [True], [2**32 - 1] * 2]}


def value(of):
    if isinstance(of, bool):
        return 7, struct.pack("<B", of)
    if isinstance(of, int):
        return 4, struct.pack("<I", of)
    if isinstance(of, float):
        return 6, struct.pack("<f", of)
    if isinstance(of, str):
        return 8, string(of)
    kind = value(of[0])[0] if of else 4
    return 9, array(kind, [value(item)[1] for item in of])


def model(name, architecture, keys):
    entries = [entry("general.architecture", 8, string(architecture))] + [entry(f"{architecture}.{key}", *value(of)) for key, of in keys.items()]
    write(name, entries, [tensor("token_embd.weight", [32, 4], 0, 0)], bytes(512), out_folder=MODELS)


seen = set()
for name, (architecture, own) in FAMILIES.items():
    keys = BASE | own
    model(name, architecture, keys)
    for i, key in enumerate(own):
        if key in seen:
            continue
        seen.add(key)
        of = own[key]
        wrong = WRONG[type(of)]
        model(f"{name}_{key.replace('.', '_')}", architecture, keys | {key: wrong[i % len(wrong)]})
