# Shared by the scripts here: what must be installed, and where models are kept. Sourced, not run.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# Debian 12 packages: compilers and tools, then the libraries of cmake/AssayDependencies.cmake.
packages=(g++ cmake ninja-build pkg-config python3 python3-pip ca-certificates
          libboost-json1.81-dev libpcre2-dev libutf8proc-dev libxxhash-dev libfmt-dev libcli11-dev libedit-dev libgtest-dev libgmock-dev)

say() { printf '%s\n' "$*" >&2; }

installed() { dpkg-query -W -f '${Status}' "$1" 2>/dev/null | grep -q '^install ok installed$'; }

# Installs the packages that are missing: with apt as root or through sudo; else says what to type.
ensure_packages() {
  local missing=() package
  command -v dpkg-query >/dev/null || { say "this script knows Debian's packages only; install by hand: ${packages[*]}"; return 1; }
  for package in "${packages[@]}" "$@"; do
    # A Python from elsewhere on the PATH serves as well, where it can run pip.
    [[ $package == python3-pip ]] && python3 -m pip --version >/dev/null 2>&1 && continue
    installed "$package" || missing+=("$package")
  done
  ((${#missing[@]})) || return 0
  local apt=(apt-get install -y --no-install-recommends "${missing[@]}")
  say "installing: ${missing[*]}"
  if ! as_root env DEBIAN_FRONTEND=noninteractive sh -c 'apt-get update -q && "$@" -q' apt "${apt[@]}" >&2; then
    say "these packages are missing; as root, run:"
    say "  apt-get update && ${apt[*]}"
    return 1
  fi
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

# configure_and_build PRESET [cmake --build arguments]
configure_and_build() {
  local preset=$1 launcher=()
  shift
  command -v ccache >/dev/null && launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
  say "building preset $preset (the first time takes some minutes)"
  (cd "$root" && cmake --preset "$preset" "${launcher[@]}" >&2 && cmake --build --preset "$preset" "$@" >&2)
}
