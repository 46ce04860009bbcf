"""assay: GGUF language models whose every number can be checked.

    import assay
    model = assay.Model("smollm2")
    for piece in assay.Chat(model, temperature=0, max_tokens=64).send("Hi"):
        print(piece, end="", flush=True)

A Model may be used by any number of threads. A Context or a Chat serves one call, or one Stream, at a time: a second one is refused with an
Error. Long calls release the interpreter's lock, and Ctrl-C ends them.
"""

from __future__ import annotations

import secrets
from typing import Any, Dict, Iterable, Optional, Sequence, Tuple, Union

from . import _native
from ._error import Error
from ._native import Generation, Perplexity, Report, Stage, Stream, __version__

__all__ = ["Chat", "Context", "Error", "Generation", "Model", "Perplexity", "Report", "Stage", "Stream", "__version__", "generate", "perplexity",
           "verify"]

_CONTEXT_OPTIONS = frozenset(("n_ctx", "n_ubatch", "n_threads", "n_sequences", "activation_bits", "n_gpu_layers", "numerics", "cache_k", "cache_v",
                              "kernels", "backend"))


def _parted(options: Dict[str, Any]) -> Tuple[Dict[str, Any], Dict[str, Any]]:
    """Those of a context, and those of its answers, with a seed where there is none."""
    of_context = {name: value for name, value in options.items() if name in _CONTEXT_OPTIONS}
    of_answer = {name: value for name, value in options.items() if name not in _CONTEXT_OPTIONS}
    return of_context, _seeded(of_answer)


def _seeded(options: Dict[str, Any]) -> Dict[str, Any]:
    seeded = dict(options)
    if seeded.get("seed") is None:
        seeded["seed"] = secrets.randbits(53)
    if isinstance(seeded.get("stop"), str):
        seeded["stop"] = [seeded["stop"]]
    if isinstance(seeded.get("logit_bias"), dict):
        seeded["logit_bias"] = list(seeded["logit_bias"].items())
    return seeded


class Model(_native.Model):
    """A model by its file's path or its name (`assay list`)."""

    def __init__(self, path_or_name: Any) -> None:
        super().__init__(str(path_or_name))

    def detokenize(self, ids: Sequence[int], *, special: bool = False, errors: str = "replace") -> str:
        """The text of ids; special: control tokens appear as their text. errors: as bytes.decode has it, for bytes that are no UTF-8."""
        return self.detokenize_bytes(ids, special=special).decode("utf-8", errors)

    def __repr__(self) -> str:
        return f"<assay.Model {self.name!r}, {self.architecture}, {self.weights_type}>"


class Context(_native.Context):
    """A model at work: KV cache, memory and threads. Options: n_ctx, n_ubatch, n_threads, n_sequences, activation_bits, n_gpu_layers, numerics,
    cache_k, cache_v, kernels, backend, as the program's flags have them. Logits have the same bits for any threads, chunks and kernels."""

    def __init__(self, model: Model, **options: Any) -> None:
        super().__init__(model, options)
        self.model = model

    def generate(self, prompt: Union[str, Sequence[int]], **options: Any) -> Stream:
        """An answer to a raw text, in which control tokens are tokens, or to ids. Options: max_tokens, stop, seed, ignore_eos, special,
        logit_bias and the sampler's steps (temperature, top_k, top_p, min_p, ...)."""
        return self._generate(_ids(self.model, prompt), _seeded(options))


class Chat(_native.Chat):
    """A conversation. Options are those of Context and of Context.generate; a turn without a seed of its own has the chat's."""

    def __init__(self, model: Model, system: Optional[str] = None, *, chat_template: Optional[str] = None, drops_oldest: bool = False,
                 parts_reasoning: bool = False, **options: Any) -> None:
        of_context, of_answer = _parted(options)
        super().__init__(model, system or "", chat_template or "", drops_oldest, parts_reasoning, of_context, of_answer)
        self.model = model
        self.seed: int = of_answer["seed"]

    def send(self, text: str) -> Stream:
        """One turn: the answer, piece by piece. It begins at once; close() or the stream's end of life stops it."""
        return self.say(text)


def generate(model: Model, prompt: Union[str, Sequence[int]], **options: Any) -> Stream:
    """An answer to one prompt in a context of its own. Options are those of Context and of Context.generate."""
    of_context, of_answer = _parted(options)
    return Context(model, **of_context).generate(prompt, **of_answer)


def verify(path_or_name: Any, *, quick: bool = False, prompt: str = "", against: Iterable[str] = (), **options: Any) -> Report:
    """Checks the whole chain from the file to the drawn token, op by op. Options are those of Context."""
    path = path_or_name.path if isinstance(path_or_name, _native.Model) else str(path_or_name)
    return _native.verify(path, quick, prompt, list(against), options)


def perplexity(context: Context, text: Union[str, Sequence[int]], *, base: Optional[Context] = None, n_chunk: int = 512,
               n_chunks_max: int = 0) -> Perplexity:
    """How well a context's model predicts a text, or ids; with base also how far it is from that. Both contexts are cleared first."""
    return _native.perplexity(context, base, _ids(context.model, text), n_chunk, n_chunks_max)


def _ids(model: Model, prompt: Union[str, Sequence[int]]) -> Sequence[int]:
    return model.tokenize(prompt, parse_special=True) if isinstance(prompt, str) else prompt
