#!/usr/bin/env bash
# Applies the recorded changefeed of this folder to Iceberg tables in ./lake and shows what came out. The name of a folder
# in examples/shapes gives the tables that shape.
set -euo pipefail
cd "$(dirname "$0")/../.."
bin=${APPLIER_BIN:-.venv/bin}
shape=${1:-}
config=examples/${shape:+shapes/}${shape:-quickstart}/applier.toml
if [ ! -f "$config" ]; then
  echo "There is no $config: SHAPE is one of $(cd examples/shapes && echo *)." >&2
  exit 2
fi
# A key for this demo alone: your own is a secret.
export MASK_KEY=${MASK_KEY:-the demo has no secrets}

rm -rf lake
echo "Applying $(zcat examples/quickstart/topic/*.jsonl.gz | wc -l) recorded messages of five tables …"
# Nobody reads events in a file between these lines; on a terminal, each step is a line.
level=warning
if [ -t 2 ]; then level=info; fi
"$bin/applier" run -c "$config" --once --log-level "$level"
"$bin/python" examples/quickstart/show.py "$shape"

"$bin/applier" status -c "$config" --page lake/page.html >/dev/null
echo "The page of this run, for a browser: file://$(pwd -P)/lake/page.html"
