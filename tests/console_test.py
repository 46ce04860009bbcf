"""What README.md and docs/ show of the program is what it prints: every block ```console of a page is typed, in a home folder made for it, and held
against what the page shows.   usage: console_test.py PROGRAM ROOT [--fix|--fill] [PAGE...]

A line "$ ..." is typed into one bash a page, "> ..." goes on with it (a terminal's second prompt), lines after it are what it prints, on both streams.
Where a page shows an answer to "> text" of `assay chat`, the program gets a terminal and the text is typed.

"..." is any text, a line of "..." any lines. Times, speeds and memory differ from machine to machine: a number before a unit of them is any number.
A command without lines after it must end with exit code 0. "<!-- not run: WHY -->" before a block leaves it out; so does "<!-- slow -->", unless
ASSAY_CONSOLE_SLOW is 1.   --fix writes what was printed into the page where it differs, --fill also where the page shows nothing."""
import os
import pathlib
import pty
import re
import select
import shlex
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from console_home import Home  # noqa: E402

BLOCK = re.compile(r'(?:^<!-- (not run: [^\n]*|slow) -->\n)?^```console\n(.*?)^```$', re.S | re.M)
UNITS = r's|ms|min|h|MiB|GiB|tokens/s|GB/s|MiB/s|MB/s'
VOLATILE = re.compile(rf'(?<![\w.])\d[\d.,]*(?:e[+-]?\d+)? (?:{UNITS})\b')
TIME = re.compile(r'\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ')
SECONDS = re.compile(r'  \([\d.]+ (?:ms|s|min)\)\s*$')  # how long a stage took, which short ones do not say
COMMIT = re.compile(r'\((?:[0-9a-f]{7,}(?:-dirty)?)\)')
COMMAND_SECONDS = 300
FILLS = '--fill' in sys.argv
END = 'end of the command'


def pattern(line):
    """Of a line that a page shows."""
    out, at = '', 0
    for m in re.finditer(rf'\.\.\.|…|  +|{TIME.pattern}|{VOLATILE.pattern}|{COMMIT.pattern}', line):
        out += re.escape(line[at:m.start()])
        at = m.end()
        text = m.group(0)
        if text in ('...', '…'):
            out += '.*?'
        elif text.isspace():
            out += r'\s+'
        elif text.endswith('Z'):
            out += TIME.pattern
        elif text.startswith('('):
            out += r'\([^()\s]+\)'
        else:
            unit = text.rsplit(' ', 1)[1]
            out += r'[\d.,]+(?:e[+-]?\d+)? ' + (r'[KMG]iB' if unit.endswith('iB') else re.escape(unit))
    return re.compile(out + re.escape(line[at:]) + r'\s*\Z')


def matches(shown, printed):
    """Lines against lines; a line of "..." stands for any number of them."""
    if not shown:
        return not printed
    if shown[0].strip() in ('...', '…'):
        return any(matches(shown[1:], printed[i:]) for i in range(len(printed) + 1))
    return bool(printed) and bool(pattern(shown[0]).match(printed[0])) and matches(shown[1:], printed[1:])


def without_blank_end(lines):
    lines = [SECONDS.sub('', line).rstrip() for line in lines]
    while lines and not lines[-1]:
        lines.pop()
    return lines


class Step:
    """A command, what a page shows of it, and for a conversation what is typed into it."""

    def __init__(self, command):
        self.command, self.shown, self.typed = command, [], []

    @property
    def talks(self):
        return bool(re.search(r'\bassay chat\b', self.command)) and any(re.match(r'> ?', line) for line in self.shown)


def steps_of(block):
    steps, is_open = [], False
    for line in block.split('\n')[:-1]:
        if line.startswith('$ '):
            steps.append(Step(line[2:]))
            is_open = True
        elif line.startswith('> ') and is_open and not re.search(r'\bassay chat\b', steps[-1].command):
            steps[-1].command += '\n' + line[2:]
        elif steps:
            is_open = False
            steps[-1].shown.append(line)
    return steps


