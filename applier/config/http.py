"""The section `[http]` of the configuration: what the running process shows of itself, and to whom."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr, model_validator

from applier.config.section import Section, refuse


class HttpSection(Section):
    """The page of the running process, its health, and its metrics."""

    port: Annotated[int | None, Field(ge=1, le=65535)] = None
    """Port of the page `/`, of `/metrics`, `/status.json`, `/healthz` and `/readyz`. Default: nothing is served."""
    address: str = "127.0.0.1"
    """Address to listen on; `0.0.0.0` in a container. Any but a loopback address needs a token."""
    token: SecretStr | None = None
    """What a client must show for all but `/healthz` and `/readyz`: as bearer token, or as the password that a browser
    asks for."""
    certificate: Path | None = None
    """File (PEM) with the certificate for TLS, and those that lead to its authority. Default: plain HTTP."""
    key: Path | None = None
    """File (PEM) with the private key of the certificate."""
    max_lag_seconds: Annotated[float, Field(gt=0)] = 300.0
    """Lag from which on the tables are stale: the page says so, and `/readyz` answers 503."""
    stuck_seconds: Annotated[float, Field(ge=60)] = 1800.0
    """Time without any progress, of Spark's tasks neither, after which `/healthz` answers 503."""

    @model_validator(mode="after")
    def _check(self) -> HttpSection:
        problems = {}
        if (self.certificate is None) != (self.key is None):
            problems["certificate"] = "certificate and key are needed together"
        if self.token is not None and not self.token.get_secret_value():
            problems["token"] = "token is empty, so anybody could show it"  # noqa: S105 - a sentence
        if self.token is None and not self.is_loopback:
            problems["address"] = (
                f"address {self.address} lets others in, and the page shows names and DDL of your database: "
                'set token = "${APPLIER_HTTP_TOKEN}", or listen on 127.0.0.1'
            )
        refuse(problems)
        return self

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the address."""
        try:
            return self.address == "localhost" or ipaddress.ip_address(self.address).is_loopback
        except ValueError:
            return False
