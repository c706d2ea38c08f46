#!/usr/bin/env bash
# Sees to the Chromium of the tests of the page, where this user may install packages; without it they are skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! { command -v chromium && command -v chromedriver; } >/dev/null; then
  . deploy/apt.sh
  apt_install chromium chromium-driver || echo "There is no Chromium, so the tests of the page are skipped." >&2
fi
