# Functions that install packages of Debian and Ubuntu where this user may; to be sourced.

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; elif sudo -n true 2>/dev/null; then sudo -n "$@"; else return 1; fi
}

# apt_install PACKAGE...: true if the packages are installed afterwards; says nothing unless it fails half way
apt_install() {
  local log
  command -v apt-get >/dev/null && as_root true || return 1
  echo "Installing $* ..."
  log=$(mktemp)
  if as_root apt-get update -q >"$log" 2>&1 &&
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends "$@" >>"$log" 2>&1; then
    rm -f "$log"
  else
    tail -n 3 "$log" >&2
    rm -f "$log"
    return 1
  fi
}
