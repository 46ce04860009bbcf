"""Goldens of settings that those of the families leave open: random models of transformers in float64, their files by llama.cpp's converter.

usage: settings.py LLAMA_CPP FOLDER [NAME...]     (what random_settings.py needs) writes FOLDER/NAME.{gguf,json} of each of GOLDENS

Weights are rounded to half precision, matrices kept as F16. Seeds are taken so that no router's last choice is within 2e-4 of the next, by the logits of the
routers' scores; windows are narrower than the prompt.
"""
import copy
import json
import pathlib
import random
import sys
import tempfile

import convert
import random_settings

GOLDENS = (
    # name, family of convert.py or of random_settings.only_there, architecture, what is set otherwise
    ("cohere2moe-rms", "cohere2moe", "cohere2moe", dict(rms_norm_eps=1e-5, sliding_window=8)),  # RMS norms
    ("llama4-full", "llama4", "llama4", dict(num_hidden_layers=4, layer_types=["full_attention"] * 4, no_rope_layers=[1] * 4)),  # neither blocks nor layers without rotation
    ("bailing3-bounded", "bailing3", "bailingmoe3", {}),  # gates within BOUNDS
    ("phimoe", "phimoe", "phimoe", dict(num_hidden_layers=2, num_local_experts=8)),
)


# By layer, of experts and of other feed-forward layers; small, so that they are reached.
BOUNDS = dict(expert_swiglu_limit_list=[None, 0.4, 0.3], share_expert_swiglu_limit_list=[0.5, None, 0.35])


class Bounded:
    """What silu gives, which its product with `up` takes within a bound, as llama.cpp has it: transformers' class knows no bounds."""

    def __init__(self, gate, bound):
        self.gate, self.bound = gate, bound

    def __mul__(self, up):
        return self.gate.clamp(max=self.bound) * up.clamp(-self.bound, self.bound)


def with_bounds(model):
    import torch

    class Gate(torch.nn.Module):
        def __init__(self, bound):
            super().__init__()
            self.bound = bound

        def forward(self, x):
            return Bounded(torch.nn.functional.silu(x), self.bound)

    for layer, of_experts, of_others in zip(model.model.layers, *BOUNDS.values()):
        for name, module in layer.mlp.named_modules():
            bound = of_experts if name.endswith("experts") and not name.endswith("shared_experts") else of_others
            if hasattr(module, "act_fn") and bound is not None:
                module.act_fn = Gate(bound)
    return model


def smallest_gap(model, ids, torch):
    """Of all routers the smallest distance between the last expert taken and the next one."""
    gaps = []

    def look(module, inputs, output):
        scores = torch.nn.functional.linear(inputs[0].float().reshape(-1, module.weight.shape[1]), module.weight).sort(-1, descending=True).values
        n = getattr(module, "top_k", 1)
        gaps.append(float((scores[:, n - 1] - scores[:, n]).min()))
        if type(module).__name__ == "PhimoeTopKRouter":  # either choice; and what is near it, of which some must be
            near = torch.cat([(scores[:, i:i + 1] - scores[:, i + 1:]) / torch.maximum(scores[:, i + 1:].abs(), scores[:, i:i + 1]) for i in range(n)], -1)
            gaps.append(float((scores[:, 0] - scores[:, 1]).min()))
            gaps.append(float((near - 2 * module.router_jitter_noise).abs().min()) if int((near < 2 * module.router_jitter_noise).sum()) >= 3 else 0)
    hooks = [m.register_forward_hook(look) for name, m in model.named_modules() if name.endswith((".gate", ".router")) and hasattr(m, "weight")]
    with torch.no_grad():
        model(torch.tensor([ids]), use_cache=False)
    for hook in hooks:
        hook.remove()
    return min(gaps)


def make(name, family, architecture, settings, theirs, out):
    import torch
    import transformers
    _, config_class, values, tokenizer, _, *more = next(f for f in [*convert.families(), *random_settings.only_there()] if f[0] == family)
    bounded, as_published = name.endswith("bounded"), bool(more) and more[0].get("as_published", False)
    for seed in range(1, 100):
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            values = dict(copy.deepcopy(values), **settings)
            ids, logits = random_settings.build(family, config_class, values, tokenizer, random.Random(seed), folder, with_bounds if bounded else None)
            gap = smallest_gap(transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32), ids, torch)
            if gap < 2e-4 or len(ids) != 40:
                continue
            for file_name, content in convert.tokenizer_files(*tokenizer).items():
                (folder / file_name).write_bytes(content if isinstance(content, bytes) else (convert.patched(convert.BASE, content) if isinstance(content, dict) else content).encode())
            random_settings.as_published(family, folder)
            if bounded:
                config = json.loads((folder / "config.json").read_text())
                (folder / "config.json").write_text(json.dumps(dict(config, **BOUNDS)))
            theirs(folder, out / f"{name}.gguf", "f16", tokenizer[1], as_published)
        assert logits.dtype == torch.float64
        likely = torch.log_softmax(logits, -1)

        def written(numbers):
            return [float(f"{x:.10g}") for x in numbers.tolist()]
        golden = {"arch": config_class.replace("Config", "ForCausalLM").replace("Text", ""), "general_architecture": architecture, "ids": ids, "logits_last3": [written(row) for row in logits[-3:]],
                  "logsumexp": written(torch.logsumexp(logits, -1)), "nll": written(-likely[torch.arange(len(ids) - 1), torch.tensor(ids[1:])]), "top_k_smallest_gap": gap}
        (out / f"{name}.json").write_text(json.dumps(golden))
        print(name, "seed", seed, "smallest gap", gap)
        return


def main():
    theirs, out = random_settings.converter_of(sys.argv[1]), pathlib.Path(sys.argv[2])
    for name, family, architecture, settings in GOLDENS:
        if sys.argv[3:] and name not in sys.argv[3:]:
            continue
        make(name, family, architecture, settings, theirs, out)


if __name__ == "__main__":
    main()
