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
# The image reads every storage and catalog. The constraint keeps both files at the same versions.
compile --all-extras -o deploy/requirements.lock "$@"
compile --group dev -c deploy/requirements.lock -o requirements.lock "$@"
