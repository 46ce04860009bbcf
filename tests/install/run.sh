#!/usr/bin/env bash
# Installs the build into an empty folder and builds the examples against what lies there: C++ by find_package and by pkg-config, C by pkg-config, and
# the sources as a part of another build (configured only). All of them and the program must say the same of a small model.
#   usage: run.sh BUILD_FOLDER EXAMPLE_MODEL [PYTHON, where the module was built]
set -euo pipefail
build=$1 example_model=$2 python=${3:-}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
usr=$folder/usr model=$folder/talker.gguf
cmake --install "$build" --prefix "$usr" >/dev/null
lib=$(dirname "$(find "$usr" -name libassay.a)")
for file in bin/assay share/man/man1/assay.1 share/bash-completion/completions/assay include/assay/error.h "${lib#"$usr"/}"/{pkgconfig/assay.pc,libassay-c.so.0}; do
  [[ -s $usr/$file ]] || { echo "not installed: $file"; exit 1; }
done

cmake -S "$root/examples/cpp" -B "$folder/part" -G Ninja -DASSAY_SOURCE="$root" -DCMAKE_BUILD_TYPE=Release >"$folder/part.log" ||
  { cat "$folder/part.log"; exit 1; }
cmake -S "$root/examples/cpp" -B "$folder/cpp" -G Ninja -DCMAKE_PREFIX_PATH="$usr" -DCMAKE_BUILD_TYPE=None >"$folder/cpp.log" &&
  cmake --build "$folder/cpp" --target chat batch >"$folder/cpp.log" || { cat "$folder/cpp.log"; exit 1; }
export PKG_CONFIG_PATH=$lib/pkgconfig LD_LIBRARY_PATH=$lib
flags() { pkg-config --cflags --libs "$1"; }
# shellcheck disable=SC2046
g++ -std=c++20 "$root/examples/cpp/logits.cpp" -o "$folder/cpp/logits" $(flags assay)
mkdir "$folder/c"
for example in chat batch logits; do
  # shellcheck disable=SC2046
  gcc -std=c99 -Wall -Wextra -Wpedantic -Werror "$root/examples/c/$example.c" -o "$folder/c/$example" $(flags assay-c)
done
g++ -std=c++11 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I"$usr/include" -x c++ - <<<'#include <assay/assay.h>'

"$example_model" "$model"
same() {  # what the program says, then the others
  local what=$1 wanted=$2
  shift 2
  [[ $("$@") == "$wanted" ]] || { printf '%s: %s says\n%s\nand the program\n%s\n' "$what" "$*" "$("$@")" "$wanted"; exit 1; }
}
say() { printf 'the sea\nand the sea\n'; }
assay=$usr/bin/assay
text='the sea, the sea'
logits=$("$assay" logits "$model" -p "$text" --top 1 --json | sed -E 's/.*"top":\[\[([0-9]+),.*"logits_digest":"([0-9a-f]+)".*/\1 \2/')
[[ $logits =~ ^[0-9]+\ [0-9a-f]{32}$ ]]
answer=$(say | "$folder/cpp/chat" "$model" 2>/dev/null)
[[ -n $answer ]]
first=$("$assay" run "$model" -sys 'Answer in one line.' -p 'the sea' --temp 0 -n 64)
[[ $answer == "$first"* ]]
texts=$("$folder/cpp/batch" "$model" 'the sea' 'a sea' 'of')
for text_alone in 'the sea' 'a sea' 'of'; do "$folder/cpp/batch" "$model" "$text_alone"; done | diff - <(printf '%s\n' "$texts")
same logits "$logits" "$folder/cpp/logits" "$model" "$text"
same logits "$logits" "$folder/c/logits" "$model" "$text"
same batch "$texts" "$folder/c/batch" "$model" 'the sea' 'a sea' 'of'
chat_in_c() { say | "$folder/c/chat" "$model" 2>/dev/null; }
same chat "$answer" chat_in_c
if [[ -n $python ]]; then
  export PYTHONPATH=$build/python
  same logits "$logits" "$python" -B "$root/examples/python/logits.py" "$model" "$text"
  repaired() { "$python" -c 'import sys; sys.stdout.buffer.write(sys.stdin.buffer.read().decode(errors="replace").encode())'; }  # Python's texts are whole
  same batch "$(repaired <<<"$texts")" "$python" -B "$root/examples/python/batch.py" "$model" 'the sea' 'a sea' 'of'
  chat_in_python() { say | "$python" -B "$root/examples/python/chat.py" "$model" | tr -d '\n'; }
  [[ $(chat_in_python) == $(tr -d '\n' <<<"$answer") ]]
fi
# The digest that packages, wheels and the image must say too (scripts/test-packages and its like).
source "$root/scripts/lib.sh"
of_the_program() { "$assay" logits "$root/$digest_model" -p "$digest_text" --top 1 --json | token_and_digest; }
says_the_digest "the installed program" of_the_program
for language in cpp c; do says_the_digest "$language" "$folder/$language/logits" "$root/$digest_model" "$digest_text"; done
[[ -z $python ]] || says_the_digest Python "$python" -B "$root/examples/python/logits.py" "$root/$digest_model" "$digest_text"
"$assay" --version
