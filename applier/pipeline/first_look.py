"""Looks at topic, rights, protocol, catalog and warehouse before a new changefeed writes anything."""

from __future__ import annotations

import re
from pathlib import Path

from applier import wording
from applier.changefeed.message import rows_of
from applier.changefeed.window import Window
from applier.config.settings import CatalogSection, Config
from applier.consume.source import Source
from applier.consume.window_size import WindowTooLargeError
from applier.decode.decoder import Decoder
from applier.errors import DecodeError, TerminalError, TransientError
from applier.sink.control.tables import namespace
from applier.sink.format.storage import is_empty, is_local, local_path, refuse_unwritable

_MESSAGES = 20
"""First messages of a partition that are looked at: one that is broken does not make the protocol a wrong one."""

_HINT = "check changefeed.protocol and the topics under [source]; nothing was written."


def look_first(source: Source, decoder: Decoder, protocol: str, catalog: CatalogSection) -> None:
    """Refuse what cannot be followed. An empty topic is fine: TiCDC has written nothing to it yet.

    The decoder is used for nothing else.

    Raises:
        SourceLost: There is no such topic.
        OutsideRefused: The topic may not be read, or the warehouse may not be written.
        DecodeError: None of the first messages is of the protocol.
        TransientError: The source does not answer.
    """
    window = Window({place: span for place, span in source.bounds().items() if len(span)}).head(_MESSAGES)
    if window.ranges:
        _refuse_other(source, window, decoder, protocol)
    warehouse = catalog.properties.get("warehouse", "")
    # Other catalogs may call a warehouse by a name.
    if catalog.type in {"jdbc", "hadoop"} and warehouse and is_local(warehouse):
        refuse_unwritable(Path(local_path(warehouse)))


def _refuse_other(source: Source, window: Window, decoder: Decoder, protocol: str) -> None:
    """Raise the first error if not one of the messages is of the protocol."""
    first: DecodeError | None = None
    try:
        messages = rows_of(source.collect(window))
    except WindowTooLargeError:
        return  # The first step reads shorter windows, and refuses one of nothing but bad messages, too.
    for message in messages:
        try:
            decoder.decode(message["key"], message["value"])
        except TransientError:
            return
        except DecodeError as error:
            # What is of a kind of its own, or knows its table, was read so far that it is of the protocol.
            if error.tables or type(error) is not DecodeError:
                return
            first = first or error.at(message["topic"], message["partition"], message["offset"], protocol)
        else:
            return
    if first is not None:
        raise DecodeError(first.what, f"{first.hint} {_HINT}".lstrip())


def new_lake(config: Config) -> str:
    """That a changefeed begins, and where, as a sentence: a lake that was moved or lost looks like a new one."""
    warehouse = config.catalog.properties.get("warehouse", "")
    return wording.new_lake(config.changefeed.name, place(config.catalog), warehouse)


def place(section: CatalogSection) -> str:
    """Where a catalog is, for people, without a log-in."""
    if (file := section.sqlite_file) is not None:
        return str(file.absolute())
    uri = section.properties.get("uri", "")
    return re.sub(r"//[^/@]*@", "//", uri.partition("?")[0]) or f"catalog {section.name}"


def lost_catalog(config: Config) -> TerminalError | None:
    """Why a catalog without any namespace is not that of its warehouse; None where nothing shows it."""
    section, name = config.catalog, config.changefeed.name
    warehouse = section.properties.get("warehouse", "")
    folder = f"{warehouse.rstrip('/')}/{namespace(name)}"
    if "/" not in warehouse or is_empty(folder, section.properties):
        return None
    return TerminalError(wording.lost_catalog(name, place(section), folder), wording.WAY_TO_THE_CATALOG)
