#!/usr/bin/env python3
"""Compares assay with llama.cpp on this machine, in interleaved runs, and prints one Markdown table.

usage: bench/compare.py PEER MODEL.gguf... [--assay build/release/assay] [-t N] [-p 512] [-n 64] [--rounds 5] [--peer-name llama.cpp]

PEER is a folder with llama-bench and llama-completion in it, in bin/ or in build/bin/. Each round runs every program once, one after the
other, so that what else the machine does falls on all alike; a figure is the median of its rounds. A ratio above 1 is in assay's favour.
  prefill, decode       tokens per second of -p prompt tokens and of -n generated ones
  first token           milliseconds from the start of the process to its end, with one token asked for (warm page cache)
  memory                the largest resident set of that process, with a context of 4096
assay runs twice: with activations of 15 bits (exact/15, the default) and of 8 (exact/8, one plane, as every peer has).
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

PROMPT = 'The capital of France is'
KINDS = ['prefill', 'decode', 'first token', 'memory']
FEWER_IS_BETTER = {'first token', 'memory'}


def find_tool(folder, name):
    for path in (os.path.join(folder, sub, name) for sub in ('', 'bin', 'build/bin')):
        if os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    sys.exit(f'compare.py: {folder}: no {name} in it, in bin/ or in build/bin/')


def output_of(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        sys.exit(f'compare.py: {" ".join(command)}: exit code {done.returncode}\n{done.stderr.decode(errors="replace")[-2000:]}')
    return done.stdout


def speeds(command):
    """Tokens per second by kind, from llama-bench's JSON."""
    found = {}
    for test in json.loads(output_of(command)):
        found['prefill' if test['n_prompt'] > 0 else 'decode'] = test['avg_ts']
    return found


def start_up(command):
    """Wall time in ms and the largest resident set in MiB of one short run."""
    start = time.monotonic()
    with open(os.devnull, 'r+b') as nothing:
        child = subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=nothing)
        _, status, usage = os.wait4(child.pid, 0)
    if status != 0:
        sys.exit(f'compare.py: {" ".join(command)}: status {status}')
    return {'first token': (time.monotonic() - start) * 1000, 'memory': usage.ru_maxrss / 1024}


def engines(args, model):
    """By name: a function that takes one set of figures."""
    shape = ['-p', str(args.p), '-n', str(args.n), '-r', '1', '-t', str(args.t), '-o', 'json']
    short = ['-p', PROMPT, '-n', '1', '--temp', '0', '-c', '4096', '-t', str(args.t)]
    peer_bench, peer_run = find_tool(args.peer, 'llama-bench'), find_tool(args.peer, 'llama-completion')

    def peer():
        return {**speeds([peer_bench, '-m', model, *shape]), **start_up([peer_run, '-m', model, *short, '-no-cnv'])}

    def ours(bits):
        numerics = ['--activations', bits]
        return {**speeds([args.assay, 'bench', model, *shape, '--no-bandwidth', *numerics]),
                **start_up([args.assay, 'run', model, *short, '--no-chat-template', *numerics])}

    return {args.peer_name: peer, 'exact/15': lambda: ours('15'), 'exact/8': lambda: ours('8')}


def measure(args, model):
    """By engine and kind: the median over the rounds."""
    runs = engines(args, model)
    samples = {name: {kind: [] for kind in KINDS} for name in runs}
    for i in range(args.rounds + 1):  # the first round warms the page cache and does not count
        for name, run in runs.items():
            print(f'{os.path.basename(model)}: {name}, round {i} of {args.rounds}', file=sys.stderr)
            figures = run()
            if i > 0:
                for kind in KINDS:
                    samples[name][kind].append(figures[kind])
    return {name: {kind: statistics.median(values) for kind, values in kinds.items()} for name, kinds in samples.items()}


def rows(args, model, medians):
    units = {'prefill': f'prefill {args.p}, t/s', 'decode': f'decode {args.n}, t/s', 'first token': 'first token, ms', 'memory': 'memory, MiB'}
    for kind in KINDS:
        peer, two, one = (medians[name][kind] for name in (args.peer_name, 'exact/15', 'exact/8'))
        ratio = (lambda x: peer / x) if kind in FEWER_IS_BETTER else (lambda x: x / peer)
        cost = two / one - 1 if kind in FEWER_IS_BETTER else one / two - 1
        yield (f'| {os.path.basename(model).removesuffix(".gguf")} | {units[kind]} | {peer:.1f} | {two:.1f} | {ratio(two):.2f} | '
               f'{one:.1f} | {ratio(one):.2f} | {100 * cost:+.0f} % |')


def machine(args):
    with open('/proc/cpuinfo') as file:
        name = next((line.split(': ', 1)[1].strip() for line in file if line.startswith('model name')), 'unknown processor')
    return f'{name}, {args.t} threads, medians of {args.rounds} interleaved rounds, {time.strftime("%Y-%m-%d")}'


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('peer')
    parser.add_argument('models', nargs='+')
    parser.add_argument('--assay', default=os.path.join(os.path.dirname(__file__), '../build/release/assay'))
    parser.add_argument('--peer-name', default='llama.cpp')
    parser.add_argument('-t', type=int, default=max(1, len(os.sched_getaffinity(0))))
    parser.add_argument('-p', type=int, default=512)
    parser.add_argument('-n', type=int, default=64)
    parser.add_argument('--rounds', type=int, default=5)
    args = parser.parse_args()
    lines = [line for model in args.models for line in rows(args, model, measure(args, model))]
    print(machine(args) + '\n')
    print(f'| model | | {args.peer_name} | exact/15 | ratio | exact/8 | ratio | the second plane costs |')
    print('| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |')
    print('\n'.join(lines))


main()
