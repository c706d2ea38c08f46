"""The section `[upstream.csv]` of the configuration: how the CSV files of a Dumpling export are written."""

from __future__ import annotations

from typing import Literal

from applier.config.section import Section
from applier.config.zones import Zone


class CsvSection(Section):
    """Options that Dumpling had; what is left out is its default. Files that do not fit them are refused."""

    separator: str = ","
    """`--csv-separator`."""
    delimiter: str = '"'
    """`--csv-delimiter`. With an empty one, `null_value` is needed."""
    null_value: str = "\\N"
    """`--csv-null-value`."""
    header: bool = True
    """False with `--no-header`."""
    backslash_escapes: bool = True
    """False with `--escape-backslash=false`; of SQL files as well."""
    timezone: Zone = "UTC"
    """IANA zone of TIMESTAMP values in CSV and SQL files, which no file shows: that of the TiDB server,
    unless Dumpling had `--params 'time_zone=+00:00'`."""
    binary: Literal["raw", "hex", "base64"] | None = None
    """How binary columns are written: `hex` with `--csv-output-dialect` snowflake or redshift, `base64` with bigquery,
    otherwise `raw`, the default. Needed where all values look like hex or base64."""
