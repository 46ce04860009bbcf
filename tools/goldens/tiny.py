#!/usr/bin/env python3
"""The numbers of tests/data/goldens/tiny/*.json from the models beside them: a forward pass in float64 by Python's standard library alone.

usage: tiny.py MODEL.gguf...            compares each with MODEL.json and prints the largest differences; exit 1 where one exceeds 2e-4
       tiny.py --write MODEL.gguf...    prints the JSON that it would be, for the token ids of MODEL.json

It knows what these models have and refuses all else: F32 and F16 weights, `llama` (biases, a tied head, heads of any width, RoPE scaling linear, llama3
as a tensor of factors, YaRN) and `gemma3` (norms of queries and keys, norms behind, a window in five layers of six, tanh GELU). It shares no code with
the engine, and its order of sums is another: math.fsum, exact but for one rounding.
"""
import json
import math
import mmap
import struct
import sys

TOLERANCE = 2e-4  # the stored numbers were made with RoPE tables and norms in float32
SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
STRING, ARRAY = 8, 9
WEIGHTS = {0: "f", 1: "e"}  # GGML's type numbers of F32 and F16: struct's letters


class Gguf:
    """Metadata and tensors (as lists of rows) of a version 3 file."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.at = 0
        magic, version, n_tensors, n_entries = struct.unpack_from("<4sIQQ", self.bytes)
        if magic != b"GGUF" or version != 3:
            sys.exit(f"{path}: not a GGUF of version 3")
        self.at = 24
        self.metadata = {}
        for _ in range(n_entries):
            key = self.string()
            self.metadata[key] = self.value(self.scalar("<I"))
        directory = []
        for _ in range(n_tensors):
            name = self.string()
            shape = [self.scalar("<Q") for _ in range(self.scalar("<I"))]  # the contiguous dimension first
            directory.append((name, shape, self.scalar("<I"), self.scalar("<Q")))
        alignment = self.metadata.get("general.alignment", 32)
        begin = -(-self.at // alignment) * alignment
        self.tensors = {name: self.rows(name, shape, kind, begin + offset) for name, shape, kind, offset in directory}

    def scalar(self, form):
        value = struct.unpack_from(form, self.bytes, self.at)[0]
        self.at += struct.calcsize(form)
        return value

    def string(self):
        n_bytes = self.scalar("<Q")
        self.at += n_bytes
        return self.bytes[self.at - n_bytes:self.at].decode(errors="replace")

    def value(self, kind):
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            element, count = self.scalar("<I"), self.scalar("<Q")
            return [self.value(element) for _ in range(count)]
        return self.scalar(SCALARS[kind])

    def rows(self, name, shape, kind, at):
        if kind not in WEIGHTS or len(shape) > 2:
            sys.exit(f"{name}: only F32 and F16 in one or two dimensions are read here, found type {kind}, shape {shape}")
        n_columns, n_rows = (shape + [1])[:2]
        form = f"<{n_columns}{WEIGHTS[kind]}"
        rows = [struct.unpack_from(form, self.bytes, at + row * struct.calcsize(form)) for row in range(n_rows)]
        return rows if len(shape) == 2 else rows[0]


def dot(a, b):
    return math.fsum(map(float.__mul__, a, b))


def softmax(scores):
    largest = max(scores)
    shares = [math.exp(score - largest) for score in scores]
    total = math.fsum(shares)
    return [share / total for share in shares]


def log_sum_exp(values):
    largest = max(values)
    return largest + math.log(math.fsum(math.exp(value - largest) for value in values))


def silu(x):
    return x / (1 + math.exp(-x))


def gelu(x):
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


class Rope:
    """Angles of each pair at a position, and the factor on their cosine and sine."""

    def __init__(self, metadata, architecture, base, width, factors, scaled):
        self.width = width
        n_pairs = width // 2
        self.frequencies = [base ** (-2 * pair / width) / (factors[pair] if factors else 1) for pair in range(n_pairs)]
        self.magnitude = 1.0
        kind = metadata.get(f"{architecture}.rope.scaling.type", "none") if scaled else "none"
        factor = metadata.get(f"{architecture}.rope.scaling.factor", 1.0)
        if kind == "linear":
            self.frequencies = [frequency / factor for frequency in self.frequencies]
        elif kind == "yarn":
            self.yarn(base, factor, metadata[f"{architecture}.rope.scaling.original_context_length"])
        elif kind not in ("none", "llama3"):
            sys.exit(f"rope scaling {kind} is not known here")

    def yarn(self, base, factor, n_original):  # Peng et al. 2023, arXiv:2309.00071
        def pair_of(turns):  # the pair that makes so many turns within the original context
            return self.width * math.log(n_original / (turns * 2 * math.pi)) / (2 * math.log(base))

        low, high = max(math.floor(pair_of(32)), 0), min(math.ceil(pair_of(1)), self.width - 1)
        for pair, frequency in enumerate(self.frequencies):
            share = min(max((pair - low) / max(high - low, 0.001), 0), 1)  # 0: as trained, 1: stretched
            self.frequencies[pair] = frequency * (1 - share) + frequency / factor * share
        self.magnitude = 0.1 * math.log(factor) + 1

    def turn(self, head, position, halves):
        """halves: element i turns with i + width / 2 (gemma3), else pairs are neighbours (llama)."""
        turned = list(head)
        n_pairs = self.width // 2
        for pair, frequency in enumerate(self.frequencies):
            i, j = (pair, pair + n_pairs) if halves else (2 * pair, 2 * pair + 1)
            cosine, sine = math.cos(position * frequency) * self.magnitude, math.sin(position * frequency) * self.magnitude
            turned[i], turned[j] = head[i] * cosine - head[j] * sine, head[i] * sine + head[j] * cosine
        return turned


class Model:
    def __init__(self, path):
        file = Gguf(path)
        self.tensors = file.tensors
        architecture = file.metadata["general.architecture"]
        if architecture not in ("llama", "gemma3"):
            sys.exit(f"{path}: architecture {architecture} is not known here")

        def key(name, usual=None):
            value = file.metadata.get(f"{architecture}.{name}", usual)
            return sys.exit(f"{path}: {architecture}.{name} is missing") if value is None else value

        self.is_gemma3 = architecture == "gemma3"
        self.n_layers, self.d_model = key("block_count"), key("embedding_length")
        self.n_heads, self.n_kv_heads = key("attention.head_count"), key("attention.head_count_kv")
        self.head_dim = key("attention.key_length", self.d_model // self.n_heads)
        self.eps = key("attention.layer_norm_rms_epsilon")
        self.window = key("attention.sliding_window") if self.is_gemma3 else 0
        width, factors = key("rope.dimension_count", self.head_dim), self.tensors.get("rope_freqs.weight")
        self.rope = Rope(file.metadata, architecture, key("rope.freq_base", 10000.0), width, factors, True)
        self.local_rope = Rope(file.metadata, architecture, key("rope.freq_base_swa", 10000.0), width, None, False) if self.is_gemma3 else None
        self.read = {"token_embd.weight", "output_norm.weight", "output.weight", "rope_freqs.weight"}

    def norm(self, x, name):
        self.read.add(name)
        scale = 1 / math.sqrt(dot(x, x) / len(x) + self.eps)
        return [value * scale * weight for value, weight in zip(x, self.tensors[name])]

    def linear(self, x, name):
        self.read.update((name + ".weight", name + ".bias"))
        y = [dot(x, row) for row in self.tensors[name + ".weight"]]
        bias = self.tensors.get(name + ".bias")
        return [a + b for a, b in zip(y, bias)] if bias else y

    def heads(self, x, layer, name, rope, position):
        """Vectors of each head: x times the matrix, normed where the file has a norm for it, turned where there is a rope."""
        flat = self.linear(x, f"blk.{layer}.attn_{name}")
        heads = [flat[begin:begin + self.head_dim] for begin in range(0, len(flat), self.head_dim)]
        norm = f"blk.{layer}.attn_{name}_norm.weight"
        if norm in self.tensors:
            heads = [self.norm(head, norm) for head in heads]
        return [rope.turn(head, position, self.is_gemma3) for head in heads] if rope else heads

    def attention(self, rows, layer):
        is_local = self.is_gemma3 and layer % 6 != 5
        rope = self.local_rope if is_local else self.rope
        queries, keys, values = ([self.heads(x, layer, name, rope if name != "v" else None, position) for position, x in enumerate(rows)]
                                 for name in "qkv")
        outputs = []
        for position, query in enumerate(queries):
            begin = max(0, position + 1 - self.window) if is_local else 0
            output = []
            for head in range(self.n_heads):
                kv_head = head * self.n_kv_heads // self.n_heads
                shares = softmax([dot(query[head], key[kv_head]) / math.sqrt(self.head_dim) for key in keys[begin:position + 1]])
                columns = zip(*(value[kv_head] for value in values[begin:position + 1]))
                output += [dot(shares, column) for column in columns]
            outputs.append(self.linear(output, f"blk.{layer}.attn_output"))
        return outputs

    def feed_forward(self, x, layer):
        activation = gelu if self.is_gemma3 else silu
        gate, up = self.linear(x, f"blk.{layer}.ffn_gate"), self.linear(x, f"blk.{layer}.ffn_up")
        return self.linear([activation(g) * u for g, u in zip(gate, up)], f"blk.{layer}.ffn_down")

    def branch(self, stream, layer, before, after, compute):
        """stream + compute(norm(stream)), with another norm behind in gemma3."""
        outputs = compute([self.norm(x, f"blk.{layer}.{before}.weight") for x in stream])
        if self.is_gemma3:
            outputs = [self.norm(y, f"blk.{layer}.{after}.weight") for y in outputs]
        return [[a + b for a, b in zip(x, y)] for x, y in zip(stream, outputs)]

    def logits(self, ids):
        embedding = self.tensors["token_embd.weight"]
        scale = math.sqrt(self.d_model) if self.is_gemma3 else 1.0
        stream = [[value * scale for value in embedding[token]] for token in ids]
        for layer in range(self.n_layers):
            stream = self.branch(stream, layer, "attn_norm", "post_attention_norm", lambda rows: self.attention(rows, layer))
            stream = self.branch(stream, layer, "ffn_norm", "post_ffw_norm", lambda rows: [self.feed_forward(x, layer) for x in rows])
        head = self.tensors.get("output.weight", embedding)
        rows = [self.norm(x, "output_norm.weight") for x in stream]
        if unread := self.tensors.keys() - self.read:
            sys.exit(f"tensors that nothing read: {sorted(unread)}")
        return [[dot(x, row) for row in head] for x in rows]


def numbers(model, ids):
    logits = model.logits(ids)
    sums = [log_sum_exp(row) for row in logits]
    return {"logits_last3": logits[-3:], "logsumexp": sums,
            "nll": [total - row[token] for total, row, token in zip(sums, logits, ids[1:])]}


def worst_difference(a, b):
    if isinstance(a, list):
        if len(a) != len(b):
            sys.exit(f"{len(a)} numbers, {len(b)} expected")
        return max(map(worst_difference, a, b))
    return abs(a - b)


def main():
    is_writing = sys.argv[1:2] == ["--write"]
    paths = sys.argv[1 + is_writing:]
    if not paths:
        sys.exit(__doc__)
    is_same = True
    for path in paths:
        with open(path.removesuffix(".gguf") + ".json") as file:
            golden = json.load(file)
        found = numbers(Model(path), golden["ids"])
        if is_writing:
            print(json.dumps(golden | found))
            continue
        worst = {name: worst_difference(values, golden[name]) for name, values in found.items()}
        is_same = is_same and max(worst.values()) <= TOLERANCE
        print(path, *(f"{name} {difference:.1e}" for name, difference in worst.items()))
    return 0 if is_same else 1


if __name__ == "__main__":
    sys.exit(main())
