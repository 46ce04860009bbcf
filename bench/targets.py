"""What the project wants to reach on a CPU with two threads, as compare.py --targets holds it against a run (docs/benchmarks.md).

Peers go by the names llama.cpp and ik; classes are the kernel sets avx512 (AVX-512 with VNNI) and avx2.
"""
from typing import NamedTuple


class Goal(NamedTuple):
    engine: str   # exact/15 or exact/8
    against: str  # a peer's or the other engine's name: at least this ratio; limit: this share of it; figure: at most this much
    least: float


ANY = ('avx512', 'avx2')
BY_FORMAT = {'Q4': ('Q4_K_M', 'Q4_0'), 'Q56': ('Q5_K_M', 'Q6_K'), 'Q8': ('Q8_0',), 'SmolLM2': ('smollm2',), 'Gemma': ('gemma3',)}

# class, format, row, engine, against, at least
RULES = [
    (('avx2',), 'Q4', 'decode', 'exact/8', 'llama.cpp', 1.15), (('avx512',), 'Q4', 'decode', 'exact/8', 'llama.cpp', 1.0),
    (('avx2',), 'Q4', 'decode', 'exact/8', 'ik', 1.03),
    (('avx2',), 'Q56', 'decode', 'exact/8', 'llama.cpp', 1.3), (('avx512',), 'Q56', 'decode', 'exact/8', 'llama.cpp', 1.05),
    (('avx2',), 'Q8', 'decode', 'exact/8', 'llama.cpp', 1.3), (('avx512',), 'Q8', 'decode', 'exact/8', 'llama.cpp', 1.05),
    (ANY, 'Q56', 'decode', 'exact/8', 'ik', 1.0), (ANY, 'Q8', 'decode', 'exact/8', 'ik', 1.0),
    *((('avx2',), f, 'decode', 'exact/8', 'limit', 0.90) for f in ('Q4', 'Q56', 'Q8')),
    *((('avx512',), f, 'decode', 'exact/8', 'limit', 0.97) for f in ('Q4', 'Q56', 'Q8')),
    (ANY, 'SmolLM2', 'decode', 'exact/8', 'llama.cpp', 2.2), (ANY, 'SmolLM2', 'decode', 'exact/8', 'ik', 1.4),
    (ANY, 'Gemma', 'decode', 'exact/8', 'llama.cpp', 1.7), (ANY, 'Gemma', 'decode', 'exact/8', 'ik', 1.09),
    (ANY, 'Q4', 'prefill', 'exact/8', 'llama.cpp', 2.0),
    (('avx512',), 'Q56', 'prefill', 'exact/8', 'llama.cpp', 2.0), (('avx2',), 'Q56', 'prefill', 'exact/8', 'llama.cpp', 3.0),
    (('avx512',), 'Q8', 'prefill', 'exact/8', 'llama.cpp', 3.0), (('avx2',), 'Q8', 'prefill', 'exact/8', 'llama.cpp', 1.4),
    *((('avx512',), f, 'prefill', 'exact/8', 'ik', 1.8) for f in ('Q4', 'Q56', 'Q8')),
    (('avx2',), 'Q4', 'prefill', 'exact/8', 'ik', 1.5), (('avx2',), 'Q56', 'prefill', 'exact/8', 'ik', 1.5),
    (('avx2',), 'Q8', 'prefill', 'exact/8', 'ik', 1.15),
    *((ANY, f, 'prefill', 'exact/8', 'limit', 0.6) for f in ('Q4', 'Q56', 'Q8')),
    *((ANY, f, 'prefill', 'exact/15', 'llama.cpp', 1.1) for f in BY_FORMAT),
    *((ANY, f, 'prefill', 'exact/15', 'ik', 1.0) for f in BY_FORMAT),
    *((ANY, f, 'decode x 8', 'exact/8', 'llama.cpp', 1.5) for f in BY_FORMAT),
    *((ANY, f, 'decode x 8', 'exact/8', 'ik', 1.3) for f in BY_FORMAT),
    *((ANY, f, 'first token', 'exact/15', 'llama.cpp', 1 / 0.3) for f in BY_FORMAT),
    *((ANY, f, 'first token', 'exact/15', 'ik', 1 / 0.5) for f in BY_FORMAT),
    *((ANY, f, 'first token', 'exact/15', 'figure', 100) for f in ('Q4', 'Q56', 'Q8')),
    *((ANY, f, 'memory', 'exact/15', 'llama.cpp', 1 / 0.6) for f in ('Q4',)),  # the formats that it repacks
    *((ANY, f, 'memory', 'exact/15', 'ik', 1.0) for f in BY_FORMAT),
    *((('avx512',), f, 'decode', 'exact/15', 'exact/8', 0.95) for f in BY_FORMAT),
    *((('avx2',), f, 'decode', 'exact/15', 'exact/8', 0.90) for f in BY_FORMAT),
    *((ANY, f, 'decode', 'exact/15', 'llama.cpp', 1.0) for f in BY_FORMAT),
]


def goals(kernel_class, model, row):
    """The goals of this row of this model, whose name begins or ends with its format."""
    fits = [name for name, marks in BY_FORMAT.items() if any(model.endswith(mark) or model.startswith(mark) for mark in marks)]
    if any(model.startswith(mark) for mark in ('smollm2', 'gemma3')):  # goals of their own, not those of their format
        fits = [name for name in fits if name in ('SmolLM2', 'Gemma')]
    return [Goal(engine, against, least) for classes, name, of_row, engine, against, least in RULES
            if kernel_class in classes and name in fits and row == of_row]
