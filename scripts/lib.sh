# Shared by the scripts here: what must be installed, and where models are kept. Sourced, not run.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# Debian 12 packages: compilers and tools, then the libraries of cmake/AssayDependencies.cmake.
packages=(g++ cmake ninja-build pkg-config python3 python3-pip ca-certificates
          libboost-json1.81-dev libssl-dev libcurl4-openssl-dev libpcre2-dev libutf8proc-dev libxxhash-dev libfmt-dev libedit-dev libgtest-dev libgmock-dev)

# Of builds with ASSAY_VULKAN, and a driver that computes on the processor.
vulkan_packages=(libvulkan-dev glslc mesa-vulkan-drivers)

say() { printf '%s\n' "$*" >&2; }

# installed PACKAGE[:ARCHITECTURE]: of this machine's architecture, if none is named; others may be there beside it.
installed() {
  local architecture=${1##*:}
  [[ $1 == *:* ]] || architecture=$(dpkg --print-architecture)
  dpkg-query -W -f '${Architecture} ${Status}\n' "${1%%:*}" 2>/dev/null | grep -E "^($architecture|all) install ok installed\$" >/dev/null
}

# name_here PACKAGE: what this release calls it. Boost's packages have its version in their names: Debian 12 has 1.81, Debian 13 and Ubuntu 24.04 have 1.83.
# What is installed goes first, then the name itself, then the release's own choice (no version in the name), then its newest.
name_here() {
  local package=$1 architecture= stem
  [[ $package == libboost* ]] || { printf '%s\n' "$package"; return 0; }
  [[ $package == *:* ]] && architecture=:${package#*:}
  stem=$(sed -E 's/[0-9.]+-dev(:.*)?$//' <<<"$package")
  local own="$stem-dev$architecture" candidate newest
  for candidate in "$package" "$own"; do
    installed "$candidate" && { printf '%s\n' "$candidate"; return 0; }
  done
  newest=$(apt-cache search --names-only "^$stem[0-9.]+-dev\$" 2>/dev/null | cut -d' ' -f1 | sort -V | tail -n 1)
  [[ -n $newest ]] && installed "$newest$architecture" && { printf '%s\n' "$newest$architecture"; return 0; }
  for candidate in "$package" "$own"; do
    [[ -n $(apt-cache show "$candidate" 2>/dev/null) ]] && { printf '%s\n' "$candidate"; return 0; }
  done
  printf '%s\n' "${newest:+$newest$architecture}"
}

# Those of the packages that are not installed, one a line.
missing_packages() {
  local package
  for package in "$@"; do
    # A Python from elsewhere on the PATH serves as well, where it can run pip.
    [[ $package == python3-pip ]] && python3 -m pip --version >/dev/null 2>&1 && continue
    local name
    name=$(name_here "$package")
    [[ -n $name ]] && installed "$name" || printf '%s\n' "${name:-$package}"
  done
}

# Installs the packages that are missing: with apt as root or through sudo; else says what to type.
ensure_packages() {
  local listed missing
  command -v dpkg-query >/dev/null || { say "this script knows Debian's packages only; install by hand: ${packages[*]}"; return 1; }
  listed=$(missing_packages "${packages[@]}" "$@")
  [[ -n $listed ]] || return 0
  if as_root apt-get update -q >&2; then  # which may have told better names
    listed=$(missing_packages "${packages[@]}" "$@")
    mapfile -t missing <<<"$listed"
    say "installing: ${missing[*]}"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}" >&2 && return 0
  fi
  say "these packages are missing; as root, run:"
  say "  apt-get update && apt-get install -y --no-install-recommends ${listed//$'\n'/ }"
  return 1
}

# Runs a command as root: at once, or through sudo where that can be had.
as_root() {
  if ((EUID == 0)); then
    "$@"
  elif command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [[ -t 0 ]]; }; then
    sudo "$@"
  else
    return 1
  fi
}

models_folder() { printf '%s\n' "${ASSAY_MODELS:-${XDG_CACHE_HOME:-$HOME/.cache}/assay/models}"; }

# What every way to build, pack and bind assay must say of one small model: the likeliest next token and the digest of all logits.
digest_model=tests/data/goldens/tiny/llama.gguf digest_text='the sea, the sea' digest_wanted='234 3c103ac11e41e97e4fd7c19400454b0b'

# says_the_digest WHAT COMMAND...: ends the script where the command says anything else.
says_the_digest() {
  local what=$1 said
  shift
  said=$("$@") || { say "$what: failed: $*"; exit 1; }
  [[ $said == "$digest_wanted" ]] || { say "$what says '$said', expected '$digest_wanted'"; exit 1; }
  say "$what: $said"
}

# token_and_digest: of what `assay logits --top 1 --json` prints.
token_and_digest() { sed -E 's/.*"top":\[\[([0-9]+),.*"logits_digest":"([0-9a-f]{32})".*/\1 \2/'; }

# configure_and_build PRESET [cmake --build arguments]
configure_and_build() {
  local preset=$1 launcher=()
  shift
  command -v ccache >/dev/null && launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
  say "building preset $preset (the first time takes some minutes)"
  (cd "$root" && cmake --preset "$preset" "${launcher[@]}" >&2 && cmake --build --preset "$preset" "$@" >&2)
}
