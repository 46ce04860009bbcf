#!/usr/bin/env python3
"""Compares assay with other engines on this machine, in interleaved runs, and prints one Markdown table.

usage: bench/compare.py [NAME=]PEER... MODEL.gguf... [options]      e.g.  bench/compare.py llama.cpp=../llama.cpp ik=../ik_llama.cpp m.gguf
       bench/compare.py --merge A.json B.json... [--targets]        the table of runs that were kept with --json

A PEER is a folder with llama-bench in it, in bin/ or in build/bin/; beside it llama-completion (or llama-cli, as in ik_llama.cpp) for the
start and llama-batched-bench for several sequences. Each round runs every program once, one after the other, so that what else the
machine does falls on all alike; a figure is the median of its rounds, and --json keeps them all. A ratio above 1 is in assay's favour,
for times and memory too.
  prefill, decode       tokens per second of -p prompt tokens and of -n generated ones
  ... @ d               the same with d tokens in the context before (-d)
  decode x n            n sequences together, 8 tokens in the context of each, tokens of all per second (--npl)
  first token           milliseconds from the start of the process to its end, with one token asked for (warm page cache)
  memory                the largest resident set of that process, with a context of 4096
assay runs twice: with activations of 15 bits (exact/15, the default) and of 8 (exact/8, one plane, as every peer has). The percentage
beside its speed is the share of the machine's limit, measured in the same process: of the instruction peak for prefill, of the memory's
read bandwidth for decoding, the larger of the two for several sequences.
A program that fails is told in its cell, by the last line of its errors, and the others go on.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import targets

PROMPT = 'The capital of France is'
OURS = {'exact/15': '15', 'exact/8': '8'}
SECONDS_MAX = 600  # of one program
BATCH_DEPTH = 8


class Failed(Exception):
    pass


def tool(folder, *names):
    """The first of the programs that is there; None."""
    for name in names:
        for sub in ('', 'bin', 'build/bin'):
            path = os.path.join(folder, sub, name)
            if os.access(path, os.X_OK) and os.path.isfile(path):
                return path
    return None


def last_line(data):
    lines = [line.strip() for line in data.decode(errors='replace').splitlines() if line.strip()]
    return lines[-1] if lines else 'it said nothing'


def ended(command, status, errors):
    return Failed(f'{os.path.basename(command[0])}: {"signal" if status < 0 else "exit code"} {abs(status)}: {last_line(errors)}')


def output_of(command):
    """What it printed: its output and its errors."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=SECONDS_MAX)
    except subprocess.TimeoutExpired:
        raise Failed(f'{os.path.basename(command[0])}: not done after {SECONDS_MAX} s') from None
    if done.returncode != 0:
        raise ended(command, done.returncode, done.stderr)
    return done.stdout, done.stderr


def json_of(command):
    text, _ = output_of(command)
    try:
        return json.loads(text)
    except ValueError:
        raise Failed(f'{os.path.basename(command[0])}: its output is no JSON: {last_line(text)}') from None


def row_name(kind, depth=0, n_sequences=1):
    return kind + (f' x {n_sequences}' if n_sequences > 1 else f' @ d{depth}' if depth else '')


def llama_bench(command):
    """By row: tokens per second, from llama-bench's JSON, and where it is ours the share of the limit."""
    figures = {}
    for test in json_of(command):
        if test.get('test', '').startswith('tg') and test['n_prompt'] > 0:  # ik_llama.cpp's -gp: the prompt is the depth
            kind, depth = 'decode', test['n_prompt']
        else:
            kind, depth = 'prefill' if test['n_prompt'] > 0 else 'decode', test.get('n_depth', 0)
        n_sequences = test.get('n_parallel', 1)
        row = row_name(kind, depth, n_sequences)
        figures[row] = test['avg_ts']
        shares = {'prefill': [test.get('share_of_peak')], 'decode': [test.get('share_of_bandwidth')]}[kind]
        shares += [test.get('share_of_peak')] if n_sequences > 1 else []
        if any(shares):
            figures[row + ' share'] = max(share for share in shares if share)
    return figures


