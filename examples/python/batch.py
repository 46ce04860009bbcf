"""Continues several texts at once: every step runs one token of each in one pass over the weights. Each gets the tokens that it gets alone.

usage: batch.py MODEL TEXT..."""
import sys

import numpy as np

import assay

model, texts = assay.Model(sys.argv[1]), sys.argv[2:]
context = assay.Context(model, n_ctx=256, n_sequences=len(texts))
answers = [[int(np.argmax(context.decode(model.tokenize(text), sequence=i)))] for i, text in enumerate(texts)]
for _ in range(15):
    rows = context.decode_batch([(answer[-1], i) for i, answer in enumerate(answers)])
    for answer, best in zip(answers, np.argmax(rows, axis=1)):
        answer.append(int(best))
for answer in answers:
    print(model.detokenize(answer))
