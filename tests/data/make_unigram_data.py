#!/usr/bin/env python3
"""tests/data/tokenizers/unigram.json: small unigram vocabularies with rules of normalisation, texts, and their ids.

usage: make_unigram_data.py OUT.json        needs Python's sentencepiece 0.2.3 with protobuf, and tokenizers 0.23.3

The vocabularies are trained here by SentencePiece on the lines below; their rules are NFKC's of some blocks, blanks, control characters and compositions,
compiled by SentencePiece. Two judges: text is normalised by SentencePiece, then cut by the Unigram model of `tokenizers`, whose sums are doubles as ours are.
SentencePiece's own ids, whose sums are floats, have to be the same, or to have the same sum of scores; how often that was needed is printed.
"""
import io
import json
import random
import sys
import tempfile
import unicodedata

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import Tokenizer, models

LINES = """The river rises in the hills above the old town and runs south for about forty miles before it reaches the sea.
In spring, when the snow melts, the water is high and cold, and the people who live near the banks watch it carefully.
In summer it is slow and clear, and children swim in the pools below the bridge.
The first bridge was built of wood more than two hundred years ago. It was washed away in a flood.
Every morning a small market opens at its northern end, where farmers from the valley sell bread, cheese and apples.
for (int i = 0; i < 10; ++i) { printf("%d\\n", i); } return 0x7f + 3.14159;
Der Fluss entspringt in den Bergen oberhalb der alten Stadt und fließt nach Süden, bevor er das Meer erreicht.
La rivière naît dans les collines au-dessus de la vieille ville, où les enfants nagent l'été.
Река берёт начало в горах над старым городом и течёт на юг. В начале лета она медленная и чистая.
川は古い町の上の丘から流れ出し、南へ向かって海に注ぐ。夏には子供たちが橋の下で泳ぐ。カタカナ ガギグ
河流发源于古城上方的群山，向南流向大海。夏天，孩子们在桥下的水里游泳。
강은 오래된 마을 위의 언덕에서 시작하여 남쪽으로 흐른다. 여름에는 아이들이 다리 아래에서 헤엄친다.
ينبع النهر من التلال فوق المدينة القديمة ويجري نحو الجنوب حتى يصل إلى البحر.
नदी पुराने नगर के ऊपर की पहाड़ियों से निकलती है और दक्षिण की ओर बहती है।
1 12 123 2026 --- ... !!! ??? ([{<>}]) a-b a--b a---b ééé 😀 🚀""".split("\n")

TEXTS = ["", " ", "  ", "\n", "\t \n", "a", " a", "a ", "  a  b  ", "The river", "the bridge was built", "It's a test; they'll see.", "a-b --- ---- -----", "aaaaaaaaaaaaaaaaaaaa",
         "for (int i = 0; i < 123; ++i) {\n\treturn \"%d\\n\";\n}\n\n", "１２３ＡＢＣ ｶﾀｶﾅ ｶﾞｷﾞ", "ﬁne ﬂow ½ ² ⅷ ℃", "e\u0301 a\u030a\u0327 o\u0308 e\u0301\u0301", "\u0301", "a\u00a0b\u2009c\u3000d",
         "x\u200bx\u00adx\ufeffx", "\0\1\7\x0b\x1f\x7f", "a\0b", "\u2581\u2581a \u2581", "<s>a</s> <unk>", "川は古い町", "河流 发源", "강은 오래된", "Река берёт", "نهر", "नदी", "\u16a0\u16a1 \u16a2",
         "😀🚀👩\u200d🔬", "\ue000", "x" * 300, " " * 40 + "y" + " " * 40]
