"""Pages stay readable and true: no paragraph over 80 words and no table cell over 40 (README.md, CONTRIBUTING.md, docs/, docs/design/; docs/lab/ is exempt), every
link leads to a file and a heading that are there, and code that a page quotes from a file (a fence "```cpp of PATH") stands in it word for word. A comment in a
source names only files that are there.

usage: pages_test.py ROOT"""
import pathlib
import re
import sys

PARAGRAPH_WORDS_MAX = 80
CELL_WORDS_MAX = 40
SOURCES = {'.h', '.cpp', '.cu', '.cuh', '.glsl', '.comp'}
NOT_OURS = {'llama.cpp', 'ik_llama.cpp', 'whisper.cpp', 'llama-quant.cpp', 'darts.h', 'pcre2.h'}
FENCE = re.compile(r'^```(.*?)\n(.*?)^```', re.S | re.M)


def without_fences(text):
    return FENCE.sub(lambda m: '\n' * m.group(0).count('\n'), text)


def too_long(text):
    """(line, words, most) of each paragraph, list item and cell that is too long."""
    found, words, start = [], [], 1

    def close():
        if len(words) > PARAGRAPH_WORDS_MAX:
            found.append((start, len(words), PARAGRAPH_WORDS_MAX))
        words.clear()

    for number, line in enumerate(without_fences(text).split('\n'), 1):
        is_row = line.lstrip().startswith('|')
        if is_row:
            for cell in line.split('|'):
                if len(cell.split()) > CELL_WORDS_MAX:
                    found.append((number, len(cell.split()), CELL_WORDS_MAX))
        if is_row or not line.strip() or re.match(r'\s*([-*+]|\d+[.)])\s|#|>', line):
            close()
        if is_row:
            continue
        if not words:
            start = number
        words.extend(line.split())
    close()
    return found


def anchors(text):
    """Of a page's headings, as GitHub makes them."""
    found, seen = set(), {}
    for heading in re.findall(r'^#+ (.*)$', without_fences(text), re.M):
        plain = re.sub(r'\[([^\]]*)\]\([^)]*\)', r'\1', heading).lower()
        anchor = re.sub(r'[^\w\- ]', '', plain).strip().replace(' ', '-')
        found.add(anchor if anchor not in seen else f'{anchor}-{seen[anchor]}')
        seen[anchor] = seen.get(anchor, 0) + 1
    return found


def broken_links(page, text):
    found = []
    plain = re.sub(r'`[^`\n]*`', '', without_fences(text))
    for target in re.findall(r'\]\(([^)\s]+)\)', plain):
        if re.match(r'[a-z]+:', target):
            continue
        path, _, anchor = target.partition('#')
        file = (page.parent / path).resolve() if path else page
        if not file.exists():
            found.append(f'{target}: there is no such file')
        elif anchor and file.suffix == '.md' and anchor not in anchors(file.read_text()):
            found.append(f'{target}: there is no such heading')
    return found


def false_quotes(root, text):
    found = []
    for info, code in FENCE.findall(text):
        _, of, path = info.partition(' of ')
        if not of:
            continue
        file = root / path.strip()
        if not file.is_file():
            found.append(f'quotes {path}, which is not there')
        elif code.rstrip('\n') not in file.read_text():
            found.append(f'quotes what does not stand in {path}: {code.strip().splitlines()[0]}')
    return found


def missing_paths(root, text):
    """Paths below this folder that a text names and that no file has; * stands for any name."""
    found = []
    for number, line in enumerate(text.split('\n'), 1):
        for path in re.findall(r'(?<![\w/.-])(?:apps|bench|bindings|cmake|docs|examples|fuzz|include|scripts|src|tests|tools)/[\w/.*-]*[\w*][.](?:h|cpp|cuh?|glsl|comp|py|md|txt|cmake|sh)\b', line):
            if next(root.glob(path), None) is None:
                found.append(f'line {number}: names {path}, which is not there')
    return found


