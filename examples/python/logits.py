"""The likeliest next token after a text, and the digest of all logits that `assay logits` prints for it.   usage: logits.py MODEL TEXT"""
import sys

import assay

model = assay.Model(sys.argv[1])
context = assay.Context(model)
logits = context.logits(model.tokenize(sys.argv[2], parse_special=True))  # float32 [n_tokens, vocab_size]
print(logits[-1].argmax(), context.logits_digest())
