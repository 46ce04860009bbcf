# Debian releases in folders, for the scripts that try assay where nothing of this machine helps. Sourced after lib.sh; debootstrap and chroot need root.

need_root() { ((EUID == 0)) || { say "debootstrap and chroot need root: sudo $0 $*"; exit 1; }; }

# debian_root RELEASE FOLDER: the smallest system of that release; a folder that is there and whole is taken as it is.
debian_root() {
  [[ -e $2/ready ]] && return 0
  (packages=(debootstrap) && ensure_packages)
  say "making a Debian ($1) in $2"
  rm -rf "$2"
  debootstrap --variant=minbase --include=ca-certificates "$1" "$2" >"$2.log" 2>&1 || { tail -n 20 "$2.log" >&2; return 1; }
  chroot "$2" apt-get update -q >&2
  touch "$2/ready"
}

# inside FOLDER COMMANDS [ARGUMENTS]: bash runs the commands there, with an environment of its own.
inside() {
  chroot "$1" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive bash -euo pipefail -c "$2" inside "${@:3}"
}

# send_sources FOLDER: the files of this tree that git knows or would take, and of the tests' data one small model.
send_sources() {
  rm -rf "$1"
  mkdir -p "$1"
  (cd "$root" && { git ls-files -z --cached --others --exclude-standard -- . ':!tests/data' && printf '%s\0' "$digest_model"; } |
    tar --null -T - -cf - --ignore-failed-read) | tar -C "$1" -xf - --no-same-owner
}

# debian_libc RELEASE FOLDER: the C library of that release, to link against.
debian_libc() {
  [[ -e $2/ready ]] && return 0
  (packages=(debootstrap) && ensure_packages)
  say "fetching the C library of Debian ($1) into $2"
  rm -rf "$2"
  debootstrap --foreign --variant=minbase --include=libc6-dev "$1" "$2" >"$2.log" 2>&1 || { tail -n 20 "$2.log" >&2; return 1; }
  local package
  for package in "$2"/var/cache/apt/archives/{libc6,libc6-dev,libcrypt1,libcrypt-dev,linux-libc-dev}_*.deb; do dpkg-deb -x "$package" "$2"; done
  local link  # absolute links would lead to this machine's own library
  while read -r link; do ln -sfn --relative "$2$(readlink "$link")" "$link"; done < <(find "$2"/lib* "$2/usr/lib" -lname '/*')
  touch "$2/ready"
}
