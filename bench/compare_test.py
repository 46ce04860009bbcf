#!/usr/bin/env python3
"""compare.py against programs that print canned figures: one peer of llama.cpp's kind, one of ik_llama.cpp's, one that crashes."""
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))

LLAMA_BENCH = '''#!/bin/sh
case "$*" in
  *--help*) echo '  -d, --n-depth <n>'; exit 0 ;;
  *"-d 64"*) echo '[{"n_prompt": 16, "n_gen": 0, "n_depth": 64, "avg_ts": 80}, {"n_prompt": 0, "n_gen": 4, "n_depth": 64, "avg_ts": 8}]' ;;
  *) echo '[{"n_prompt": 16, "n_gen": 0, "n_depth": 0, "avg_ts": 100}, {"n_prompt": 0, "n_gen": 4, "n_depth": 0, "avg_ts": 10}]' ;;
esac
'''
IK_BENCH = '''#!/bin/sh
case "$*" in
  *--help*) echo '  -gp <pp,tg>' ;;
  *"-gp 64,4"*) echo '[{"n_prompt": 64, "n_gen": 4, "avg_ts": 16, "test": "tg4@pp64"}]' ;;
  *) echo '[{"n_prompt": 16, "n_gen": 0, "avg_ts": 50, "test": "pp16"}, {"n_prompt": 0, "n_gen": 4, "avg_ts": 5, "test": "tg4"}]' ;;
esac
'''
BATCHED = '''#!/bin/sh
echo 'main: n_kv_max = 96'
echo '|    PP |     TG |    B |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |      T s |    S t/s |'
echo '|-------|--------|------|--------|----------|----------|----------|----------|----------|----------|'
echo '|     8 |      4 |    8 |     96 |    0.200 |   325.00 |    0.300 |    40.00 |    0.500 |   250.00 |'
'''
CRASHES = '''#!/bin/sh
case "$*" in *--help*) exit 0 ;; esac
echo 'loading' >&2
echo 'Illegal | instruction' >&2
exit 4
'''
# Its speed is that of the plane count: twice as fast with 8 bits.
ASSAY = '''#!/bin/sh
case "$*" in *"--kernels avx2"*) ;; *) echo 'no kernels named' >&2; exit 9 ;; esac
case "$*" in *"--activations 8"*) x=2 ;; *) x=1 ;; esac
test_of() { echo "{\\"n_prompt\\": $1, \\"n_gen\\": $2, \\"n_depth\\": $3, \\"n_parallel\\": $4, \\"avg_ts\\": $(($5 * x)),"
  echo " \\"share_of_bandwidth\\": 0.0$x, \\"share_of_peak\\": 0.$x}"; }
case "$*" in
  run*) ;;
  *"-npl 8"*) echo "[$(test_of 0 4 8 8 60)]" ;;
  *"-d 64"*) echo "[$(test_of 16 0 64 1 120), $(test_of 0 4 64 1 12)]" ;;
  *) echo "[$(test_of 16 0 0 1 150), $(test_of 0 4 0 1 15)]" ;;
esac
'''


def program(folder, name, text):
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, name)
    with open(path, 'w') as file:
        file.write(text)
    os.chmod(path, 0o755)
    return path


def compare(*arguments):
    command = [sys.executable, '-B', os.path.join(HERE, 'compare.py'), *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def expect(found, *wanted):
    for text in wanted:
        assert text in found, f'no {text!r} in\n{found}'


def test_table(folder, assay, peers):
    kept = os.path.join(folder, 'kept.json')
    shape = ['--assay', assay, '--kernels', 'avx2', '-p', '16', '-n', '4', '-d', '64', '--npl', '8', '--rounds', '2']
    code, table, errors = compare(*peers, 'some/tl-Q4_0.gguf', *shape, '--json', kept, '--targets')
    assert code == 0, errors
    failure = 'failed: llama-bench: exit code 4: Illegal / instruction'
    expect(table, '| model |  | llama.cpp | ik | bad | exact/15 | / llama.cpp | / ik | / bad | exact/8 | / llama.cpp | / ik | / bad |',
           f'| tl-Q4_0 | prefill, t/s | 100.0 | 50.0 | {failure} | 150.0 (10 %) | 1.50 | 3.00 |  | 300.0 (20 %) | 3.00 | 6.00 |  |',
           f'| tl-Q4_0 | decode, t/s | 10.0 | 5.0 | {failure} | 15.0 (1 %) | 1.50 | 3.00 |  | 30.0 (2 %) | 3.00 | 6.00 |  |',
           f'| tl-Q4_0 | prefill @ d64, t/s | 80.0 |  | {failure} | 120.0 (10 %) | 1.50 |  |',
           f'| tl-Q4_0 | decode @ d64, t/s | 8.0 | 16.0 | {failure} | 12.0 (1 %) | 1.50 | 0.75 |',
           '| tl-Q4_0 | decode x 8, t/s | 40.0 | 20.0 |  | 60.0 (10 %) | 1.50 | 3.00 |  | 120.0 (20 %) | 3.00 | 6.00 |',
           '| tl-Q4_0 | first token, ms |', '| tl-Q4_0 | memory, MiB |', 'kernels avx2',
           '| prefill, exact/8 | llama.cpp | >= 2.00 | tl-Q4_0 3.00 |  |', '| prefill, exact/8 | limit | >= 0.60 |  | tl-Q4_0 0.20 |',
           '| decode, exact/15 | exact/8 | >= 0.90 |  | tl-Q4_0 0.50 |')
    with open(kept) as file:
        samples = json.load(file)['models']['some/tl-Q4_0.gguf']
    assert samples['prefill']['ik'] == [50, 50], samples  # the warming round does not count
    code, again, errors = compare('--merge', kept, kept, '--spread')
    assert code == 0, errors
    expect(again, '| prefill, t/s | 100.0 [100.0..100.0] | 50.0 [50.0..50.0] |', failure)


def test_refusals(assay, peers):
    assert compare()[0] == 2
    assert compare(*peers)[0] == 1
    code, _, errors = compare('/nowhere', 'm.gguf', '--assay', assay)
    assert code == 1 and 'no llama-bench' in errors, errors
    assert compare(*peers, 'm.gguf', '--kinds', 'speed,size')[0] == 2
    assert compare(*peers, 'm.gguf', '--rounds', '0')[0] == 2


def main():
    with tempfile.TemporaryDirectory() as folder:
        first, second, third = (os.path.join(folder, name) for name in ('first', 'second', 'third'))
        program(first + '/bin', 'llama-bench', LLAMA_BENCH)
        program(first + '/bin', 'llama-batched-bench', BATCHED)
        program(first + '/bin', 'llama-completion', '#!/bin/sh\n')
        program(second + '/build/bin', 'llama-bench', IK_BENCH)
        program(second + '/build/bin', 'llama-batched-bench', BATCHED.replace('40.00', '20.00').replace('#!/bin/sh\n', '#!/bin/sh\nexec >&2\n'))
        program(second + '/build/bin', 'llama-cli', '#!/bin/sh\n')
        program(third, 'llama-bench', CRASHES)
        assay = program(folder, 'assay', ASSAY)
        peers = [f'llama.cpp={first}', f'ik={second}', f'bad={third}']
        test_table(folder, assay, peers)
        test_refusals(assay, peers)


main()
