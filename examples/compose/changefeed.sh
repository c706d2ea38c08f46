#!/bin/sh
# Creates the changefeed of the database shop, once TiCDC answers, and leaves one that is there alone.
set -eu
server=http://ticdc:8300
sink='kafka://kafka:9092/shop?protocol=simple&partition-num=3&replication-factor=1'

until /cdc cli capture list --server="$server" >/dev/null 2>&1; do sleep 2; done
if /cdc cli changefeed query --server="$server" --changefeed-id=shop >/dev/null 2>&1; then exit 0; fi
until /cdc cli changefeed create --server="$server" --changefeed-id=shop --sink-uri="$sink" \
  --config=/setup/changefeed.toml --no-confirm; do sleep 2; done