def batched_bench(command):
    """By row: tokens per second that all sequences generate, from the table of llama-batched-bench (ik_llama.cpp's is among its errors)."""
    figures, head = {}, []
    for line in b'\n'.join(output_of(command)).decode(errors='replace').splitlines():
        cells = [cell.strip() for cell in line.strip().strip('|').split('|')]
        if 'S_TG t/s' in cells:
            head = cells
        elif head and len(cells) == len(head) and cells[0].isdigit():
            row = dict(zip(head, cells))
            figures[row_name('decode', n_sequences=int(row['B']))] = float(row['S_TG t/s'])
    if not figures:
        raise Failed(f'{os.path.basename(command[0])}: no table with S_TG in its output')
    return figures


def start_up(command):
    """Wall time in ms and the largest resident set in MiB of one short run."""
    start = time.monotonic()
    with open(os.devnull, 'r+b') as nothing, tempfile.TemporaryFile() as errors:
        child = subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=errors)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = status  # it is gone: nobody is to wait for it again
        ms = (time.monotonic() - start) * 1000
        if status != 0:
            errors.seek(0)
            raise ended(command, os.waitstatus_to_exitcode(status), errors.read())
    return {'first token': ms, 'memory': usage.ru_maxrss / 1024}


def counts(text):
    return [int(n) for n in text.split(',') if int(n) > 0]


def jobs_of_peer(args, folder, model):
    """By kind of measurement: a function that takes its figures once."""
    bench, batched = tool(folder, 'llama-bench'), tool(folder, 'llama-batched-bench')
    completion, cli = tool(folder, 'llama-completion'), tool(folder, 'llama-cli')
    if bench is None:
        sys.exit(f'compare.py: {folder}: no llama-bench in it, in bin/ or in build/bin/')
    common = [bench, '-m', model, '-r', '1', '-t', str(args.t), '-o', 'json']
    jobs = {'speed': lambda: llama_bench([*common, '-p', str(args.p), '-n', str(args.n)])}
    if '--n-depth' in help_of(bench):
        jobs['depth'] = lambda: llama_bench([*common, '-p', str(args.p), '-n', str(args.n), '-d', args.d])
    else:  # ik_llama.cpp: generation after a prompt, and no prefill at a depth
        after = [flag for depth in counts(args.d) for flag in ('-gp', f'{depth},{args.n}')]
        jobs['depth'] = lambda: llama_bench([*common, '-p', '0', '-n', '0', *after])
    if batched is not None:
        n_max = max(counts(args.npl), default=1)
        shape = ['-npp', str(BATCH_DEPTH), '-ntg', str(args.n), '-npl', args.npl, '-c', str(n_max * (BATCH_DEPTH + args.n))]
        jobs['batch'] = lambda: batched_bench([batched, '-m', model, '-t', str(args.t), *shape])
    short = ['-m', model, '-p', PROMPT, '-n', '1', '--temp', '0', '-c', '4096', '-t', str(args.t)]
    if completion is not None:
        jobs['start'] = lambda: start_up([completion, *short, '-no-cnv'])
    elif cli is not None:
        jobs['start'] = lambda: start_up([cli, *short])
    return jobs


