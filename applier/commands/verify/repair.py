"""Loads tables that differ once more from TiDB, and hands them over to the feed as every load does."""

from __future__ import annotations

from applier.changefeed.filter import exactly
from applier.commands.control_reader import newest_checkpoint
from applier.commands.load.command import LoadOutcome, load
from applier.commands.tables.command import Say
from applier.commands.verify.against import TIDB
from applier.commands.verify.report import VerifyReport
from applier.config.settings import Config
from applier.errors import ConfigError


def refuse_unrepairable(config: Config, against: str) -> None:
    """Refuse, by ConfigError, a comparison with what no load without a folder can read."""
    if config.upstream.login is None or against not in ("", TIDB):
        raise ConfigError(["--repair reads rows from TiDB: set upstream.url, and compare with it (--against tidb)."])


def repaired(config: Config, report: VerifyReport, say: Say) -> LoadOutcome | None:
    """Load each table that differs as of the moment that was compared, as `applier load --again` does; None for none.

    They are whole tables: what made some rows differ may have made others that no checkpoint shows yet. Raises as
    `load`.
    """
    shown, last = {table.table for table in report.tables if table.state == "different"}, newest_checkpoint(config)
    differing = [name for name in last.tables if str(name) in shown] if last else []
    return load(config, None, exactly(differing), say, at=report.resolved_ts, again=True) if differing else None
