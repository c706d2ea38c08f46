#!/usr/bin/env bash
# Applies the recorded changefeed of this folder to Iceberg tables in ./lake and shows what came out.
set -euo pipefail
cd "$(dirname "$0")/../.."
bin=${APPLIER_BIN:-.venv/bin}

rm -rf lake
echo "Applying $(zcat examples/quickstart/topic/*.jsonl.gz | wc -l) recorded messages of five tables …"
"$bin/applier" run -c examples/quickstart/applier.toml --once
"$bin/python" examples/quickstart/show.py

# The recording is old: for a hundred years, its tables count as fresh.
"$bin/applier" status -c examples/quickstart/applier.toml --max-lag 3153600000 --page lake/page.html >/dev/null
echo "The page of this run, for a browser: file://$(pwd -P)/lake/page.html"
