"""What the commands that make files take of memory does not grow with the model: at most 256 MiB and three rows of the widest tensor for each thread.

usage: memory_test.py PROGRAM [GIB] [FOLDER]

Of a llama whose weights are holes in a sparse file (0.3 GiB; docs/quantize.md has what was measured): convert, quantize of the folder and of the file, diff,
edit, split, merge. Prints the peak of each in MiB and exits with 1 where one is above."""
import json
import math
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
WIDTH, FFN, HEADS, KV_HEADS, HEAD = 4096, 10240, 32, 8, 128
THREADS = 2
LIMIT = 256 * 2**20 + 3 * THREADS * FFN * 4


def layer(i):
    shapes = {'self_attn.q_proj': [HEADS * HEAD, WIDTH], 'self_attn.k_proj': [KV_HEADS * HEAD, WIDTH], 'self_attn.v_proj': [KV_HEADS * HEAD, WIDTH],
              'self_attn.o_proj': [WIDTH, HEADS * HEAD], 'mlp.gate_proj': [FFN, WIDTH], 'mlp.up_proj': [FFN, WIDTH], 'mlp.down_proj': [WIDTH, FFN],
              'input_layernorm': [WIDTH], 'post_attention_layernorm': [WIDTH]}
    return {f'model.layers.{i}.{name}.weight': shape for name, shape in shapes.items()}


def make_folder(folder, gib):
    """The tiny llama of the tests, made large. The last values of each tensor are there, so that none looks cut."""
    subprocess.run([sys.executable, ROOT / 'tools/tiny_folder.py', 'llama', folder], check=True)
    config = json.loads((folder / 'config.json').read_text())
    n_layers = max(1, round(gib * 2**30 / (2 * sum(math.prod(s) for s in layer(0).values()))))
    config.update(hidden_size=WIDTH, intermediate_size=FFN, num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, head_dim=HEAD, num_hidden_layers=n_layers,
                  tie_word_embeddings=True)
    (folder / 'config.json').write_text(json.dumps(config))
    shapes = {'model.embed_tokens.weight': [config['vocab_size'], WIDTH], 'model.norm.weight': [WIDTH]}
    for i in range(n_layers):
        shapes.update(layer(i))
    header, at = {}, 0
    for name, shape in shapes.items():
        end = at + 2 * math.prod(shape)
        header[name] = {'dtype': 'F16', 'shape': shape, 'data_offsets': [at, end]}
        at = end
    text = json.dumps(header).encode()
    with open(folder / 'model.safetensors', 'wb') as file:
        file.write(struct.pack('<Q', len(text)) + text)
        for entry in header.values():
            file.seek(8 + len(text) + entry['data_offsets'][1] - 64)
            file.write(struct.pack('<32e', *[0.5] * 32))


def main():
    program, gib = os.path.abspath(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 0.3
    fails = 0
    with tempfile.TemporaryDirectory(dir=sys.argv[3] if len(sys.argv) > 3 else None) as name:
        home = pathlib.Path(name)
        make_folder(home / 'hf', gib)

        def measure(*arguments):
            nonlocal fails
            begin = time.monotonic()
            process = subprocess.Popen([program, *arguments], cwd=home, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env={**os.environ, 'TMPDIR': str(home)})
            told = process.stderr.read().decode(errors='replace')
            _, status, usage = os.wait4(process.pid, 0)
            peak = usage.ru_maxrss * 1024
            bad = status != 0 or peak > LIMIT
            fails += bad
            print(f'{"FAIL" if bad else "ok"}  {peak / 2**20:6.0f} MiB  {time.monotonic() - begin:6.1f} s  assay {" ".join(arguments)}', flush=True)
            if bad:
                print(f'      exit status {status}; {LIMIT / 2**20:.0f} MiB are allowed\n{told[-2000:]}')

        threads = ['-t', str(THREADS)]
        measure('quantize', 'hf', 'folder-Q4_0.gguf', 'Q4_0', '--effort', 'fast', *threads)
        measure('convert', 'hf', 'f16.gguf', *threads)
        (home / 'hf/model.safetensors').unlink()
        measure('quantize', 'f16.gguf', 'file-Q4_0.gguf', 'Q4_0', '--effort', 'fast', *threads)
        measure('diff', 'f16.gguf', 'file-Q4_0.gguf')
        (home / 'file-Q4_0.gguf').unlink()
        (home / 'folder-Q4_0.gguf').unlink()
        measure('edit', 'f16.gguf', '-o', 'edited.gguf', '--set', 'general.name=str:' + 'x' * 5000)
        (home / 'edited.gguf').unlink()
        measure('split', 'f16.gguf', 'part', '--max-tensors', '9')
        (home / 'f16.gguf').unlink()
        measure('merge', str(min(path.name for path in home.glob('part-00001-*'))), 'merged.gguf')
    return fails > 0


if __name__ == '__main__':
    sys.exit(main())