BROKEN = [b"\xff", b"a\x80z", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x91", b"\xed\xa0\x80", b"ok \xc0\xaf ok", b"the \xe2\x96 river\xff\xff", b"\xe2\x96\x81\xe2\x96"]


def rules():
    """Lines of SentencePiece's table: code points, a tab, those in their place."""
    table = {"\t": " ", "\n": " ", "\r": " ", "\u2581": " ", "\u3000": " ", "\u00a0": " ", "\u200b": " ", "\ufeff": "", "\u00ad": ""}
    for code in [*range(1, 9), 11, *range(14, 32), 127]:
        table[chr(code)] = ""
    for block in ((0xA1, 0x180), (0x2000, 0x200B), (0x2100, 0x2190), (0xFB00, 0xFB07), (0xFF01, 0xFFA0)):
        for code in range(*block):
            normal = unicodedata.normalize("NFKC", chr(code))
            if normal != chr(code):
                table[chr(code)] = normal
    for code in [*range(0xC0, 0x180), *range(0x304B, 0x30FF)]:
        parts = unicodedata.normalize("NFD", chr(code))
        if len(parts) == 2:
            table[parts] = chr(code)
    for code in range(0xFF66, 0xFF9E):
        for mark in "\uff9e\uff9f":
            both = unicodedata.normalize("NFKC", chr(code) + mark)
            if len(both) == 1:
                table[chr(code) + mark] = both
    points = lambda text: " ".join(f"{ord(c):X}" for c in text)
    return "".join(f"{points(a)}\t{points(b)}\n" for a, b in sorted(table.items()) if a != b)


def train(**more):
    model = io.BytesIO()
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as file:
        file.write(rules())
        file.flush()
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(LINES * 3), model_writer=model, model_type="unigram", vocab_size=760, character_coverage=1.0, num_threads=1,
                                                 minloglevel=2, normalization_rule_tsv=file.name, hard_vocab_limit=False, **more)
    return model.getvalue()


def drawn(n, seed):
    draw = random.Random(seed)
    words = " ".join(LINES + TEXTS[9:32]).split(" ")
    for _ in range(n):
        if draw.random() < 0.6:
            yield draw.choice([" ", "  ", "\n", "", "\u3000"]).join(draw.choice(words) for _ in range(draw.randrange(1, 9)))
        else:
            blocks = ((32, 127), (32, 127), (0xA0, 0x180), (0x300, 0x330), (0x3040, 0x3100), (0xFF01, 0xFFA0), (0x2000, 0x2070), (1, 32), (0x410, 0x450), (0x4E00, 0x4E40))
            yield "".join(chr(draw.randrange(*draw.choice(blocks))) for _ in range(draw.randrange(1, 25)))


def cases(proto):
    processor = sentencepiece.SentencePieceProcessor(model_proto=proto.SerializeToString())
    model = models.Unigram([(p.piece, p.score) for p in proto.pieces], proto.trainer_spec.unk_id, proto.trainer_spec.byte_fallback)
    cut = Tokenizer(model)
    scores, n_ties = [p.score for p in proto.pieces], 0
    for text in [t.encode() for t in [*TEXTS, *drawn(300, 7)]] + BROKEN:
        own = processor.encode(text if text in BROKEN else text.decode())
        if text in BROKEN:  # which SentencePiece reads as U+FFFD for each such byte
            yield text, own
            continue
        normal = processor.normalize(text.decode())
        if any(mark in normal for mark in ("<s>", "</s>", "<unk>")):  # control tokens are text to SentencePiece alone
            yield text, own
            continue
        ids = cut.encode(normal).ids if normal else []
        if ids != own:
            n_ties += 1
            difference = sum(scores[i] for i in ids) - sum(scores[i] for i in own)
            if abs(difference) > 1e-9:
                sys.exit(f"{text}: {ids} and {own} differ by {difference}")
        yield text, ids
    print(f"{n_ties} ties that SentencePiece's floats decide otherwise")


def main():
    kinds = {"usual": {}, "bytes": dict(byte_fallback=True), "blanks": dict(remove_extra_whitespaces=False), "no_prefix": dict(add_dummy_prefix=False),
             "across_words": dict(split_by_whitespace=False, remove_extra_whitespaces=False)}
    out = []
    for name, more in kinds.items():
        proto = sentencepiece_model_pb2.ModelProto()
        proto.ParseFromString(train(**more))
        spec = proto.normalizer_spec
        out.append({"name": name, "rules": spec.precompiled_charsmap.hex(), "add_space_prefix": spec.add_dummy_prefix,
                    "remove_extra_whitespaces": spec.remove_extra_whitespaces, "unknown": proto.trainer_spec.unk_id, "tokens": [p.piece for p in proto.pieces],
                    "scores": [p.score for p in proto.pieces], "kinds": [int(p.type) for p in proto.pieces],
                    "cases": [[text.hex(), ids] for text, ids in cases(proto)]})
        print(name, len(proto.pieces), "tokens,", len(spec.precompiled_charsmap), "bytes of rules,", len(out[-1]["cases"]), "texts")
    first = out[0]["rules"]
    for one in out[1:]:
        if one["rules"] == first:
            one["rules"] = ""  # as the first one's
    with open(sys.argv[1], "w") as file:
        file.write(json.dumps(out, separators=(",", ":"), ensure_ascii=True).replace('],["', '],\n["') + "\n")


if __name__ == "__main__":
    main()
