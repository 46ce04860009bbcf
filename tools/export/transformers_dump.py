#!/usr/bin/env python3
"""Runs a prompt through Hugging Face transformers and writes what every operation computed as a dump of assay (docs/dump-format.md).

    pip install torch transformers gguf xxhash
    python3 transformers_dump.py MODEL -p "The quick brown fox" -o their.dump

MODEL is a folder with a checkpoint (config.json, *.safetensors, tokenizer files): transformers' own weights, which is what a conversion to GGUF
is to be held against; or a GGUF file, whose weights transformers decodes to f32 itself: its graph on the same numbers.
Llama, what shares its graph (Mistral, SmolLM2, TinyLlama), and Gemma 3 text models. Computes in f32 on the CPU, whatever the checkpoint's type.
"""
import argparse
import json
import struct
import sys
from pathlib import Path

import torch
import transformers
import xxhash

ARCHITECTURES = {"llama": "llama", "mistral": "llama", "gemma3_text": "gemma3"}  # transformers' model_type: GGUF's general.architecture
DECLARED = {"unit_roundoff_log2": -24, "activation_bits": 0, "cache_k": "f32", "cache_v": "f32",
            "rope_angle_f32": True}  # transformers makes inverse frequencies and angles in f32


class Dump:
    """Writes a dump record by record."""

    def __init__(self, path, header):
        self.file, self.whole, self.n_records = open(path, "wb"), xxhash.xxh3_128(), 0
        text = json.dumps(header).encode()
        self._sealed([b"ASSAYDMP" + struct.pack("<II", 1, len(text)) + text])

    def _put(self, content):
        self.whole.update(content)
        self.file.write(content)

    def _sealed(self, parts):
        own = xxhash.xxh3_64()
        for part in parts:
            own.update(part)
            self._put(part)
        self._put(struct.pack("<Q", own.intdigest()))

    def _record(self, kind, parts):
        self._sealed([struct.pack("<IQ", kind, sum(map(len, parts)))] + parts)
        self.n_records += 1

    def batch(self, tokens, first_position):
        n = len(tokens)
        positions = range(first_position, first_position + n)
        self._record(1, [struct.pack(f"<I{n}i{n}i{n}i{n}B", n, *tokens, *positions, *[0] * n, *[1] * n)])

    def tensor(self, name, values):  # float32 [n_rows, width]
        encoded = name.encode()
        self._record(2, [struct.pack("<IIQQ", 0, len(encoded), *values.shape) + encoded, values.astype("<f4").tobytes()])

    def finish(self):
        self._put(struct.pack("<IQ", 0, self.n_records))
        self.file.write(self.whole.intdigest().to_bytes(16, "little"))
        self.file.close()


