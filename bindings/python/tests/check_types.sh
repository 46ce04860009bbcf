#!/usr/bin/env bash
# The stubs say what the module has, by mypy's stubtest; package and examples keep to them.   usage: check_types.sh PYTHON PACKAGE_FOLDER EXAMPLES
set -euo pipefail
python=$1 package=$2 examples=$3 allowlist=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/stubtest_allowlist.txt
cache=$(mktemp -d)
trap 'rm -rf "$cache"' EXIT
cd "$cache"
export MYPY_CACHE_DIR=$cache MYPYPATH=$package PYTHONPATH=$package PYTHONDONTWRITEBYTECODE=1
"$python" -m mypy.stubtest --ignore-unused-allowlist --allowlist "$allowlist" assay
"$python" -m mypy --strict -p assay
"$python" -m mypy --strict "$examples"/*.py