class Shell:
    """One bash, whose variables and folder stay from command to command."""

    def __init__(self, home):
        self.home = home
        self.process = subprocess.Popen(['/bin/bash', '--norc', '--noprofile'], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        cwd=home.work, env=home.environment(), start_new_session=True)

    def run(self, command):
        self.process.stdin.write(f'{{ {command}\n}} </dev/null\nprintf "\\n{END} %s\\n" $?\n'.encode())
        self.process.stdin.flush()
        return self.read()

    def value(self, text):
        return self.run(f'printf %s "{text}"')[0]

    def read(self):
        deadline, data = time.monotonic() + COMMAND_SECONDS, b''
        while True:
            m = re.search(rb'\n' + END.encode() + rb' (\d+)\n\Z', data)
            if m:
                return data[:m.start()].decode(errors='replace'), int(m.group(1))
            if time.monotonic() > deadline or not select.select([self.process.stdout], [], [], 1)[0] and self.process.poll() is not None:
                raise AssertionError(f'no end of the command; so far: {data.decode(errors="replace")}')
            if select.select([self.process.stdout], [], [], 0)[0]:
                piece = os.read(self.process.stdout.fileno(), 1 << 16)
                if not piece:
                    raise AssertionError(f'the shell has ended; so far: {data.decode(errors="replace")}')
                data += piece

    def talk(self, command, lines):
        """Types the lines into the program on a terminal, each once it asks for one, and then Ctrl-D."""
        expanded = self.run(f'printf "%s\\n" "{{}}"'.replace('{}', command.replace('"', '\\"')))[0]
        ours, theirs = pty.openpty()
        process = subprocess.Popen(['/bin/bash', '-c', expanded], stdin=theirs, stdout=theirs, stderr=theirs, cwd=self.home.work,
                                   env={**self.home.environment(), 'TERM': 'dumb', 'COLUMNS': '300'}, start_new_session=True)
        os.close(theirs)
        data, seen, deadline = b'', 0, time.monotonic() + COMMAND_SECONDS
        typed = [line.encode() + b'\r' for line in lines] + [b'\x04']
        while True:
            assert time.monotonic() < deadline, f'no end of the conversation; so far: {data.decode(errors="replace")}'
            if select.select([ours], [], [], 0.2)[0]:
                try:
                    piece = os.read(ours, 1 << 16)
                except OSError:
                    piece = b''
                if not piece:
                    break
                data += piece
            if typed and re.search(rb'(?:^|\n|\r)[>.] \Z', data[seen:]):
                seen = len(data)
                os.write(ours, typed.pop(0))
        os.close(ours)
        return data.decode(errors='replace').replace('\r\n', '\n').replace('\r', ''), process.wait()

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def check_step(shell, home, step):
    """What was printed, where it is not what the page shows; else None."""
    name = re.fullmatch(r'cat ([\w.-]+)', step.command)
    if name and not (home.work / name.group(1)).exists():  # what a page shows of a file is the file
        (home.work / name.group(1)).write_text('\n'.join(step.shown) + '\n')
    if step.talks:
        lines = [line[2:] for line in step.shown if line.startswith('> ') and line != '> ']
        text, code = shell.talk(step.command, lines)
        text = text.replace('^D', '')  # a terminal's echo
    else:
        text, code = shell.run(step.command)
    printed = without_blank_end(home.shown(text).split('\n'))
    shown = without_blank_end(step.shown)
    if not shown:
        return None if code == 0 and not (FILLS and printed) else printed or [f'[exit code {code}]']
    return None if matches(shown, printed) else printed


def check_page(program, root, page, fixes):
    text = page.read_text()
    n_faults = n_steps = n_left_out = 0
    blocks = list(BLOCK.finditer(text))
    if not blocks:
        return 0, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        home = Home(pathlib.Path(folder), program, root)
        if re.search(r'assay pull|-hf ', text):
            home.serve_repository()
        shell = Shell(home)
        for block in blocks:
            if block.group(1) and not (block.group(1) == 'slow' and os.environ.get('ASSAY_CONSOLE_SLOW') == '1'):
                n_left_out += 1
                continue
            for step in steps_of(block.group(2)):
                n_steps += 1
                printed = check_step(shell, home, step)
                if printed is None:
                    continue
                n_faults += 1
                line = text[:block.start()].count('\n') + 1
                print(f'{page.relative_to(root)}, block at line {line}: $ {step.command}\n--- the page shows\n' + '\n'.join(without_blank_end(step.shown)) +
                      '\n--- it prints\n' + '\n'.join(printed) + '\n---')
                if fixes:
                    old = '\n'.join([*step.command.split('\n'), *step.shown]) + '\n'
                    fix(page, old, '\n'.join([*step.command.split('\n'), *printed]) + '\n' * (1 + len(step.shown) - len(without_blank_end(step.shown))))
        shell.close()
        home.close()
    return n_steps, n_faults, n_left_out


FENCE = re.compile(r'^```[^\n]*\n(.*?)^```$|^((?:    .+\n)+)', re.S | re.M)
KNOWN, COMMANDS = {}, set()


