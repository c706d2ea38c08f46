"""Settings of a changefeed as one frozen value, from which every decoder is built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from applier.changefeed.message import MAX_MESSAGE_BYTES
from applier.decode.dump.csv_form import CsvForm

Compression: TypeAlias = Literal["none", "lz4", "snappy"]


@dataclass(frozen=True, slots=True)
class DecoderOptions:
    """What a decoder must know because the messages do not say it. Picklable: executors get it by value.

    Attributes:
        timezone: IANA zone of TIMESTAMP text in protocols that do not name it.
        compression: TiCDC's `large-message-handle-compression`; None detects it from the bytes.
        claim_check: TiCDC's `claim-check-storage-uri`: a folder or any fsspec address. None: claim checks are refused.
        registry: `RegistrySection` of the configuration; None for a protocol without a registry. Never printed.
        by_offset: The feed is applied in offset order, so a time too coarse for a commit ts may stand in for one.
        keys: Key columns by `database.table`, for Debezium rows without a Kafka key.
        nameless_zone: Zone of TIMESTAMP text that names a machine's, such as `Local`; "" where none is configured.
        is_stored: Messages are files of TiCDC's storage sink.
        asks_upstream: Rows that messages hold by their key alone are read from TiDB; else they are refused.
        csv: How files of the storage sink in CSV are written; None for TiCDC's defaults.
        csv_old_values: They have TiCDC's `output-old-value`.
        max_bytes: Size of a message beyond which it is refused: as it came, in the claim-check storage, decompressed.
    """

    timezone: str = "UTC"
    compression: Compression | None = None
    claim_check: str | None = None
    registry: Any = field(default=None, repr=False)
    by_offset: bool = False
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    nameless_zone: str = ""
    is_stored: bool = False
    max_bytes: int = MAX_MESSAGE_BYTES
    asks_upstream: bool = False
    csv: CsvForm | None = None
    csv_old_values: bool = False
