#!/usr/bin/env python3
"""Makes sampler.json: what each step of the sampling chain and the whole chain must leave, written from the definitions with numpy.
usage: make_sampler.py > sampler.json"""
import itertools, json, math, sys
import numpy as np

BREAKERS = ['\n', ':', '"', '*']


def philox(counter, key):
    c, k = list(counter), list(key)
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & 0xFFFFFFFF, (a >> 32) ^ c[3] ^ k[1], a & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def draws(seed, request, position):
    m = 0xFFFFFFFF
    w = philox([position & m, position >> 32, request & m, request >> 32], [seed & m, seed >> 32])
    return [((w[i] << 32 | w[i + 1]) >> 11) * 2.0 ** -53 for i in (0, 2)]


def window(history, n):
    return history if n < 0 else history[len(history) - min(n, len(history)):]


def penalties(l, o, history):
    for t, c in sorted(zip(*np.unique(window(history, o['penalty_last_n']), return_counts=True))):
        r = np.float32(o['repeat_penalty'])
        l[t] = l[t] / r if l[t] > 0 else l[t] * r
        l[t] -= np.float32(c) * np.float32(o['frequency_penalty']) + np.float32(o['presence_penalty'])


def dry(l, o, history, pieces):
    """By the definition: for every earlier place, the longest stretch before it that equals the history's end and holds no breaker."""
    w = window(history, o['dry_penalty_last_n'])
    text = ''.join(pieces[t] for t in history)
    ends = list(itertools.accumulate(len(pieces[t]) for t in history))
    broken = max((text.rfind(b) + len(b) for b in BREAKERS if b in text), default=0)  # characters up to the last breaker's end
    free = sum(1 for i in range(len(history)) if (ends[i - 1] if i else 0) >= broken)
    longest = {}
    for i in range(1, len(w)):  # w[i] followed w[:i]
        n = 0
        while n < i and w[i - 1 - n] == w[len(w) - 1 - n]:
            n += 1
        n = min(n, free)
        if n >= o['dry_allowed_length']:
            longest[w[i]] = max(longest.get(w[i], 0), n)
    for t, n in longest.items():
        l[t] -= np.float32(o['dry_multiplier'] * o['dry_base'] ** (n - o['dry_allowed_length']))


class Close(Exception):
    """A decision lies within rounding of its threshold: another random case is taken."""


def decide(x, threshold):
    if abs(x - threshold) < 1e-9:
        raise Close()
    return x >= threshold


def probabilities(c):
    e = np.exp(np.array([x for _, x in c], dtype=np.float64) - max(x for _, x in c))
    return e / e.sum()


def ranked(c):
    return sorted(c, key=lambda x: (-x[1], x[0]))


def chain(logits, o, history, pieces, seed, request, position):
    l = np.array(logits, dtype=np.float32)
    for t, b in o['logit_bias']:
        l[t] += np.float32(b)
    if o['penalty_last_n'] != 0:
        penalties(l, o, history)
    if o['dry_multiplier'] and o['dry_penalty_last_n']:
        dry(l, o, history, pieces)
    u, x = draws(seed, request, position)
    c = [(i, float(v)) for i, v in enumerate(l) if v != -np.inf]
    if o['top_n_sigma'] > 0:
        v = np.array([y for _, y in c], dtype=np.float64)
        c = [y for y in c if decide(y[1], v.max() - o['top_n_sigma'] * v.std())]
    c = ranked(c)
    if o['top_k'] > 0:
        c = c[:o['top_k']]
    if o['typical_p'] < 1:
        p = probabilities(c)
        h = -(p * np.log(p)).sum()
        order = sorted(range(len(c)), key=lambda i: (round(abs(-math.log(p[i]) - h), 12), i))
        total, kept = 0.0, []
        for i in order:
            kept.append(c[i])
            total += p[i]
            if decide(total, o['typical_p']):
                break
        c = ranked(kept)
    if o['top_p'] < 1:
        p, total, n = probabilities(c), 0.0, 0
        while n < len(c):
            total += p[n]
            n += 1
            if decide(total, o['top_p']):
                break
        c = c[:n]
    if o['min_p'] > 0:
        c = [y for y in c if y is c[0] or decide(math.exp(y[1] - c[0][1]), o['min_p'])]
    if o['xtc_probability'] > 0 and o['xtc_threshold'] <= 0.5 and len(c) > 1 and x <= o['xtc_probability']:
        above = [i for i, p in enumerate(probabilities(c)) if decide(p, o['xtc_threshold'])]
        if len(above) > 1:
            c = c[len(above) - 1:]
    t = o['temperature']
    if o['dynamic_range'] > 0 and len(c) > 1:
        p = probabilities(c)
        h = -(p * np.log(p)).sum() / math.log(len(c))
        low = max(0.0, t - o['dynamic_range'])
        t = low + (t + o['dynamic_range'] - low) * h ** o['dynamic_exponent']
    c = c[:1] if t <= 0 else [(i, (v - c[0][1]) / t) for i, v in c]
    c.sort()  # the draw goes through the ids in ascending order
    p = probabilities(c)
    steps = np.cumsum(p)
    if np.min(np.abs(steps - u)) < 1e-6:
        raise Close()
    return c, p, c[min(int(np.searchsorted(steps, u)), len(c) - 1)][0]


