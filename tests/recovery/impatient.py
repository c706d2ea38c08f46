"""`applier`, which waits for no outside system: its first failure is the last one, and an alert is sent at once."""

from __future__ import annotations

from applier import cli
from applier.runtime import retry
from applier.watch import webhook

if __name__ == "__main__":
    retry.OUTAGE_SECONDS = 0.0
    webhook.START_SECONDS = webhook.HOLD_SECONDS = 0.0
    # A slow machine must not decide whether the last alert is sent.
    webhook._END_SECONDS = 60.0
    cli.main()
