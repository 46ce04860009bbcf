"""What the commands that make files take of memory does not grow with the model: at most 256 MiB and three rows of the widest tensor for each thread.

usage: memory_test.py PROGRAM [GIB] [FOLDER]
       memory_test.py PROGRAM --quantize TYPE THREADS FOLDER GIB...

Of a llama whose weights are holes in a sparse file (0.3 GiB; docs/quantize.md has what was measured): convert, quantize of the folder and of the file, diff,
edit, split, merge. Prints the peak of each in MiB and exits with 1 where one is above.

With --quantize: of GGUF files of each size, F16, holes too, quantize alone."""
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


def limit(threads):
    return 256 * 2**20 + 3 * threads * FFN * 4


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


def numbers_at(file, layout):
    return struct.unpack('<' + layout, file.read(struct.calcsize('<' + layout)))


def text_at(file):
    return file.read(*numbers_at(file, 'Q'))


def skip_value(file, kind):
    """A metadata value: numbers, a string (8), a list (9)."""
    if kind == 8:
        text_at(file)
    elif kind == 9:
        inner, n = numbers_at(file, 'IQ')
        for _ in range(n):
            skip_value(file, inner)
    else:
        file.seek({0: 1, 1: 1, 7: 1, 2: 2, 3: 2, 10: 8, 11: 8, 12: 8}.get(kind, 4), os.SEEK_CUR)


def stretch(small, out, gib):
    """The file of one layer with so many that it has gib, their values holes but for the last ones of each tensor."""
    with open(small, 'rb') as file:
        version, n_tensors, n_keys = numbers_at(file, '4xIQQ')
        keys_begin = file.tell()
        for _ in range(n_keys):
            name, (kind,) = text_at(file), numbers_at(file, 'I')
            if name == b'llama.block_count':
                count_at = file.tell() - keys_begin
            skip_value(file, kind)
        keys_end = file.tell()
        file.seek(keys_begin)
        keys = bytearray(file.read(keys_end - keys_begin))
        tensors = []
        for _ in range(n_tensors):
            name = text_at(file)
            dims = numbers_at(file, 'Q' * numbers_at(file, 'I')[0])
            tensors.append((name, dims, numbers_at(file, 'IQ')[0]))
    is_layers = [t[0].startswith(b'blk.0.') for t in tensors]
    sizes = [math.prod(dims) * {0: 4, 1: 2}[kind] for _, dims, kind in tensors]
    n_layers = max(1, round(gib * 2**30 / sum(size for size, layers in zip(sizes, is_layers) if layers)))
    struct.pack_into('<I', keys, count_at, n_layers)
    infos, ends, at = b'', [], 0
    whole = [(name.replace(b'blk.0.', b'blk.%d.' % i), *t, size) for i in range(n_layers) for (name, *t), size, layers in zip(tensors, sizes, is_layers)
             if layers or i == 0]
    for name, dims, kind, size in whole:
        infos += struct.pack('<Q', len(name)) + name + struct.pack(f'<I{len(dims)}QIQ', len(dims), *dims, kind, at)
        ends.append((at + size, kind))
        at += -(-size // 32) * 32
    head = b'GGUF' + struct.pack('<IQQ', version, len(whole), n_keys) + keys + infos
    data = -(-len(head) // 32) * 32
    with open(out, 'wb') as file:
        file.write(head)
        for end, kind in ends:
            values = struct.pack('<16f' if kind == 0 else '<16e', *[0.5] * 16)
            file.seek(data + end - len(values))
            file.write(values)
        file.truncate(data + at)


def peak_of(home, threads, *command):
    """Runs it; its peak in bytes, or None where it failed or took more than is allowed."""
    begin = time.monotonic()
    process = subprocess.Popen(command, cwd=home, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env={**os.environ, 'TMPDIR': str(home)})
    told = process.stderr.read().decode(errors='replace')
    _, status, usage = os.wait4(process.pid, 0)
    peak = usage.ru_maxrss * 1024
    bad = status != 0 or peak > limit(threads)
    print(f'{"FAIL" if bad else "ok"}  {peak / 2**20:6.0f} MiB  {time.monotonic() - begin:6.1f} s  assay {" ".join(command[1:])}', flush=True)
    if bad:
        print(f'      exit status {status}; {limit(threads) / 2**20:.0f} MiB are allowed\n{told[-2000:]}')
    return None if bad else peak


def quantize_only(program, kind, threads, folder, sizes):
    peaks = []
    with tempfile.TemporaryDirectory(dir=folder) as name:
        home = pathlib.Path(name)
        make_folder(home / 'hf', 0.01)
        peak_of(home, THREADS, program, 'convert', 'hf', 'small.gguf', '-t', str(THREADS))
        for gib in sizes:
            stretch(home / 'small.gguf', home / f'{gib}.gguf', float(gib))
            peaks.append(peak_of(home, threads, program, 'quantize', f'{gib}.gguf', 'out.gguf', kind, '-t', str(threads)))
            (home / f'{gib}.gguf').unlink()
            (home / 'out.gguf').unlink(missing_ok=True)
    return None in peaks


def main():
    program = os.path.abspath(sys.argv[1])
    if sys.argv[2:3] == ['--quantize']:
        kind, threads, folder, *sizes = sys.argv[3:]
        return quantize_only(program, kind, int(threads), folder, sizes)
    gib = float(sys.argv[2]) if len(sys.argv) > 2 else 0.3
    fails = 0
    with tempfile.TemporaryDirectory(dir=sys.argv[3] if len(sys.argv) > 3 else None) as name:
        home = pathlib.Path(name)
        make_folder(home / 'hf', gib)

        def measure(*arguments):
            nonlocal fails
            fails += peak_of(home, THREADS, program, *arguments) is None

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
