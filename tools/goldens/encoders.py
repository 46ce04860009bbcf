"""The goldens of encoders with XLM-RoBERTa's vocabulary: random models in float64, and their files by llama.cpp's converter.

usage: encoders.py LLAMA_CPP FOLDER     (what convert.py needs; CPU is enough) writes FOLDER/{xlm-roberta,nomicbert-moe}.{gguf,json}

xlm-roberta is transformers' XLMRobertaModel. transformers has no Nomic BERT with experts: its layers stand below, by the published model's own code (attention
and norms of its even layers are those of transformers' NomicBertModel). What is added to the experts' sum there is 0 here: files have no tensor for it. Weights
are rounded to half precision, matrices kept as F16; seeds are taken so that no router's last choice is within 2e-4 of the next.
"""
import json
import pathlib
import sys
import tempfile

import safetensors.torch
import torch
import transformers

import convert

N_TOKENS, D, N_HEADS, D_FF, N_EXPERTS = 40, 64, 4, 96, 4
XLM_ROBERTA = dict(vocab_size=370, hidden_size=D, num_hidden_layers=2, num_attention_heads=N_HEADS, intermediate_size=D_FF, max_position_embeddings=130, type_vocab_size=1,
                   layer_norm_eps=1e-5, pad_token_id=1, bos_token_id=0, eos_token_id=2)


def pooling(kind):
    return {"modules.json": json.dumps([{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
                                        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}]),
            "1_Pooling/config.json": json.dumps({"word_embedding_dimension": D, f"pooling_mode_{kind}": True})}


def drawn(name, shape):
    values = torch.randn(shape)
    if len(shape) == 1:
        values = 1 + 0.1 * values if name.endswith("weight") else 0.1 * values
    else:
        values = 0.7 * values if "embed" in name else 1.3 * values / shape[-1] ** 0.5
    return values.half().float()


def xlm_roberta():
    model = transformers.XLMRobertaModel(transformers.XLMRobertaConfig(**XLM_ROBERTA), add_pooling_layer=False).eval()
    model.set_attn_implementation("eager")
    with torch.no_grad():
        for name, values in model.named_parameters():
            values.copy_(drawn(name, values.shape))
    config = dict(XLM_ROBERTA, architectures=["XLMRobertaModel"], model_type="xlm-roberta", hidden_act="gelu", position_embedding_type="absolute")

    def run(ids):
        plain = torch.nn.functional.softmax
        torch.nn.functional.softmax = lambda x, dim=-1, dtype=None: plain(x, dim=dim)
        with torch.no_grad():
            return model.double()(torch.tensor([ids])).last_hidden_state[0], 1.0
    return config, {name: p.detach().clone().contiguous() for name, p in model.named_parameters()}, run


def nomic_moe():
    tensors = {name: torch.zeros(shape) if name.endswith("experts.bias") else drawn(name, shape) for name, shape in convert.nomic_moe_tensors()}
    config = dict(next(more[0]["config"] for name, *_, more in map(lambda f: (f[0], f[5:]), convert.encoders(lambda **m: dict(convert.CONFIG, **m), None)) if name == "nomic_bert_moe"),
                  vocab_size=370)
    return config, tensors, lambda ids: run_nomic({name: t.double() for name, t in tensors.items()}, ids)


def run_nomic(w, ids):
    head_dim = D // N_HEADS
    smallest_gap = 1.0
    turns = 1.0 / (10000.0 ** (torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim))
    angles = torch.arange(len(ids), dtype=torch.float64)[:, None] * turns[None]
    cosine, sine = angles.cos()[:, None], angles.sin()[:, None]

    def norm(x, name):
        return torch.nn.functional.layer_norm(x, (D,), w[name + ".weight"], w[name + ".bias"], 1e-5)

    def turn(x):
        a, b = x.chunk(2, -1)
        return torch.cat([a * cosine - b * sine, b * cosine + a * sine], -1)

    x = norm(w["embeddings.word_embeddings.weight"][ids] + w["embeddings.token_type_embeddings.weight"][0], "emb_ln")
    for layer in range(2):
        at = f"encoder.layers.{layer}."
        q, k, v = (x @ w[at + "attn.Wqkv.weight"].T + w[at + "attn.Wqkv.bias"]).view(-1, 3, N_HEADS, head_dim).unbind(1)
        scores = torch.einsum("ihd,jhd->hij", turn(q), turn(k)) / head_dim ** 0.5
        o = torch.einsum("hij,jhd->ihd", torch.softmax(scores, -1), v).reshape(-1, D)
        x = norm(x + o @ w[at + "attn.out_proj.weight"].T + w[at + "attn.out_proj.bias"], at + "norm1")
        if layer % 2 == 0:
            y = torch.nn.functional.gelu(x @ w[at + "mlp.fc1.weight"].T + w[at + "mlp.fc1.bias"]) @ w[at + "mlp.fc2.weight"].T + w[at + "mlp.fc2.bias"]
        else:
            shares = torch.softmax(x @ w[at + "mlp.router.layer.weight"].T, -1)
            ordered = shares.sort(-1, descending=True)
            smallest_gap = min(smallest_gap, float((ordered.values[:, 1] - ordered.values[:, 2]).min()))
            y = torch.zeros_like(x)
            first, second = (w[at + f"mlp.experts.mlp.w{i}"].view(N_EXPERTS, D_FF, D) for i in (1, 2))
            for token in range(len(ids)):
                for expert in ordered.indices[token, :2].tolist():
                    y[token] += shares[token, expert] * (torch.nn.functional.gelu(x[token] @ first[expert].T) @ second[expert])
            y += w[at + "mlp.experts.bias"]
        x = norm(x + y, at + "norm2")
    return x, smallest_gap


def main():
    write, out = convert.converter(pathlib.Path(sys.argv[1])), pathlib.Path(sys.argv[2])
    tokenizer = convert.tokenizer_files("unigram", None)
    for name, make, kind in (("xlm-roberta", xlm_roberta, "cls_token"), ("nomicbert-moe", nomic_moe, "mean_tokens")):
        for seed in range(7, 100):
            torch.manual_seed(seed)
            config, tensors, run = make()
            ids = [0, *torch.randint(4, 360, (N_TOKENS - 2,)).tolist(), 2]
            rows, gap = run(ids)
            if gap >= 2e-4:
                break
        assert rows.dtype == torch.float64
        embedding = rows[0] if kind == "cls_token" else rows.mean(0)
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            for file, text in {**tokenizer, **pooling(kind), "config.json": json.dumps(config)}.items():
                (folder / file).parent.mkdir(exist_ok=True)
                (folder / file).write_text(text)
            safetensors.torch.save_file({n: t.float() for n, t in tensors.items()}, folder / "model.safetensors", metadata={"format": "pt"})
            write(folder, out / f"{name}.gguf", "f16", None, True)
        golden = {"arch": config["architectures"][0], "general_architecture": "bert" if kind == "cls_token" else "nomic-bert-moe", "ids": ids,
                  "pooling": "cls" if kind == "cls_token" else "mean", "embedding": [float(f"{v:.10g}") for v in embedding.tolist()]}
        if gap < 1:
            golden["top_k_smallest_gap"] = gap
        (out / f"{name}.json").write_text(json.dumps(golden))
        print(name, "seed", seed, "smallest gap", gap)


if __name__ == "__main__":
    main()
