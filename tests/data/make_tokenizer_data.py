#!/usr/bin/env python3
"""Makes tests/data/tokenizers/*.bin: what Hugging Face's `tokenizers` does with random and nasty texts.

usage: make_tokenizer_data.py SMOLLM2.gguf OUT_FOLDER      (pip install tokenizers gguf)

smollm2.bin: records of u16 bytes, text, u8 parse_special, u16 n_ids, u16 ids. The tokenizer is built from the file's vocabulary and
merges with the pre-tokenizers of SmolLM2 (single digits, then GPT-2's expression).
splits.bin: u16 n_texts, then each text as u16 bytes, text; then until the end for each pre-tokenizer u8 bytes, name, and for each text
u16 n_pieces, u16 length of each piece in bytes. Expressions as the models' tokenizer.json files have them, run by Hugging Face's engine.
All numbers little-endian.
"""
import random
import struct
import sys

import gguf
from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers

SPACES = " \t\n\r\x0b\x0c\x85\xa0\u1680\u180e\u2000\u2003\u200a\u2028\u2029\u202f\u205f\u3000"
LETTERS = "abcxyzABCXYZeEsStTmMdDlLvVrRéÉßẞñÑäÄøØÿſıİǅǈʰªºωΩпривЖשלוםسلام中文漢字仮名かなカナ한국어ไทยကខ្មែរहिन्दीবাংলাతెలుగు𐐀𐐨𝒜𝔟ﬁＡａ𠀀ﷺ"
MARKS = "\u0301\u0308\u20dd\u0e34\u094d\u0941\u3099\u200d\ufe0f\u0e31\u17d2"
NUMBERS = "0123456789²³¹½Ⅻⅷ٣४৫๙①⑳〇三𝟘𝟡𒐀"
PUNCTUATION = "!\"#%&'()*,-./:;?@[\\]_{}¡«»¿‘’“”…‹›、。〈〉！？（）：；，।۔،"
SYMBOLS = "$+<=>^`|~¢£€©®°±×÷←→∀∑█😀😁🦙❤👍🏽🇩🇪👩‍💻�"
OTHER = "\x00\x01\x02\x04\x06\x13\x14\x16\x1b\x1c\x1d\x1f\x7f\x80\x9f\xad\u200b\u200e\u2060\ufeff\ue000\U000f0000\U0010ffff\U00050000\U000e0001"
WORDS = ["'s", "'S", "'ſ", "'t", "'LL", "'ll", "'Ve", "'re", "'D", "'m", "don't", "I'M", "<|im_end|>", "<|im_start|>", "<|endoftext|>",
         "<repo_name>", "<|im_", "end|>", "hello", " the", "The", " world", "http://", "==", "\r\n", "\n\n", "    ", "\t\t", "1234567",
         "3.14159", "HTTPServer", "camelCase", "ÀÉÎ", "naïve", " \n ", "a b c", "<sentinel:42>", "IMGIMGABCZ", "İstanbul'da", "한국어 '안녕'",
         "e\u0301", "日本語テキスト", "ⅣⅤ", "x²y³", "--", "...", "\u200d", "/*", "*/", "//", "function()", "_under_score", "1a2b", "१२३"]
CLASSES = [SPACES, LETTERS, LETTERS, LETTERS, MARKS, NUMBERS, NUMBERS, PUNCTUATION, PUNCTUATION, SYMBOLS, OTHER, " ", " ", "\n",
           "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"]


def nasty(rng):
    out = []
    for _ in range(rng.randint(1, rng.choice([2, 5, 9]))):
        kind = rng.random()
        if kind < 0.3:
            out.append(rng.choice(WORDS))
        elif kind < 0.45:
            out.append(rng.choice(rng.choice(CLASSES)) * rng.randint(1, rng.choice([3, 8, 40])))
        elif kind < 0.5:
            code = rng.choice([rng.randint(0x20, 0x2FF), rng.randint(0x370, 0x1FFF), rng.randint(0x2000, 0x9FFF)])
            out.append(chr(code))
        else:
            chars = rng.choice(CLASSES)
            out.append("".join(rng.choice(chars) for _ in range(rng.randint(1, 8))))
    return "".join(out)


GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|" + REST
QWEN2 = CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|" + REST
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def cased(suffix, digits, end, upper=UPPER, lower=LOWER):
    return (r"[^\r\n\p{L}\p{N}]?%s*%s+%s|[^\r\n\p{L}\p{N}]?%s+%s*%s|%s| ?[^\s\p{L}\p{N}]+[\r\n%s]*|\s*[\r\n]+|\s+(?!\S)|\s+"
            % (upper, lower, suffix, upper, lower, suffix, digits, end))


