"""The section `[upstream.csv]` of the configuration: how the CSV files of a Dumpling export are written."""

from __future__ import annotations

from typing import Literal

from applier.config.section import Section
from applier.config.zones import Zone


class CsvSection(Section):
    """Options that Dumpling had; what is left out is its default. Files that do not fit them are refused."""

    separator: str | None = None
    """`--csv-separator`, by default `,`."""
    delimiter: str | None = None
    """`--csv-delimiter`, by default `"`. With an empty one, `null_value` and `backslash_escapes` are needed."""
    null_value: str | None = None
    """`--csv-null-value`, by default `\\N`."""
    header: bool | None = None
    """False with `--no-header`, by default true. Needed where all columns hold text and nothing shows it."""
    backslash_escapes: bool | None = None
    """False with `--escape-backslash=false`, by default true; of SQL files as well. Needed where another one of these
    keys is not Dumpling's default and text holds a backslash."""
    timezone: Zone = "UTC"
    """IANA zone of TIMESTAMP values in CSV and SQL files, which no file shows: that of the TiDB server,
    unless Dumpling had `--params 'time_zone=+00:00'`."""
    binary: Literal["raw", "hex", "base64"] | None = None
    """How binary columns are written: `hex` with `--csv-output-dialect` snowflake or redshift, `base64` with bigquery,
    otherwise `raw`. Needed where all values look like hex or base64."""
