# Writes tests/data/dots.json: for each quantised format the dot of its first 8 blocks of blocks.json with fixed activations, by the
# contract's formulas in exact rational arithmetic, each float operation rounded by hand: 15 bits, 8 bits, and mode f32.
# usage: python3 make_dots.py > dots.json
import json
import struct
from fractions import Fraction
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, quants

F = Fraction


def f32(x):  # the nearest binary32, ties to even, as a Fraction
    if x == 0:
        return F(0)
    e = max(x.numerator.bit_length() - x.denominator.bit_length() - 24, -149)
    while abs(x) / F(2) ** e >= 2 ** 24:
        e += 1
    while e > -149 and abs(x) / F(2) ** e < 2 ** 23:
        e -= 1
    return F(round(x / F(2) ** e)) * F(2) ** e  # round() of a Fraction is ties to even


def fma(a, b, c):
    return f32(a * b + c)


def activation(j):
    x = F((j * 7919 + 13) % 2003 - 1001, 512)
    return x * 9 if j % 97 == 0 else x


def quantise(x, block):
    d, q, l = [], [], []
    for b in range(0, len(x), block):
        amax = max(abs(v) for v in x[b:b + block])
        r = f32(F(127) / amax)
        d.append(f32(amax / 127))
        for v in x[b:b + block]:
            n = max(-127, min(127, round(f32(v * r))))
            q.append(n)
            l.append(max(-64, min(64, round(f32(128 * fma(v, r, -n))))))
    return d, q, l


# (d, m, integers w, minima) of a block: value j is d * w[j] + m * minima[j]. Sub-scales are folded into w.
POWER = {"IQ2_XXS": 8, "IQ2_XS": 8, "IQ2_S": 8, "IQ3_XXS": 4, "IQ1_S": 8}
OFFSET = {"Q2_K": 80, "Q3_K": 108, "Q6_K": 208, "TQ1_0": 52, "TQ2_0": 64}


def half(block, at):
    return F(float(np.frombuffer(block[at:at + 2], np.float16)[0]))


def integers(name, block, values):
    if name in ("Q4_1", "Q5_1"):
        nib = np.frombuffer(block[-16:], np.uint8)
        w = [int(v) for v in np.concatenate([nib & 15, nib >> 4])]
        if name == "Q5_1":
            bits = struct.unpack("<I", block[4:8])[0]
            w = [v | ((bits >> j & 1) << 4) for j, v in enumerate(w)]
        return half(block, 0), half(block, 2), w, [1] * 32
    if name in ("Q4_K", "Q5_K"):
        sc, mins = quants.Q4_K.get_scale_min(np.frombuffer(block[4:16], np.uint8).reshape(1, 12))
        scale, minimum = [np.repeat(a[0], 32) for a in (sc, mins)]
        nib = np.frombuffer(block[-128:], np.uint8).reshape(4, 32)
        w = np.stack([nib & 15, nib >> 4], axis=1).reshape(8, 32).astype(int)
        if name == "Q5_K":
            high = np.frombuffer(block[16:48], np.uint8)
            w = w | np.stack([(high >> i & 1).astype(int) << 4 for i in range(8)])
        w = w.reshape(256) * scale.astype(int)
        return half(block, 0), -half(block, 2), [int(v) for v in w], [int(v) for v in minimum]
    if name == "Q2_K":
        s = np.frombuffer(block[:16], np.uint8)
        q = np.frombuffer(block[16:80], np.uint8).reshape(2, 32)
        w = np.stack([q >> 2 * i & 3 for i in range(4)], axis=1).reshape(256).astype(int) * np.repeat(s & 15, 16)
        return half(block, 80), -half(block, 82), [int(v) for v in w], [int(v) for v in np.repeat(s >> 4, 16)]
    if name == "MXFP4":
        d = F(2) ** (block[0] - 128)
    else:
        d = half(block, OFFSET.get(name, 0)) / POWER.get(name, 1)
    w = [F(float(v)) / d for v in values]  # decoding is exact where there is no minimum
    assert all(v.denominator == 1 for v in w)
    return d, F(0), [int(v) for v in w], [0] * len(w)


def tree(c):
    add = lambda a, b: f32(a + b)
    return add(add(add(c[0], c[1]), add(c[2], c[3])), add(add(c[4], c[5]), add(c[6], c[7])))


def dot(name, blocks, planes, has_min):
    n = len(blocks)
    size = len(blocks[0][2])
    d_a, q, l = quantise([activation(j) for j in range(n * size)], size)
    chunks = []
    for i in range(8):
        c = F(0)
        for b in range(i * n // 8, (i + 1) * n // 8):
            d, m, w, mins = blocks[b]
            def plane(weights):
                s = lambda p: f32(F(sum(a * v for a, v in zip(weights, p[b * size:(b + 1) * size]))))
                return fma(F(1, 128), s(l), s(q)) if planes == 2 else s(q)
            t = fma(d, plane(w), f32(m * plane(mins))) if has_min else f32(d * plane(w))
            c = fma(d_a[b], t, c)
        chunks.append(c)
    return tree(chunks)


def dot_f32(values):
    n = len(values) // 32
    chunks = []
    for i in range(8):
        lanes = [F(0)] * 32
        for j in range(32 * (i * n // 8), 32 * ((i + 1) * n // 8)):
            lanes[j % 32] = fma(values[j], activation(j), lanes[j % 32])
        while len(lanes) > 1:
            h = len(lanes) // 2
            lanes = [f32(lanes[j] + lanes[j + h]) for j in range(h)]
        chunks.append(lanes[0])
    return tree(chunks)


facts = json.loads((Path(__file__).parent / "blocks.json").read_text())
out = {}
for name, fact in facts.items():
    raw = [bytes.fromhex(b) for b in fact["blocks"][:8]]
    values = [quants.dequantize(np.frombuffer(b, np.uint8)[None, :], GGMLQuantizationType[name])[0] for b in raw]
    blocks = [integers(name, b, v) for b, v in zip(raw, values)]
    has_min = name in ("Q4_1", "Q5_1", "Q2_K", "Q4_K", "Q5_K")
    row = [F(float(v)) for v in np.concatenate(values)]
    results = [dot(name, blocks, 2, has_min), dot(name, blocks, 1, has_min), dot_f32(row)]
    out[name] = [struct.pack(">f", float(r)).hex() for r in results]
print(json.dumps(out, indent=0))
