# Writes tests/data/encoded_blocks.json: blocks of 32 floats and what the Python package `gguf` encodes them to.
# usage: python3 make_encoded_blocks.py > encoded_blocks.json
import json
import numpy as np
from gguf import GGMLQuantizationType as T
from gguf import quants

rng = np.random.default_rng(5)
blocks = [rng.normal(size=32) * s for s in (1, 1, 1, 0.01, 1e-6, 3000, 1e-3, 7)]
blocks += [np.zeros(32), np.arange(32) - 16, np.arange(32) * 0.5 - 3.25, np.full(32, -1.5), np.eye(1, 32, 7)[0] * -3,
           rng.integers(-127, 128, size=32) * 0.5, (np.arange(32) - 15.5) / 127, np.arange(32) / 31]
x = np.array(blocks, dtype=np.float32)
out = {"floats": [row.tobytes().hex() for row in x]}
for t in (T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q8_0):
    out[t.name] = [quants.quantize(row[None, :], t).tobytes().hex() for row in x]
print(json.dumps(out, indent=0))