def help_of(program):
    done = subprocess.run([program, '--help'], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    return done.stdout.decode(errors='replace')


def jobs_of_assay(args, bits, model):
    runs_as = ['-t', str(args.t), '--kernels', args.kernels, '--activations', bits]
    common = [args.assay, 'bench', model, *runs_as, '-r', '1', '-o', 'json']
    n = ['-n', str(args.n)]
    return {'speed': lambda: llama_bench([*common, '-p', str(args.p), *n]),
            'depth': lambda: llama_bench([*common, '-p', str(args.p), *n, '-d', args.d]),
            'batch': lambda: llama_bench([*common, '-p', '0', *n, '-npl', args.npl, '-d', str(BATCH_DEPTH)]),
            'start': lambda: start_up([args.assay, 'run', model, *runs_as, '-p', PROMPT, '-n', '1', '--temp', '0', '-c', '4096',
                                       '--no-chat-template'])}


def measure(args, peers, model):
    """By row and engine: the figures of all rounds, or the text of the failure."""
    engines = {name: jobs_of_peer(args, folder, model) for name, folder in peers.items()}
    engines.update({name: jobs_of_assay(args, bits, model) for name, bits in OURS.items()})
    wanted = [kind for kind in args.kinds.split(',') if rows_of(args, kind)]
    samples, failures = {}, {}
    for kind in wanted:
        for i in range(1 - args.warm, args.rounds + 1):
            for name, jobs in engines.items():
                if kind not in jobs or (kind, name) in failures:
                    continue
                print(f'{label(model)}: {name}, {kind}, round {i} of {args.rounds}', file=sys.stderr)
                try:
                    figures = jobs[kind]()
                except Failed as failure:
                    failures[kind, name] = str(failure)
                    print(f'compare.py: {failure}', file=sys.stderr)
                    continue
                for row, figure in figures.items() if i > 0 else []:
                    samples.setdefault(row, {}).setdefault(name, []).append(figure)
    for (kind, name), failure in failures.items():
        for row in rows_of(args, kind):
            samples.setdefault(row, {})[name] = failure
    return samples


def rows_of(args, kind):
    return {'speed': ['prefill', 'decode'],
            'depth': [row_name(one, depth) for depth in counts(args.d) for one in ('prefill', 'decode')],
            'batch': [row_name('decode', n_sequences=n) for n in counts(args.npl)],
            'start': ['first token', 'memory']}[kind]


def label(model):
    return os.path.basename(model).removesuffix('.gguf')


def merged(runs):
    """The models of several kept runs in one; figures of the same row and engine are put together."""
    models = {}
    for run in runs:
        for model, rows in run['models'].items():
            for row, engines in rows.items():
                for name, figures in engines.items():
                    known = models.setdefault(model, {}).setdefault(row, {})
                    known[name] = known[name] + figures if isinstance(known.get(name), list) and isinstance(figures, list) else figures
    return {**runs[0], 'models': models}


def median(figures):
    return statistics.median(figures) if isinstance(figures, list) and figures else None


def ratio(row, ours, theirs):
    if ours is None or theirs is None:
        return None
    return theirs / ours if row in ('first token', 'memory') else ours / theirs


def cell(figures, shares, spread):
    if isinstance(figures, str):
        return 'failed: ' + figures.replace('|', '/')[:100]
    if not figures:
        return ''
    text = f'{statistics.median(figures):.1f}'
    if spread:
        text += f' [{min(figures):.1f}..{max(figures):.1f}]'
    return text + (f' ({100 * statistics.median(shares):.0f} %)' if shares else '')


def table(run, spread):
    peers = run['peers']
    ours = [name for name in OURS]
    head = ['model', '', *peers]
    for name in ours:
        head += [name, *('/ ' + peer for peer in peers)]
    lines = ['| ' + ' | '.join(head) + ' |', '| --- | --- |' + ' ---: |' * (len(head) - 2)]
    units = {'first token': ', ms', 'memory': ', MiB'}
    for model, rows in run['models'].items():
        for row, engines in rows.items():
            if row.endswith(' share'):
                continue
            cells = [label(model), row + units.get(row, ', t/s'), *(cell(engines.get(peer), None, spread) for peer in peers)]
            for name in ours:
                cells.append(cell(engines.get(name), rows.get(row + ' share', {}).get(name), spread))
                ratios = [ratio(row, median(engines.get(name)), median(engines.get(peer))) for peer in peers]
                cells += ['' if x is None else f'{x:.2f}' for x in ratios]
            lines.append('| ' + ' | '.join(cells) + ' |')
    return '\n'.join(lines)


def measured(goal, row, engines, shares):
    """What the goal is about: a ratio, a share or a figure; None where the run does not have it."""
    mine = median(engines.get(goal.engine))
    if goal.against == 'limit':
        return median(shares.get(goal.engine))
    return mine if goal.against == 'figure' else ratio(row, mine, median(engines.get(goal.against)))


def verdicts(run):
    """A table of the project's targets (targets.py) that the run has figures for."""
    found = {}
    for model, rows in run['models'].items():
        for row, engines in rows.items():
            for goal in targets.goals(run['class'], label(model), row):
                figure = measured(goal, row, engines, rows.get(row + ' share', {}))
                if figure is not None:
                    reached = figure <= goal.least if goal.against == 'figure' else figure >= goal.least
                    found.setdefault((row, goal), ([], []))[not reached].append(f'{label(model)} {figure:.2f}')
    lines = ['| | against | goal | reached | missed |', '| --- | --- | ---: | --- | --- |']
    for (row, goal), (reached, missed) in found.items():
        sign = '<=' if goal.against == 'figure' else '>='
        lines.append(f'| {row}, {goal.engine} | {goal.against} | {sign} {goal.least:.2f} | {", ".join(reached)} | {", ".join(missed)} |')
    return '\n'.join(lines)


def machine(args):
    with open('/proc/cpuinfo') as file:
        name = next((line.split(': ', 1)[1].strip() for line in file if line.startswith('model name')), 'unknown processor')
    commit = subprocess.run(['git', '-C', os.path.dirname(os.path.abspath(__file__)), 'rev-parse', '--short', 'HEAD'],
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout.decode().strip() or 'unknown'
    day = time.strftime('%Y-%m-%d')
    return f'{name}, {args.t} threads, kernels {args.kernels}, medians of {args.rounds} interleaved rounds, commit {commit}, {day}'


def class_of(args):
    if args.kernels != 'auto':
        return args.kernels
    with open('/proc/cpuinfo') as file:
        return 'avx512' if 'avx512_vnni' in file.read() else 'avx2'


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('given', nargs='*', metavar='PEER|MODEL')
    parser.add_argument('--assay', default=os.path.join(os.path.dirname(os.path.abspath(__file__)), '../build/release/assay'))
    parser.add_argument('--kernels', default='auto', help="assay's kernel set: avx2 to be held against a peer built for AVX2")
    parser.add_argument('--kinds', default='speed,depth,batch,start', help='which measurements: speed, depth, batch, start')
    parser.add_argument('-t', type=int, default=max(1, len(os.sched_getaffinity(0))))
    parser.add_argument('-p', type=int, default=512)
    parser.add_argument('-n', type=int, default=64)
    parser.add_argument('-d', default='0', help='depths, e.g. 2048,8192')
    parser.add_argument('--npl', default='8,32', help='numbers of sequences; 0: none')
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument('--warm', type=int, default=1, help='rounds before that do not count: they bring the model into the page cache')
    parser.add_argument('--json', help='keeps every figure in this file')
    parser.add_argument('--merge', action='store_true', help='the arguments are files of --json')
    parser.add_argument('--spread', action='store_true', help='the least and the largest figure beside each median')
    parser.add_argument('--targets', action='store_true', help="a second table: the project's targets, reached or missed")
    args = parser.parse_intermixed_args(arguments)
    if not args.given:
        parser.error('needs peers and models, or files with --merge')
    if set(args.kinds.split(',')) - {'speed', 'depth', 'batch', 'start'}:
        parser.error(f'--kinds {args.kinds}: needs some of speed,depth,batch,start')
    if args.rounds < 1:
        parser.error(f'--rounds {args.rounds}: needs at least 1')
    return args


def main(arguments):
    args = parse(arguments)
    if args.merge:
        runs = []
        for path in args.given:
            with open(path) as file:
                runs.append(json.load(file))
        run = merged(runs)
    else:
        models = [given for given in args.given if given.endswith('.gguf')]
        peers = {}
        for given in args.given:
            if given not in models:
                name, _, folder = given.rpartition('=')
                peers[name or os.path.basename(os.path.abspath(folder))] = folder
        if not models or not peers:
            sys.exit('compare.py: needs at least one PEER and one MODEL.gguf')
        run = {'machine': machine(args), 'class': class_of(args), 'peers': list(peers),
               'models': {model: measure(args, peers, model) for model in models}}
        if args.json:
            with open(args.json, 'w') as file:
                json.dump(run, file, indent=1)
    print(run['machine'] + '\n')
    print(table(run, args.spread))
    if args.targets:
        print('\n' + verdicts(run))


if __name__ == '__main__':
    main(sys.argv[1:])
