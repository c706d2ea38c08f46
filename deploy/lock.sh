#!/usr/bin/env bash
# Pins every package with its hashes: requirements.lock for developers and CI, deploy/requirements.lock for the image.
# Pass options of `uv pip compile`, e.g. --upgrade or --upgrade-package NAME.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v uv >/dev/null || { echo "make lock needs uv on the PATH." >&2; exit 2; }

compile() {
  uv pip compile pyproject.toml --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
    --no-emit-index-url --no-emit-find-links "$@" >/dev/null
}
compile --group dev -o requirements.lock "$@"
# The constraint keeps both files at the same versions.
compile -c requirements.lock -o deploy/requirements.lock "$@"
