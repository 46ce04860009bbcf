"""Writes the first inputs of fuzz_tokenizer and fuzz_vocabulary into corpus/tokenizer and corpus/vocabulary."""
import struct
from pathlib import Path

HERE = Path(__file__).parent / "corpus"
TEXTS = ["", "a", "Hello, world! It's 12345 o'CLOCK.", "  \n\n\t x ", "<s>ab</s> <user>!<|im_end|>", "é😀한국어 中文 हिन्दी ไทย",
         "e\u0301\u200d\ufe0f", "'s'LL'ſ", "x²³¹½1234567abc", "\u2581\u2581ab", "IMGIMGABZ<sentinel:12>", "\x00\x7f\x85\u180e\u3000",
         "http://a.b/c?d=e&f", "ǅʰªÀÉ camelCase HTTPServer"]


def string(text):
    data = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(data)) + data


def entry(key, kind, payload):
    return string(key) + struct.pack("<I", kind) + payload


def array(kind, items):
    return struct.pack("<IQ", kind, len(items)) + b"".join(items)


def byte_letters():
    prints = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(256, 512))
    return [chr(b) if b in prints else chr(next(others)) for b in range(256)]


def vocabulary(name, model, tokens, kinds, extra=()):
    entries = [entry("tokenizer.ggml.model", 8, string(model)), entry("tokenizer.ggml.tokens", 9, array(8, [string(t) for t in tokens])),
               entry("tokenizer.ggml.token_type", 9, array(5, [struct.pack("<i", k) for k in kinds])), *extra]
    header = b"GGUF" + struct.pack("<IQQ", 3, 0, len(entries))
    (HERE / "vocabulary" / name).write_bytes(header + b"".join(entries))


for folder in ("tokenizer", "vocabulary"):
    (HERE / folder).mkdir(parents=True, exist_ok=True)
for i, text in enumerate(TEXTS):
    for which in (0, 1, 3, 4, 2 + 7 * i % 80):
        (HERE / "tokenizer" / f"text{i}_{which}").write_bytes(bytes([which, i & 1, len(text) // 2]) + text.encode())
(HERE / "tokenizer" / "broken").write_bytes(b"\x03\x01\x05" + bytes(range(256)))
(HERE / "tokenizer" / "broken_unigram").write_bytes(b"\x03\x01\x05" + bytes(range(255, -1, -1)) + "\uFB01A\t\te\u0301".encode())
(HERE / "tokenizer" / "broken_llama").write_bytes(b"\x00\x00\x40" + bytes(range(255, -1, -1)))

PIECES = ["<unk>", "<s>", "</s>", "<user>", "<0x0A>", "<0xC3>", "\u2581", "a", "b", "ab", "\u2581ab", ""]
SPM_KINDS = [2, 3, 3, 4, 6, 6, 1, 1, 1, 1, 1, 5]
scores = entry("tokenizer.ggml.scores", 9, array(6, [struct.pack("<f", -i) for i in range(len(PIECES))]))
vocabulary("spm", "llama", PIECES, SPM_KINDS, [scores])
vocabulary("spm_flags", "llama", PIECES, SPM_KINDS, [
    scores, entry("general.name", 8, string("phi-3")), entry("tokenizer.ggml.bos_token_id", 4, struct.pack("<I", 1)),
    entry("tokenizer.ggml.eot_token_id", 4, struct.pack("<I", 2)), entry("tokenizer.ggml.add_eos_token", 7, b"\1"),
    entry("tokenizer.ggml.remove_extra_whitespaces", 7, b"\1"), entry("tokenizer.ggml.add_space_prefix", 7, b"\0")])
vocabulary("spm_no_scores", "llama", PIECES, SPM_KINDS)
LETTERS = byte_letters()[32:127] + byte_letters()[10:11] + byte_letters()[195:197]
merges = entry("tokenizer.ggml.merges", 9, array(8, [string(m) for m in ("l l", "H e", "He ll", "Hell o", "\u0120 \u0120")]))
WORDS = LETTERS + [byte_letters()[32], "ll", "He", "Hell", "Hello", "\u0120\u0120", "<|im_end|>", "<user>"]
WORDS = list(dict.fromkeys(WORDS))
BPE_KINDS = [1] * (len(WORDS) - 2) + [3, 4]
for pre in ("gpt-2", "llama-bpe", "qwen2", "smollm", "default", "nothing"):
    vocabulary("bpe_" + pre, "gpt2", WORDS, BPE_KINDS, [merges, entry("tokenizer.ggml.pre", 8, string(pre))])
vocabulary("bpe_bad_merge", "gpt2", WORDS, BPE_KINDS, [entry("tokenizer.ggml.merges", 9, array(8, [string("l x y")])),
                                                       entry("tokenizer.ggml.pre", 8, string("gpt-2"))])
# Rules: U+0041 becomes "a". The root's base is 256, a unit names what XOR its place gives the base behind it.
units = [0] * 768
units[0] = 256 << 10
units[256 ^ 0x41] = ((256 ^ 0x41) ^ 512) << 10 | 0x100 | 0x41
units[512] = 0x80000000
rules = struct.pack("<I", 4 * len(units)) + struct.pack(f"<{len(units)}I", *units) + b"a\0"


def chars_map(data):
    return entry("tokenizer.ggml.precompiled_charsmap", 9, array(0, [bytes([b]) for b in data]))


vocabulary("unigram", "t5", PIECES, SPM_KINDS, [scores, chars_map(rules), entry("tokenizer.ggml.remove_extra_whitespaces", 7, b"\1")])
vocabulary("unigram_circle", "t5", PIECES, SPM_KINDS, [scores, chars_map(rules[:4 + 4 * (256 ^ 0x41)] + struct.pack("<I", 0x41 << 10 | 0x41) + rules[8 + 4 * (256 ^ 0x41):])])
vocabulary("unigram_short", "t5", PIECES, SPM_KINDS, [scores, chars_map(rules[:100])])
vocabulary("unigram_plain", "t5", PIECES, SPM_KINDS, [scores])
vocabulary("unigram_infinite", "t5", PIECES, SPM_KINDS, [entry("tokenizer.ggml.scores", 9, array(6, [struct.pack("<f", float("-inf"))] * len(PIECES)))])
vocabulary("bad_kind", "llama", PIECES, [9] * len(PIECES), [scores])
vocabulary("bad_byte", "llama", ["<0xZZ>"], [6], [entry("tokenizer.ggml.scores", 9, array(6, [bytes(4)]))])
vocabulary("other_model", "bert", PIECES, SPM_KINDS)