def to_file_order(values, head_dim):
    """Rows of Q or K as a llama GGUF has them: element i and i + head_dim / 2 of each head side by side."""
    n_rows, width = values.shape
    return values.reshape(n_rows, width // head_dim, 2, head_dim // 2).swapaxes(2, 3).reshape(n_rows, width)


class Hooks:
    """Hands every value to the dump under its name in assay's plan, while a model runs."""

    def __init__(self, model, dump):
        self.dump, self.config, self.handles, self.layer = dump, model.config, [], 0
        self.head_dim = getattr(model.config, "head_dim", None) or model.config.hidden_size // model.config.num_attention_heads
        self.permuted = ARCHITECTURES[model.config.model_type] == "llama"
        decoder = model.model
        self.after("token_embd", decoder.embed_tokens)
        for i, layer in enumerate(decoder.layers):
            self.add_layer(f"blk.{i}.", i, layer)
        self.after("output_norm", decoder.norm)
        self.after("output", model.lm_head)
        # Rotation is a function of the module that the attention class stands in, looked up at each call.
        self.module = sys.modules[type(decoder.layers[0].self_attn).__module__]
        self.rotate = self.module.apply_rotary_pos_emb
        self.module.apply_rotary_pos_emb = self.rotated

    def add_layer(self, prefix, index, layer):
        attention, mlp = layer.self_attn, layer.mlp
        self.handles.append(attention.register_forward_pre_hook(lambda *_: setattr(self, "layer", index)))
        self.after(prefix + "attn_norm", layer.input_layernorm)
        self.after(prefix + "attn_q", attention.q_proj, self.permuted)
        self.after(prefix + "attn_k", attention.k_proj, self.permuted)
        self.after(prefix + "attn_v", attention.v_proj)
        self.before(prefix + "attention", attention.o_proj)
        self.after(prefix + "attn_output", attention.o_proj)
        if hasattr(layer, "pre_feedforward_layernorm"):  # Gemma 3
            self.after(prefix + "attn_q_norm", attention.q_norm, heads=True)
            self.after(prefix + "attn_k_norm", attention.k_norm, heads=True)
            self.after(prefix + "post_attention_norm", layer.post_attention_layernorm)
            ffn_norm = layer.pre_feedforward_layernorm
            self.after(prefix + "post_ffw_norm", layer.post_feedforward_layernorm)
        else:
            ffn_norm = layer.post_attention_layernorm
        self.before(prefix + "attn_residual", ffn_norm)
        self.after(prefix + "ffn_norm", ffn_norm)
        self.after(prefix + "ffn_gate", mlp.gate_proj)
        self.after(prefix + "ffn_up", mlp.up_proj)
        self.before(prefix + "ffn_act", mlp.down_proj)
        self.after(prefix + "ffn_down", mlp.down_proj)
        self.after(prefix + "residual", layer)

    def after(self, name, module, permuted=False, heads=False):
        def hook(_module, _inputs, output):
            self.write(name, output[0] if isinstance(output, tuple) else output, permuted, heads)
        self.handles.append(module.register_forward_hook(hook))

    def before(self, name, module):
        self.handles.append(module.register_forward_pre_hook(lambda _module, inputs: self.write(name, inputs[0])))

    def rotated(self, q, k, *arguments, **named):
        q_rope, k_rope = self.rotate(q, k, *arguments, **named)
        self.write(f"blk.{self.layer}.attn_q_rope", q_rope, self.permuted, True)
        self.write(f"blk.{self.layer}.attn_k_rope", k_rope, self.permuted, True)
        return q_rope, k_rope

    def write(self, name, value, permuted=False, heads=False):
        """value: [1, n_tokens, width], or with heads [1, n_heads, n_tokens, head_dim]."""
        if value.dtype != torch.float32:
            raise SystemExit(f"{name}: needs float32, found {value.dtype}")
        rows = value.detach()[0]
        if heads:
            rows = rows.transpose(0, 1).flatten(1)
        rows = rows.numpy()
        self.dump.tensor(name, to_file_order(rows, self.head_dim) if permuted else rows)

    def remove(self):
        self.module.apply_rotary_pos_emb = self.rotate
        for handle in self.handles:
            handle.remove()


def write_dump(model, ids, path, name="", text="", chunk=0):
    """model: one of transformers' causal language models, in float32. chunk: tokens per run; 0: all in one."""
    config = model.config
    if config.model_type not in ARCHITECTURES:
        raise SystemExit(f"model type: needs one of {', '.join(ARCHITECTURES)}, found {config.model_type}")
    header = {"engine": f"transformers {transformers.__version__}", "model": name, "architecture": ARCHITECTURES[config.model_type],
              "text": text, "n_layers": config.num_hidden_layers, "d_model": config.hidden_size,
              "vocab_size": model.lm_head.weight.shape[0], "declared": DECLARED}
    dump = Dump(path, header)
    hooks = Hooks(model.eval(), dump)
    cache = transformers.DynamicCache(config=config)
    try:
        with torch.no_grad():
            for first in range(0, len(ids), chunk or len(ids)):
                part = ids[first:first + (chunk or len(ids))]
                dump.batch(part, first)
                model(torch.tensor([part]), past_key_values=cache, use_cache=True)
    finally:
        hooks.remove()
    dump.finish()


def load(path):
    """The model in float32, and how to make tokens of a text."""
    path = Path(path)
    where = {"pretrained_model_name_or_path": str(path)}
    if path.is_file():
        where = {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}
    elif not (path / "config.json").exists():
        raise SystemExit(f"{path}: needs a GGUF file or a folder with config.json")
    model = transformers.AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32, attn_implementation="eager", local_files_only=True)
    return model, lambda text: transformers.AutoTokenizer.from_pretrained(**where, local_files_only=True)(text).input_ids


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL", help="a checkpoint's folder or a GGUF file")
    prompt = parser.add_mutually_exclusive_group(required=True)
    prompt.add_argument("-p", "--prompt", help="text; transformers' tokenizer makes ids of it")
    prompt.add_argument("--ids", help="token ids: 1,2,3")
    parser.add_argument("-o", "--out", required=True, metavar="FILE", help="the dump")
    parser.add_argument("-ub", "--chunk", type=int, default=0, metavar="N", help="tokens per run (all in one)")
    arguments = parser.parse_args()
    if arguments.chunk < 0:
        parser.error(f"-ub: needs 0 or more, found {arguments.chunk}")
    try:
        ids = [int(i) for i in arguments.ids.split(",")] if arguments.ids else None
    except ValueError:
        parser.error(f"--ids: needs numbers between commas, found {arguments.ids}")
    model, tokenize = load(arguments.model)
    ids = tokenize(arguments.prompt) if ids is None else ids
    if not ids or min(ids) < 0 or max(ids) >= model.lm_head.weight.shape[0]:
        raise SystemExit(f"token ids: needs some, from 0 to {model.lm_head.weight.shape[0] - 1}, found {ids}")
    write_dump(model, ids, arguments.out, Path(arguments.model).name, arguments.prompt or "", arguments.chunk)


if __name__ == "__main__":
    main()
