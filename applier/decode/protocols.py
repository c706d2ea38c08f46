"""Name of a protocol in, its decoder out."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from applier.decode import avro, canal_json, debezium, debezium_avro, open_protocol, simple
from applier.decode.decoder import Decoder
from applier.decode.options import DecoderOptions

BUILDERS: Mapping[str, Callable[[DecoderOptions], Decoder]] = {
    "simple": simple.build,
    "open": open_protocol.build,
    "canal-json": canal_json.build,
    "avro": avro.build,
    "debezium": debezium.build,
    "debezium-avro": debezium_avro.build,
}
"""Each protocol's `build`, by the name that `changefeed.protocol` of the configuration gives it."""


def build(protocol: str, options: DecoderOptions) -> Decoder:
    """A new decoder; every thread needs its own.

    Raises:
        KeyError: There is no such protocol. The configuration is checked before.
    """
    return BUILDERS[protocol](options)