def missing_names(text, there):
    """Files that comments of a source name and that are not there; `there` has every file's name and the ends of its path."""
    found = []
    for number, line in enumerate(text.split('\n'), 1):
        _, _, comment = line.partition('//')
        for name in re.findall(r'(?<![\w/.*-])[\w/.-]*\w[.](?:h|cpp|cuh?|glsl|comp)\b', comment):
            if name.removeprefix('./') not in there:
                found.append(f'line {number}: names {name}, which is not there')
    return found


def check_comments(root):
    sources = [file for folder in ('include', 'src', 'apps', 'tests', 'fuzz', 'bench', 'bindings', 'examples') for file in sorted((root / folder).rglob('*'))
               if file.suffix in SOURCES]
    assert len(sources) > 100, f'{root}: only {len(sources)} sources'
    there = set(NOT_OURS)
    for file in sources:
        parts = file.relative_to(root).parts
        there.update('/'.join(parts[i:]) for i in range(len(parts)))
    there.add('assay_commit.h')  # the build writes it
    return [f'{file.relative_to(root)}: {fault}' for file in sources for fault in missing_names(file.read_text(), there) + missing_docs(root, file.read_text())]


def missing_docs(root, text):
    """Pages that a source tells its reader, or a user, to look into."""
    return [fault for fault in missing_paths(root, text) if 'names docs/' in fault]


def faults_of(root, page):
    text = page.read_text()
    is_lab = page.parent.name == 'lab'
    faults = [] if is_lab else [f'line {line}: {n} words, at most {most}' for line, n, most in too_long(text)]
    return faults + broken_links(page, text) + false_quotes(root, text) + ([] if is_lab else missing_paths(root, text))


def check_itself():
    """The checks see what they are for."""
    words = ' '.join(['word'] * 81)
    assert too_long(words) and not too_long(words[5:])
    assert too_long('first\n\n- ' + words) and not too_long('```\n' + words + '\n```\n')
    assert too_long('| a | ' + ' '.join(['word'] * 41) + ' |')
    assert too_long('one\n' * 81) and not too_long('one\n\n' * 81)
    assert anchors('# A b: `c`, d\n## Same\n## Same\n') == {'a-b-c-d', 'same', 'same-1'}
    here = pathlib.Path(__file__).resolve()
    assert broken_links(here, '[x](no_such_page.md)') and not broken_links(here, f'[x]({here.name}) [y](https://a.b/c)')
    assert missing_names('int x;  // see gone.h\n', {'here.h'}) and not missing_names('// here.h, *_any.h, a/here.h', {'here.h', 'a/here.h'})
    assert missing_paths(here.parent.parent, 'see tests/gone.py, `tests/gone*_test.py`') and not missing_paths(here.parent.parent, f'x/tests/gone.py `tests/{here.name}` tests/*_test.py')
    assert missing_docs(here.parent.parent, '"see docs/gone.md" src/gone.h') == ['line 1: names docs/gone.md, which is not there']
    assert false_quotes(here.parent, f'```py of {here.name}\nno such ' + 'line\n```\n')
    assert not false_quotes(here.parent, f'```py of {here.name}\nCELL_WORDS_MAX = 40\n```\n')


def main():
    check_itself()
    root = pathlib.Path(sys.argv[1]).resolve()
    pages = [root / 'README.md', root / 'CONTRIBUTING.md', *sorted((root / 'docs').rglob('*.md'))]
    assert len(pages) > 10, f'{root}: only {len(pages)} pages'
    n = 0
    for page in pages:
        for fault in faults_of(root, page):
            print(f'{page.relative_to(root)}: {fault}')
            n += 1
    for fault in check_comments(root):
        print(fault)
        n += 1
    print(f'{len(pages)} pages, {n} faults')
    return n > 0


if __name__ == '__main__':
    sys.exit(main())
