#!/usr/bin/env bash
# Installs the build into an empty folder, builds a program against the package there, runs both.   usage: run.sh BUILD_FOLDER
set -euo pipefail
build=$1
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cmake --install "$build" --prefix "$folder/usr" >/dev/null
for file in bin/assay share/man/man1/assay.1 share/bash-completion/completions/assay include/assay/error.h; do
  [[ -s $folder/usr/$file ]] || { echo "not installed: $file"; exit 1; }
done
cmake -S "$here" -B "$folder/consumer" -G Ninja -DCMAKE_PREFIX_PATH="$folder/usr" -DCMAKE_BUILD_TYPE=Release >/dev/null
cmake --build "$folder/consumer" >/dev/null
"$folder/consumer/consumer"
"$folder/usr/bin/assay" --version