GPT4O = cased(CONTRACTION + "?", r"\p{N}{1,3}", "/")
DEEPSEEK_CJK = "[一-龥぀-ゟ゠-ヿ]+"
DEEPSEEK3 = (r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"""
             r"\s*[\r\n]+|\s+(?!\S)|\s+")
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"
HAN = r"&&[^\p{Han}]]"
EXPRESSIONS = {
    "gpt-2": [GPT2], "llama-bpe": [LLAMA3], "qwen2": [QWEN2], "smollm": [r"\p{N}", GPT2], "gpt-4o": [GPT4O],
    "tekken": [cased("", r"\p{N}", "/")],
    "kimi-k2": [r"[\p{Han}]+|" + cased(CONTRACTION + "?", r"\p{N}{1,3}", "", "[" + UPPER[:-1].lstrip("[") + HAN, "[" + LOWER[:-1].lstrip("[") + HAN)],
    "deepseek-coder": ["[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+", r"\p{N}"],
    "deepseek-v3": [r"\p{N}{1,3}", DEEPSEEK_CJK, DEEPSEEK3],
    "qwen35": [CONTRACTION + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"],
    "poro-chat": [BLOOM], "viking": [BLOOM, r"\p{N}"],
    "falcon": [r"[\p{P}$+<=>^~|`]+", GPT2, "[0-9][0-9][0-9]"],
    "default": [r"[\p{P}$+<=>^~|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"],
    "tiny_aya": [r"\d{1,3}(?=(?:\d{3})*\b)", GPT4O],
    "superbpe": [r"\p{N}+", r"(?=(\d{3})+(?!\d))"],
    "bailingmoe": [r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"],
    "seed-coder": [CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+"],
    "ufakzeka": [r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|" + REST],
    "exaone-moe": [CONTRACTION + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|"
                   r"\s+(?!\S)|\s+"],
    "laguna": [r"[^\n]+|[\n]+", QWEN2],
    "minicpm5": [r"\p{N}{1,3}", CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+|" + REST],
    "jais-2": [LLAMA3[:-len(r"\s+(?!\S)|\s+")] + "".join(r"\s{%d}(?!\S)|" % n for n in (512, 256, 128, 64, 32, 16, 8, 4))
               + r"\s{1,2}(?!\S)|\s{1}"],
    "chameleon": ["<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", r"([\t\n]|    |  )", r"\p{N}", r"[\p{P}!-/:-@\[-`{-~]", GPT2],
    "spark2_5": [r"\p{N}{1,3}", DEEPSEEK_CJK, DEEPSEEK3.replace(r"[\r\n]*|\s*[\r\n]+|", r"|[\r\n]|"), r"\p{N}"],
    "youtu": ["[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|" + DEEPSEEK_CJK, cased(CONTRACTION + "?", r"\p{N}", "/")],
}


def write_splits(path, rng):
    texts = [t for t in (nasty(rng) for _ in range(700)) if len(t.encode()) < 600][:600]
    texts += [" " * n + end for n in (1, 2, 3, 4, 5, 7, 63, 64, 65, 511, 512, 513, 1300) for end in ("", "x", "\n", "\nx")]
    with open(path, "wb") as out:
        out.write(struct.pack("<H", len(texts)))
        for text in texts:
            out.write(struct.pack("<H", len(text.encode())) + text.encode())
        for name, expressions in EXPRESSIONS.items():
            out.write(struct.pack("<B", len(name)) + name.encode())
            splitter = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(e), "isolated") for e in expressions])
            for text in texts:
                pieces = [piece for piece, _ in splitter.pre_tokenize_str(text)]
                assert "".join(pieces) == text, (name, text)
                out.write(struct.pack("<H", len(pieces)) + b"".join(struct.pack("<H", len(p.encode())) for p in pieces))


def write_smollm2(path, model, rng):
    fields = gguf.GGUFReader(model).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    kinds = fields["tokenizer.ggml.token_type"].contents()
    merges = [tuple(m.split(" ")) for m in fields["tokenizer.ggml.merges"].contents()]

    def build():
        tokenizer = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges))
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
        return tokenizer

    plain, special = build(), build()
    special.add_special_tokens([AddedToken(t, normalized=False, special=True) for t, k in zip(tokens, kinds) if k == 3])
    seen = set()
    with open(path, "wb") as out:
        while len(seen) < 12000:
            text = nasty(rng)
            parse = rng.random() < 0.25
            if (text, parse) in seen or len(text.encode()) > 150:
                continue
            seen.add((text, parse))
            ids = (special if parse else plain).encode(text, add_special_tokens=False).ids
            data = text.encode()
            out.write(struct.pack("<H", len(data)) + data + struct.pack("<BH", parse, len(ids)) + struct.pack("<%dH" % len(ids), *ids))


if __name__ == "__main__":
    write_splits(sys.argv[2] + "/splits.bin", random.Random(7))
    write_smollm2(sys.argv[2] + "/smollm2.bin", sys.argv[1], random.Random(11))
