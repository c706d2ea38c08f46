#!/usr/bin/env bash
# Applies the recorded changefeed of this folder to Iceberg tables in ./lake and shows what came out.
set -euo pipefail
cd "$(dirname "$0")/../.."
bin=${APPLIER_BIN:-.venv/bin}

rm -rf lake
echo "Applying $(zcat examples/quickstart/topic/*.jsonl.gz | wc -l) recorded messages of five tables …"
"$bin/applier" run -c examples/quickstart/applier.toml --once
"$bin/python" examples/quickstart/show.py
