"""Name of a protocol in, its decoder out."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from applier.decode.avro import decoder as avro
from applier.decode.canal.decoder import CanalJsonDecoder
from applier.decode.debezium import avro_decoder
from applier.decode.debezium.json_decoder import DebeziumDecoder
from applier.decode.decoder import Decoder
from applier.decode.open.decoder import OpenDecoder
from applier.decode.options import DecoderOptions
from applier.decode.simple.decoder import SimpleDecoder

BUILDERS: Mapping[str, Callable[[DecoderOptions], Decoder]] = {
    "simple": SimpleDecoder,
    "open": OpenDecoder,
    "canal-json": CanalJsonDecoder,
    "avro": avro.build,
    "debezium": DebeziumDecoder,
    "debezium-avro": avro_decoder.build,
}
"""What makes each protocol's decoder, by the name that `changefeed.protocol` of the configuration gives it."""


def build(protocol: str, options: DecoderOptions) -> Decoder:
    """A new decoder; every thread needs its own.

    Raises:
        KeyError: There is no such protocol. The configuration is checked before.
    """
    return BUILDERS[protocol](options)
