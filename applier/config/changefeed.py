"""The section `[changefeed]` of the configuration: which changefeed, and how TiCDC writes it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from applier.config.protocols import PROTOCOLS, ProtocolName, ProtocolTraits
from applier.config.section import Section, Zone


class ChangefeedSection(Section):
    """Which changefeed, and how TiCDC writes it."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")]
    """Names the changefeed and the control namespace applier_<name>."""
    protocol: ProtocolName
    """TiCDC's `protocol` of the sink."""
    order: Literal["resolved", "offset"] = "resolved"
    """`offset` for feeds that carry no watermark: the last offset of a key wins."""
    start: Literal["beginning", "midstream"] = "beginning"
    """`midstream`: tables that existed were loaded, so they count as complete; Simple also creates tables from
    BOOTSTRAP messages."""
    partitions: Annotated[int | None, Field(ge=1)] = None
    """Partitions that TiCDC uses, where the topic has more. Default: all."""
    compression: Literal["none", "lz4", "snappy"] | None = None
    """`large-message-handle-compression`; detected from the bytes when absent."""
    claim_check: str | None = None
    """`claim-check-storage-uri`: a folder or any fsspec address."""
    timezone: Zone = "UTC"
    """IANA zone of the changefeed, for protocols that do not say it; Simple that names it `Local` needs this key."""
    session_timezone: Zone | None = None
    """IANA zone of the upstream sessions that run DDL, in which DDL text writes TIMESTAMP defaults. When absent: UTC if
    `timezone` is UTC, else unknown."""
    filtered: bool = False
    """The feed leaves out deletes or updates (TiCDC's event filters), so that an INSERT may find a row of its key:
    every key is looked up. Tables written meanwhile remember it."""
    on_bad_message: Literal["stop", "dead_letter"] = "stop"
    """A message that cannot be decoded stops the job, or is kept in `dead_letters` and passed. One that certainly
    belongs to one table counts as an error of that table unless it is kept."""
    on_table_error: Literal["park", "stop"] = "park"
    """What concerns one table alone (a refused DDL, a value that does not fit, an Iceberg table that others changed)
    parks that table at its last true snapshot while all others go on; or it stops the job."""

    @property
    def traits(self) -> ProtocolTraits:
        """What distinguishes the protocol."""
        return PROTOCOLS[self.protocol]

    @property
    def named_zone(self) -> str:
        """`timezone` as the configuration names it; "" where it does not, and UTC would be a guess."""
        return self.timezone if "timezone" in self.model_fields_set else ""

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