OFF = dict(temperature=1.0, dynamic_range=0.0, dynamic_exponent=1.0, top_k=0, top_p=1.0, min_p=0.0, typical_p=1.0, top_n_sigma=-1.0,
           xtc_probability=0.0, xtc_threshold=0.1, penalty_last_n=64, repeat_penalty=1.0, frequency_penalty=0.0,
           presence_penalty=0.0, dry_multiplier=0.0, dry_base=1.75, dry_allowed_length=2, dry_penalty_last_n=64, logit_bias=[])
ALONE = [dict(temperature=0.0), dict(temperature=0.5), dict(temperature=0.7, dynamic_range=0.5, dynamic_exponent=1.5), dict(top_k=5),
         dict(top_p=0.6), dict(min_p=0.2), dict(typical_p=0.5), dict(top_n_sigma=1.0), dict(xtc_probability=1.0, xtc_threshold=0.05),
         dict(xtc_probability=0.5), dict(repeat_penalty=1.3), dict(frequency_penalty=0.4), dict(presence_penalty=1.5),
         dict(repeat_penalty=1.2, penalty_last_n=4), dict(repeat_penalty=1.2, penalty_last_n=-1), dict(dry_multiplier=0.8),
         dict(dry_multiplier=0.8, dry_penalty_last_n=-1, dry_allowed_length=1), dict(logit_bias=[[3, 4.0], [7, -1e4]])]


def random_options(rng):
    o = {}
    for key, values in dict(temperature=[0.0, 0.3, 0.8, 1.7], top_k=[0, 1, 3, 12, 40], top_p=[1.0, 0.95, 0.5], min_p=[0.0, 0.05, 0.3],
                            typical_p=[1.0, 1.0, 0.7], top_n_sigma=[-1.0, -1.0, 1.5], xtc_probability=[0.0, 0.0, 0.6],
                            dynamic_range=[0.0, 0.0, 0.4], repeat_penalty=[1.0, 1.1], frequency_penalty=[0.0, 0.2],
                            presence_penalty=[0.0, 0.3], dry_multiplier=[0.0, 0.0, 0.8]).items():
        o[key] = values[rng.integers(len(values))]
    return o


def main():
    rng = np.random.default_rng(3)
    pieces = [f' w{i}' for i in range(28)] + ['\n', '::', '"', 'a*b']
    cases = []
    while len(cases) < 250:
        options = ALONE[len(cases)] if len(cases) < len(ALONE) else random_options(rng)
        logits = (rng.normal(0, 2.5, len(pieces)) * 8).round() / 8  # eighths, so that there are ties
        phrase = list(map(int, rng.integers(0, len(pieces), 5)))
        history = list(map(int, rng.integers(0, len(pieces), rng.integers(0, 20)))) + (phrase * 3)[:int(rng.integers(0, 15))]
        seed, request, position = int(rng.integers(2 ** 63)), int(rng.integers(2 ** 33)), int(rng.integers(2 ** 20))
        try:
            c, p, token = chain(logits, {**OFF, **options}, history, pieces, seed, request, position)
        except Close:
            continue
        cases.append(dict(options={**OFF, **options}, logits=list(logits), history=history, seed=seed, request=request,
                          position=position, ids=[i for i, _ in c], probabilities=[float(f'{x:.12g}') for x in p], token=int(token)))
    json.dump(dict(pieces=pieces, breakers=BREAKERS, cases=cases), sys.stdout, separators=(',', ':'))
    print()


main()
