"""Name of a protocol in, its decoder out."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from applier.decode.avro import decoder as avro
from applier.decode.canal import decoder as canal_json
from applier.decode.debezium import avro_decoder, json_decoder
from applier.decode.decoder import Decoder
from applier.decode.open import decoder as open_protocol
from applier.decode.options import DecoderOptions
from applier.decode.simple import decoder as simple

BUILDERS: Mapping[str, Callable[[DecoderOptions], Decoder]] = {
    "simple": simple.build,
    "open": open_protocol.build,
    "canal-json": canal_json.build,
    "avro": avro.build,
    "debezium": json_decoder.build,
    "debezium-avro": avro_decoder.build,
}
"""Each protocol's `build`, by the name that `changefeed.protocol` of the configuration gives it."""


def build(protocol: str, options: DecoderOptions) -> Decoder:
    """A new decoder; every thread needs its own.

    Raises:
        KeyError: There is no such protocol. The configuration is checked before.
    """
    return BUILDERS[protocol](options)
