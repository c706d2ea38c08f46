#!/usr/bin/env bash
# Applies the recorded changefeed of this folder to Iceberg tables in ./lake and shows what came out.
set -euo pipefail
cd "$(dirname "$0")/../.."
bin=${APPLIER_BIN:-.venv/bin}

rm -rf lake
echo "Applying $(zcat examples/quickstart/topic/*.jsonl.gz | wc -l) recorded messages of five tables …"
# Nobody reads events in a file between these lines; on a terminal, each step is a line.
level=warning
if [ -t 2 ]; then level=info; fi
"$bin/applier" run -c examples/quickstart/applier.toml --once --log-level "$level"
"$bin/python" examples/quickstart/show.py

"$bin/applier" status -c examples/quickstart/applier.toml --page lake/page.html >/dev/null
echo "The page of this run, for a browser: file://$(pwd -P)/lake/page.html"
