"""A weight format is added by what docs/design/add-a-format.md says and nothing else: the page's diff goes onto a copy of src/ and of the list of types, and a program
that knows nothing of the format but its number finds it there, decodes it and multiplies with it.

usage: toy_format_test.py ROOT COMPILER"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

PROGRAM = r'''
#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>

#include "num/f16.h"
#include "quant/activations.h"

using namespace assay;

int main() {
  const tensor::DTypeTraits* traits = tensor::find_traits(200);
  if (traits == nullptr || traits->name != "TOY2") return std::puts("the type is not there"), 1;
  const quant::Format* format = quant::find_format(traits->dtype);
  if (format == nullptr || format->activation != quant::Activation::a32) return std::puts("the format is not there"), 1;
  bool is_listed = false;
  for (const quant::Format& one : quant::all_formats()) is_listed |= &one == format;
  if (!is_listed) return std::puts("it is not in the list"), 1;

  constexpr int kBlocks = 9, kColumns = 32 * kBlocks;
  std::vector<std::byte> row(static_cast<size_t>(kBlocks * traits->block_bytes));
  std::vector<float> expected(kColumns), decoded(kColumns), x(kColumns);
  for (int b = 0; b < kBlocks; ++b) {
    auto* bytes = reinterpret_cast<unsigned char*>(row.data()) + b * traits->block_bytes;
    const float d = 0.25f * static_cast<float>(b + 1);
    const uint16_t half = num::float_to_half(d);
    std::memcpy(bytes, &half, 2);
    for (int j = 0; j < 32; ++j) {
      const int pair = (7 * b + 5 * j + j / 3) % 4;  // 2 bits
      bytes[2 + j / 4] = static_cast<unsigned char>(bytes[2 + j / 4] | pair << 2 * (j % 4));
      expected[static_cast<size_t>(32 * b + j)] = d * static_cast<float>(2 * pair - 3);
    }
  }
  quant::decode_row(*format, row.data(), kColumns, decoded.data());
  if (decoded != expected) return std::puts("it decodes to other numbers"), 1;

  for (int j = 0; j < kColumns; ++j) x[static_cast<size_t>(j)] = static_cast<float>(j % 127 - 63);
  for (int j = 0; j < kColumns; j += 32) x[static_cast<size_t>(j)] = 127.0f;  // every block's step is 1: nothing is rounded
  std::vector<std::byte> memory(quant::activations_bytes(quant::Activation::a32, 1, 1, kColumns));
  const quant::Activations q = quant::carve(quant::Activation::a32, 1, 1, kColumns, memory.data());
  quant::quantise_row_ref(x.data(), q, 0);
  double sum = 0;
  for (int j = 0; j < kColumns; ++j) sum += static_cast<double>(expected[static_cast<size_t>(j)]) * static_cast<double>(x[static_cast<size_t>(j)]);
  const float product = quant::dot_ref(*format, row.data(), q, 0);
  if (product != static_cast<float>(sum)) return std::printf("its product is %.9g, not %.9g\n", static_cast<double>(product), sum), 1;
  return 0;
}
'''


def changes(diff):
    """(path, lines that stand there, lines that shall stand there) of each hunk; a new file's old lines are none."""
    path, old, new, found = None, [], [], []
    for line in [*diff.split('\n'), '@@']:
        if line.startswith(('--- ', '+++ ', '@@')):
            if path is not None and (old or new):
                found.append((path, old, new))
            old, new = [], []
            if line.startswith('+++ '):
                path = line[len('+++ b/'):].strip()
        elif line[:1] in (' ', '-', '+'):
            old += [line[1:]] if line[0] != '+' else []
            new += [line[1:]] if line[0] != '-' else []
    return found


def apply(root, diff):
    for path, old, new in changes(diff):
        file = root / path
        text = file.read_text() if file.exists() else ''
        if not old:
            assert not text, f'{path} is there already'
            file.write_text('\n'.join(new) + '\n')
            continue
        before = '\n'.join(old) + '\n'
        assert text.count(before) == 1, f'{path}: what the diff changes stands there {text.count(before)} times:\n{before}'
        file.write_text(text.replace(before, '\n'.join(new) + '\n'))


def main():
    root, compiler = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
    diffs = re.findall(r'^```diff\n(.*?)^```', (root / 'docs/design/add-a-format.md').read_text(), re.S | re.M)
    assert len(diffs) == 1, f'the page has {len(diffs)} diffs'
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder)
        for room in ('base', 'num', 'tensor', 'quant'):
            shutil.copytree(root / 'src' / room, copy / 'src' / room)
        apply(copy, diffs[0])
        (copy / 'program.cpp').write_text(PROGRAM)
        sources = ['program.cpp', 'src/tensor/dtype.cpp', 'src/quant/list.cpp', 'src/quant/activations.cpp']
        flags = ['-std=c++20', '-O0', '-ffp-contract=off', '-Wall', '-Wextra', '-Isrc', f'-I{root}/include']
        subprocess.run([compiler, *flags, *sources, '-o', 'program'], cwd=copy, check=True)
        return subprocess.run([copy / 'program']).returncode


if __name__ == '__main__':
    sys.exit(main())
