"""The section `[traces]` of the configuration: where the running process sends spans of its steps."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator

from applier.config.webhook import SecretHeaders, is_address


class TracesSection(BaseModel):
    """Traces of the steps, sent to an OpenTelemetry collector; see [traces](output.md#traces)."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, hide_input_in_errors=True)

    endpoint: str | None = None
    """Whole address for OTLP over HTTP, such as `http://collector:4318/v1/traces`. Default: no trace is made."""
    headers: SecretHeaders = {}
    """Further headers of the request, such as `Authorization`."""
    sample: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Share of the steps that are traced."""

    @field_validator("endpoint")
    @classmethod
    def _check(cls, endpoint: str | None) -> str | None:
        if endpoint is None:
            return None
        if not is_address(endpoint):
            msg = "must look like http://collector:4318/v1/traces"
            raise ValueError(msg)
        if urlsplit(endpoint).username is not None:
            msg = "must hold no password: give it in traces.headers"
            raise ValueError(msg)
        return endpoint
