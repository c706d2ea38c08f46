"""The decoder of each protocol."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from importlib import import_module

from applier.changefeed.table import TableName
from applier.decode.decoder import ClaimReader, Decoder
from applier.decode.options import DecoderOptions
from applier.decode.storage.decoder import StoredLines

MAKERS: Mapping[str, tuple[str, str]] = {
    "simple": ("simple.decoder", "SimpleDecoder"),
    "open": ("open.decoder", "OpenDecoder"),
    "canal-json": ("canal.decoder", "CanalJsonDecoder"),
    "avro": ("avro.decoder", "build"),
    "debezium": ("debezium.json_decoder", "DebeziumDecoder"),
    "debezium-avro": ("debezium.avro_decoder", "build"),
    "csv": ("storage.csv_decoder", "StoredCsv"),
}
"""What makes each protocol's decoder, by the name that `changefeed.protocol` of the configuration gives it.

Only one is imported: the clients of the registry take longer than all else that a worker starts with.
"""


def build(protocol: str, options: DecoderOptions) -> Decoder:
    """A new decoder.

    Raises:
        KeyError: There is no such protocol. The configuration is checked before.
    """
    module, name = MAKERS[protocol]
    maker: Callable[[DecoderOptions], Decoder] = getattr(import_module(f"applier.decode.{module}"), name)
    return StoredLines(maker(options)) if options.is_stored and protocol != "csv" else maker(options)


_OF_THREAD = threading.local()


def decoder_of_thread(protocol: str, options: DecoderOptions) -> Decoder:
    """The decoder of this thread, at the beginning of a pass; a new one where the thread had one for another feed.

    It reads no claim-check file until it is told which rows are wanted.
    """
    of, decoder = getattr(_OF_THREAD, "kept", (None, None))
    if decoder is None or of != (protocol, options):
        decoder = build(protocol, options)
        _OF_THREAD.kept = (protocol, options), decoder
    decoder.restart()
    if isinstance(decoder, ClaimReader):
        decoder.large.wants = _wants_none
    return decoder


def _wants_none(_name: TableName, _commit_ts: int) -> bool:
    return False
