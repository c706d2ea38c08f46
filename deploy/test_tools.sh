#!/usr/bin/env bash
# Sees to what tests of the page and of alerts need, where it can be had; without it they are skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
. deploy/apt.sh

if ! { command -v chromium && command -v chromedriver; } >/dev/null; then
  apt_install chromium chromium-driver || echo "There is no Chromium, so the tests of the page are skipped." >&2
fi

# promtool alone: installed as a package, Prometheus would start as a service of this machine.
fetch_promtool() {
  local folder
  folder=$(mktemp -d)
  (cd "$folder" && apt-get download -q prometheus && dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x ./usr/bin/promtool) \
    >/dev/null 2>&1 && mv "$folder/usr/bin/promtool" .venv/bin/promtool
  local done=$?
  rm -rf "$folder"
  return "$done"
}

if ! { command -v promtool || [ -x .venv/bin/promtool ]; } >/dev/null; then
  fetch_promtool || echo "There is no promtool, so the tests of alerts are skipped." >&2
fi
