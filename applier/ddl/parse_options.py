"""Parses the options of a table; only the comment and the charset matter."""

from __future__ import annotations

from dataclasses import dataclass

from applier.ddl.parse_types import read_charset, read_collation
from applier.ddl.tokens import NAME, NUMBER, STRING, WORD, Tokens

_VALUED = (
    *("DATA DIRECTORY", "INDEX DIRECTORY", "PLACEMENT POLICY", "FORCE AUTO_INCREMENT", "FORCE AUTO_RANDOM_BASE"),
    *"""
    AFFINITY AUTOEXTEND_SIZE AUTO_ID_CACHE AUTO_INCREMENT AUTO_RANDOM_BASE AVG_ROW_LENGTH CHECKSUM COMPRESSION
    CONNECTION DELAY_KEY_WRITE ENCRYPTION ENGINE ENGINE_ATTRIBUTE INSERT_METHOD KEY_BLOCK_SIZE MAX_ROWS MIN_ROWS
    NODEGROUP PACK_KEYS PAGE_CHECKSUM PAGE_COMPRESSED PAGE_COMPRESSION_LEVEL PASSWORD PRE_SPLIT_REGIONS ROW_FORMAT
    SECONDARY_ENGINE SECONDARY_ENGINE_ATTRIBUTE SHARD_ROW_ID_BITS STATS_AUTO_RECALC STATS_BUCKETS STATS_COL_CHOICE
    STATS_COL_LIST STATS_PERSISTENT STATS_SAMPLE_PAGES STATS_SAMPLE_RATE STATS_TOPN STORAGE TABLESPACE
    TABLE_CHECKSUM TRANSACTIONAL TTL_ENABLE TTL_JOB_INTERVAL TYPE
    """.split(),  # noqa: SIM905 - a list of literals, one a line, would fill a screen
)
"""Options with one word, number or string as value."""


@dataclass(slots=True)
class Options:
    """Options of a table or database: default charset in lower case, comment, and whether there were any `others`."""

    charset: str = ""
    comment: str | None = None
    others: bool = False


def read_options(tokens: Tokens, *, commas: bool = False) -> Options:
    """Take the options that come next; `commas` may part them, which in ALTER TABLE begin the next specification."""
    found = Options()
    while _option(tokens, found):
        if commas and tokens.skip(",") and tokens.done:
            raise tokens.unreadable("an option is missing")
    return found


def _option(tokens: Tokens, found: Options) -> bool:
    """Take one option; False if none comes next."""
    if tokens.skip("COMMENT"):
        found.comment = tokens.value("a string", STRING)
        return True
    if tokens.ahead(1 if tokens.at("DEFAULT") else 0).is_("COLLATE", "CHARACTER", "CHARSET"):
        _charset(tokens, found)
    elif tokens.skip("UNION"):
        tokens.skip("=")
        tokens.group()
    elif tokens.skip("TTL"):
        _ttl(tokens)
    elif tokens.skip(*_VALUED):
        tokens.value("the value of an option", WORD, NAME, STRING, NUMBER)
    else:
        return False
    found.others = True
    return True


def _charset(tokens: Tokens, found: Options) -> None:
    tokens.skip("DEFAULT")
    if tokens.at("COLLATE"):
        collated = read_collation(tokens)
        found.charset = found.charset or collated
    else:
        found.charset = read_charset(tokens)


def _ttl(tokens: Tokens) -> None:
    """TTL = column + INTERVAL value unit."""
    tokens.skip("=")
    tokens.column_name()
    tokens.expect("+ INTERVAL")
    tokens.take_of("an interval", NUMBER, STRING)
    tokens.take_of("a unit of time", WORD)
