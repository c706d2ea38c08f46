"""The section `[upstream.csv]` of the configuration: how the CSV files of a Dumpling export are written."""

from __future__ import annotations

from typing import Literal

from applier.config.section import Section
from applier.config.zones import Zone


class CsvSection(Section):
    """Options that Dumpling had for its CSV files. What is left out is taken from the files, which show most of it."""

    separator: str | None = None
    """`--csv-separator`."""
    delimiter: str | None = None
    """`--csv-delimiter`; an empty one where text has none."""
    null_value: str | None = None
    """`--csv-null-value`. Where text has no delimiter, text that equals it is read as NULL."""
    header: bool | None = None
    """False with `--no-header`."""
    backslash_escapes: bool | None = None
    """`--escape-backslash`, which is on by default; of SQL files as well. Set it to false after
    `--escape-backslash=false`, where the first rows do not show that."""
    timezone: Zone = "UTC"
    """IANA zone of TIMESTAMP values in CSV and SQL files, which no file shows: that of the TiDB server,
    unless Dumpling had `--params 'time_zone=+00:00'`."""
    binary: Literal["raw", "hex", "base64"] | None = None
    """How binary columns are written: `hex` with `--csv-output-dialect` snowflake or redshift, `base64` with bigquery,
    otherwise `raw`. Needed where all values look like hex or base64."""