def flags_of(program, command):
    """Those that the command's help has; None where there is no such command."""
    if command not in KNOWN:
        help_ = subprocess.run([program, 'help', command], capture_output=True, text=True)
        KNOWN[command] = set(re.findall(r'(?<![\w-])--?[a-zA-Z][\w-]*', help_.stdout)) if help_.returncode == 0 else None
    return KNOWN[command]


def unknown_flags(program, text):
    """Of what a page shows in code, also where it shows no answer: (command, flag)."""
    found = []
    for fence in FENCE.finditer(text):
        for line in (fence.group(1) or fence.group(2)).split('\n'):
            m = re.match(r'\s*(?:\$ |curl .*|[A-Z_]+=\S+ )*assay ([a-z-]+)( .*)?$', line)
            if not m or m.group(1) not in COMMANDS:
                continue
            try:
                words = shlex.split(m.group(2) or '', comments=True)
            except ValueError:  # it goes on in the next line
                continue
            for word in words:
                if word in ('|', ';', '>', '<', '&&', '||') or word.endswith(';'):
                    break
                name = word.split('=')[0]
                if re.fullmatch(r'--?[a-zA-Z][\w-]*', name) and name not in flags_of(program, m.group(1)):
                    found.append((m.group(1), name))
    return found


def fix(page, old, new):
    text = page.read_text()
    first, _, rest = old.partition('\n')
    old, new = f'$ {first}\n{rest}', f'$ {first}\n{new.partition(chr(10))[2]}'
    assert text.count(old) == 1, old
    page.write_text(text.replace(old, new))


def check_itself():
    assert matches(['a', '...', 'd'], ['a', 'b', 'c', 'd']) and matches(['...'], []) and not matches(['a', '...', 'e'], ['a', 'b'])
    assert matches(['it took 1.5 s, 20 MiB'], ['it took 37 s, 1.2 GiB']) and not matches(['it took 15 tokens'], ['it took 16 tokens'])
    assert matches(['a    b'], ['a  b']) and not matches(['a b'], ['a  b']) and matches(['assay 0.1.0 (7065752)'], ['assay 0.1.0 (abcdef0-dirty)'])
    assert matches(['x ... y'], ['x 1 2 y']) and not matches(['x ... y'], ['x 1 2 z']) and not matches(['a'], ['ab']) and not matches(['[a]'], ['a'])
    steps = steps_of('$ a \\\n> b\nout\n\nmore\n$ c\n')
    assert [s.command for s in steps] == ['a \\\nb', 'c'] and steps[0].shown == ['out', '', 'more'] and not steps[1].shown
    assert steps_of('$ assay chat m\n> Hi\nHello\n')[0].talks


def main():
    check_itself()
    arguments = [a for a in sys.argv[1:] if a not in ('--fix', '--fill')]
    program, root = pathlib.Path(arguments[0]).resolve(), pathlib.Path(arguments[1]).resolve()
    pages = [root / p for p in arguments[2:]] or [root / 'README.md', root / 'CONTRIBUTING.md', *sorted((root / 'docs').glob('*.md')), *sorted((root / 'docs/design').glob('*.md'))]
    missing = Home.missing()
    if missing:
        print(f'skipped: {missing}')
        return 77
    overview = subprocess.run([program, '--help'], capture_output=True, text=True, check=True).stdout
    COMMANDS.update(re.findall(r'^  ([a-z-]+)  ', overview, re.M))
    assert unknown_flags(program, '```\nassay run m.gguf --no-such-flag -c 1\n```\n') == [('run', '--no-such-flag')]
    totals = [0, 0, 0]
    for page in pages:
        begin = time.monotonic()
        counts = check_page(program, root, page, FILLS or '--fix' in sys.argv)
        wrong = unknown_flags(program, page.read_text()) if page.name != 'trial.md' else []  # which shows what wrong flags get
        for command, flag in wrong:
            print(f'{page.relative_to(root)}: assay {command} has no flag {flag}')
            counts = (counts[0], counts[1] + 1, counts[2])
        totals = [a + b for a, b in zip(totals, counts)]
        if any(counts):
            print(f'{page.relative_to(root)}: {counts[0]} commands, {counts[1]} faults, {time.monotonic() - begin:.1f} s' + (f'; {counts[2]} blocks not run' if counts[2] else ''))
    print(f'{totals[0]} commands, {totals[1]} faults, {totals[2]} blocks not run')
    assert len(arguments) > 2 or totals[0] > 20
    return totals[1] > 0


if __name__ == '__main__':
    sys.exit(main())
