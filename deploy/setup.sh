#!/usr/bin/env bash
# Makes .venv from requirements.lock, installs applier into it, and sees to Java, the jars and an archive of classes.
# Run it as often as you like: what is there already is left alone.
#   PYTHON=python3.12   use this Python instead of the first fitting one
set -euo pipefail
cd "$(dirname "$0")/.."

. deploy/apt.sh

fits() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

# make_venv: .venv from the first Python >= 3.11 that can make one
make_venv() {
  local python
  for python in ${PYTHON:-python3.11 python3.12 python3.13 python3}; do
    if fits "$python" && "$python" -m venv --clear .venv >/dev/null 2>&1; then return 0; fi
  done
  return 1
}

# how_far: what pip prints, as one row of a terminal that says which package it is at; nothing where nobody watches
how_far() {
  local line number=0 all
  all=$(grep -c '^[a-z].*==' requirements.lock)
  if [ ! -t 1 ] || [ "${TERM:-dumb}" = dumb ]; then cat >/dev/null; return; fi
  while IFS= read -r line; do
    case $line in
      Collecting*) number=$((number + 1)); line=${line#Collecting }; line="package $number of $all: ${line%% *}" ;;
      *Downloading*MB*) line="package $number of $all: downloading ${line##*Downloading }" ;;
      Installing*) line="unpacking $all packages, which takes a minute" ;;
      *) continue ;;
    esac
    printf '\r\033[K%.79s' "$line"
  done
  printf '\r\033[K'
}

if ! fits .venv/bin/python; then
  make_venv || { [ -z "${PYTHON:-}" ] && apt_install python3 python3-venv && make_venv; } || {
    echo "applier needs Python 3.11 or newer with its venv module; install python3.11-venv or set PYTHON to one." >&2
    exit 2
  }
fi

if ! cmp -s requirements.lock .venv/requirements.lock; then
  echo "Installing the pinned packages into .venv ..."
  pip=(.venv/bin/python -m pip --disable-pip-version-check --no-input)
  "${pip[@]}" install --progress-bar off --require-hashes -r requirements.lock | how_far
  "${pip[@]}" --quiet install --no-build-isolation --no-deps -e .
  cp requirements.lock .venv/requirements.lock
else
  touch .venv/requirements.lock
fi

if ! .venv/bin/python -m applier.runtime.jvm.java_home >/dev/null 2>&1; then
  apt_install openjdk-17-jre-headless || apt_install openjdk-21-jre-headless || true
  .venv/bin/python -m applier.runtime.jvm.java_home >/dev/null
fi
.venv/bin/python -m applier.runtime.jvm.jars
echo "Archiving the classes of Spark, which makes every start faster ..."
.venv/bin/python -m applier.commands.cds_training || true
echo "Ready: .venv/bin/applier"
