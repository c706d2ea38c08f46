"""Where the schema registry is and how to log in; picklable, and nothing secret is printed."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple
from urllib.parse import unquote, urlsplit, urlunsplit

from pydantic import ConfigDict, Field, field_validator, model_validator

from applier.config.section import Section, refuse
from applier.config.watch import is_address


class Endpoint(NamedTuple):
    """One address of the registry, without credentials, query and trailing slash, so that it is safe to print.

    User name and password are for basic authentication; None to send none.
    """

    url: str
    username: str | None
    password: str


_KEYS = {
    "confluent": ("url", "username", "password", "bearer_token", "ca", "client_cert", "client_key"),
    "glue": ("region", "registry_name", "endpoint", "access_key_id", "secret_access_key", "session_token"),
}
_NEEDED = {"confluent": ("url",), "glue": ("region", "registry_name")}


class RegistrySection(Section):
    """The schema registry of Avro feeds: one that speaks Confluent's interface, or AWS Glue Schema Registry."""

    model_config = ConfigDict(hide_input_in_errors=True)

    type: Literal["confluent", "glue"] = "confluent"
    """What TiCDC registers its schemas with: `confluent`, also for another registry that speaks its interface; or
    `glue`, AWS Glue Schema Registry (`pip install 'applier[glue]'`)."""
    region: str | None = None
    """`glue`, needed: region of AWS, as in TiCDC's `glue-schema-registry-config`."""
    registry_name: str | None = None
    """`glue`, needed: name of the registry, as in TiCDC's `registry-name`."""
    endpoint: str | None = None
    """`glue`: address in place of AWS's own, such as that of a VPC endpoint."""
    access_key_id: str | None = None
    """`glue`: key of AWS; without it boto3 finds keys in the environment, a profile or the role of the machine."""
    secret_access_key: Annotated[str | None, Field(repr=False)] = None
    """`glue`: secret of `access_key_id`; write it as `${NAME}`."""
    session_token: Annotated[str | None, Field(repr=False)] = None
    """`glue`: token that belongs to keys that expire; write it as `${NAME}`."""
    url: Annotated[str | None, Field(repr=False)] = None
    """`confluent`, needed: address of the registry, `https://host:port`; several, separated by commas, are asked in
    turn when one fails."""
    username: str | None = None
    """User name for basic authentication; addresses may have their own, `https://user:password@host`."""
    password: Annotated[str | None, Field(repr=False)] = None
    """Password of `username`; write it as `${NAME}`."""
    bearer_token: Annotated[str | None, Field(repr=False)] = None
    """Token that is sent instead of user and password; write it as `${NAME}`."""
    ca: str | None = None
    """PEM file of the certificate authority, where the registry's certificate is of a private one."""
    client_cert: str | None = None
    """PEM file of the client certificate, where the registry asks for one; it may hold the key as well."""
    client_key: str | None = None
    """PEM file of the key of `client_cert`, where that file does not hold it."""
    timeout_seconds: Annotated[float, Field(gt=0, le=300)] = 10.0
    """Longest wait for a connection, and for an answer; both together are bounded."""
    attempts: Annotated[int, Field(ge=1, le=100)] = 5
    """Rounds over all addresses before an outage is logged; `run` goes on to ask."""

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """Addresses of one registry, asked in turn when one of them fails."""
        return tuple(_endpoint(text.strip(), self) for text in (self.url or "").split(",") if text.strip())

    @property
    def certificate(self) -> str | tuple[str, str] | None:
        """PEM file with certificate and key, or one file for each."""
        return (self.client_cert, self.client_key) if self.client_cert and self.client_key else self.client_cert

    @property
    def _misplaced(self) -> dict[str, str]:
        """Keys that the type lacks, or that are of the other."""
        own, other = ("glue", "confluent") if self.type == "glue" else ("confluent", "glue")
        found = {key: f'is for type = "{other}"' for key in _KEYS[other] if getattr(self, key) is not None}
        lacking = [key for key in _NEEDED[own] if not getattr(self, key)]
        return found | dict.fromkeys(lacking, f'is needed with type = "{own}"' if own == "glue" else "missing")

    @field_validator("endpoint")
    @classmethod
    def _check_endpoint(cls, endpoint: str) -> str:
        if not is_address(endpoint):
            msg = "an address must look like https://host:port"
            raise ValueError(msg)
        return endpoint

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: str) -> str:
        texts = [text.strip() for text in url.split(",") if text.strip()]
        if not texts:
            msg = "names no address"
            raise ValueError(msg)
        if not all(map(is_address, texts)):
            # The text itself is not shown: it may hold a password.
            msg = "an address must look like https://host:port, user and password URL-encoded"
            raise ValueError(msg)
        return url

    @model_validator(mode="after")
    def _check(self) -> RegistrySection:
        refuse(self._misplaced)
        wrong = {
            "a bearer token and a user name exclude each other": self.bearer_token is not None
            and any(endpoint.username is not None for endpoint in self.endpoints),
            "password is set without username": self.password is not None and self.username is None,
            "client_key is set without client_cert": self.client_key is not None and self.client_cert is None,
            "access_key_id and secret_access_key go together": (self.access_key_id is None)
            != (self.secret_access_key is None),
            "session_token is set without access_key_id": self.session_token is not None and self.access_key_id is None,
        }
        if problems := [problem for problem, is_there in wrong.items() if is_there]:
            raise ValueError("; ".join(problems))
        return self


def _endpoint(text: str, section: RegistrySection) -> Endpoint:
    parts = urlsplit(text)
    host = parts.netloc.rpartition("@")[2]
    bare = urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
    if parts.username is None:
        return Endpoint(bare, section.username, section.password or "")
    return Endpoint(bare, unquote(parts.username), unquote(parts.password or ""))
