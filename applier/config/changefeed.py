"""The section `[changefeed]` of the configuration: which changefeed, and how TiCDC writes it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from applier.config.protocols import PROTOCOLS, ProtocolName, ProtocolTraits


class ChangefeedSection(BaseModel):
    """Which changefeed, and how TiCDC writes it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[
        str,
        Field(
            pattern=r"^[A-Za-z0-9_-]+$", description="Names the changefeed and the control namespace applier_<name>."
        ),
    ]
    protocol: Annotated[ProtocolName, Field(description="TiCDC's `protocol` of the sink.")]
    order: Annotated[
        Literal["resolved", "offset"],
        Field(description="`offset` for feeds that carry no watermark: the last offset of a key wins."),
    ] = "resolved"
    start: Annotated[
        Literal["beginning", "midstream"],
        Field(
            description="Simple: the feed starts with CREATE TABLE, or in the middle, where tables that a BOOTSTRAP "
            "message alone describes are created as well."
        ),
    ] = "beginning"
    partitions: Annotated[
        int | None, Field(ge=1, description="Partitions that TiCDC uses, where the topic has more. Default: all.")
    ] = None
    compression: Annotated[
        Literal["none", "lz4", "snappy"] | None,
        Field(description="`large-message-handle-compression`; detected from the bytes when absent."),
    ] = None
    claim_check: Annotated[
        str | None, Field(description="`claim-check-storage-uri`: a folder or any fsspec address.")
    ] = None
    timezone: Annotated[str, Field(description="IANA zone of the changefeed, for protocols that do not say it.")] = (
        "UTC"
    )
    session_timezone: Annotated[
        str | None,
        Field(
            description="IANA zone of the upstream sessions that run DDL, in which DDL text writes TIMESTAMP defaults. "
            "When absent: UTC if `timezone` is UTC, else unknown."
        ),
    ] = None
    filtered: Annotated[
        bool,
        Field(
            description="The feed leaves out deletes or updates (TiCDC's event filters), so that an INSERT may find a "
            "row of its key: every key is looked up. Tables written meanwhile remember it."
        ),
    ] = False
    on_bad_message: Annotated[
        Literal["stop", "dead_letter"],
        Field(
            description="A message that cannot be decoded stops the job, or is kept in `dead_letters` and passed. One "
            "that certainly belongs to one table counts as an error of that table unless it is kept."
        ),
    ] = "stop"
    on_table_error: Annotated[
        Literal["park", "stop"],
        Field(
            description="What concerns one table alone (a refused DDL, a value that does not fit, an Iceberg table "
            "that others changed) parks that table at its last true snapshot while all others go on; or it stops the "
            "job."
        ),
    ] = "park"

    @property
    def traits(self) -> ProtocolTraits:
        """What distinguishes the protocol."""
        return PROTOCOLS[self.protocol]

    @property
    def session_zone(self) -> str | None:
        """IANA zone of TIMESTAMP defaults; None where the configuration does not name it.

        Simple carries them in UTC. All other protocols carry the text of the statement, in the zone of its session,
        which need not be that of the TiCDC server.
        """
        if self.traits.utc_defaults:
            return "UTC"
        is_utc = self.timezone in ("UTC", "Etc/UTC")
        return self.session_timezone or ("UTC" if is_utc else None)
