"""Asks AWS Glue Schema Registry for schemas, by boto3; its schemas are the subjects, and its levels have other names.

Glue gives no verdict on a schema before it is registered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from applier.decode.registry.client import Compatibility, RegistrySchema, SubjectVersion, Unavailable, retrying
from applier.decode.registry.framing import GlueId
from applier.errors import ConfigError, RegistryDenied, RegistryError, SchemaUnknown, TransientError
from applier.runtime.stop_requests import STOPPING

if TYPE_CHECKING:
    from applier.config.registry import RegistrySection

_BUSY = ("Throttling", "TooManyRequests", "RequestLimitExceeded", "OperationTimeout", "InternalService")
"""How the codes of errors begin that another attempt may not meet."""

_DENIED = (
    *("AccessDenied", "ExpiredToken", "IncompleteSignature", "InvalidClientTokenId", "InvalidSignature"),
    *("MissingAuthenticationToken", "RequestExpired", "SignatureDoesNotMatch", "UnrecognizedClient"),
)

_DENIED_HINT = (
    "check access_key_id, secret_access_key and session_token under [registry], or AWS's own environment, and give the "
    "identity the rights glue:GetSchemaVersion, glue:GetSchema and glue:ListSchemas on the registry and its schemas."
)
_UNKNOWN_HINT = (
    "check region and registry_name under [registry]: they must be those of TiCDC's glue-schema-registry-config; else "
    "the schema was deleted."
)
_PLACE_HINT = "check region and endpoint under [registry], and the network."


class GlueRegistry:
    """A client, which is `registries.RegistryClient`. It connects at the first question. One per thread.

    Between two attempts it calls `sleep` with the seconds to wait.
    """

    def __init__(self, settings: RegistrySection, *, sleep: Callable[[float], None] = STOPPING.pause) -> None:
        self._settings = settings
        self._sleep = sleep

    def schema(self, schema_id: int) -> RegistrySchema:
        """The schema of an id."""
        return _schema(self._version_of(schema_id))

    def subjects(self) -> list[str]:
        """Names of all schemas of the registry."""
        names, more = list[str](), dict[str, Any]()
        while True:
            answer = self._ask("list_schemas", RegistryId={"RegistryName": self._settings.registry_name}, **more)
            names += [found["SchemaName"] for found in answer.get("Schemas", ())]
            if not answer.get("NextToken"):
                return names
            more = {"NextToken": answer["NextToken"]}

    def subjects_of(self, schema_id: int) -> list[str]:
        """Name of the schema that a version id is of; () where it is of another registry."""
        place = str(self._version_of(schema_id)["SchemaArn"]).partition(":schema/")[2]
        registry, _, name = place.partition("/")
        return [name] if registry == self._settings.registry_name else []

    def versions(self, subject: str) -> list[int]:
        """Version numbers of a schema, ascending, without deleted ones."""
        newest = int(self._ask("get_schema", SchemaId=self._named(subject))["LatestSchemaVersion"])
        return [number for number in range(1, newest + 1) if self._is_there(subject, number)]

    def version(self, subject: str, version: int) -> SubjectVersion:
        """One version of a schema."""
        number = {"VersionNumber": version}
        answer = self._ask("get_schema_version", SchemaId=self._named(subject), SchemaVersionNumber=number)
        return SubjectVersion(GlueId(answer["SchemaVersionId"].replace("-", ""), 16), _schema(answer))

    def compatibility_level(self, subject: str) -> str:
        """Level of a schema, in Confluent's words; `NONE` for one to come, as TiCDC makes it."""
        try:
            level = str(self._ask("get_schema", SchemaId=self._named(subject))["Compatibility"])
        except SchemaUnknown:
            return "NONE"
        return level.replace("_ALL", "_TRANSITIVE")

    def mode(self, subject: str) -> str:
        """`READONLY` at level `DISABLED`, which takes no new version, else `READWRITE`."""
        return "READONLY" if self.compatibility_level(subject) == "DISABLED" else "READWRITE"

    def check(self, subject: str, text: str, version: int) -> Compatibility:  # noqa: ARG002 - level NONE takes all
        """May this schema follow? Raises RegistryError at all levels but NONE: Glue does not answer."""
        level = self.compatibility_level(subject)
        if level == "NONE":
            return Compatibility(is_compatible=True)
        what = f"AWS Glue shows only at the registration of a schema whether it fits level {level} of schema {subject}."
        raise RegistryError(what, self.way_to_none(subject))

    def way_to_none(self, subject: str) -> str:
        """How a schema takes every version."""
        place = f"RegistryName={self._settings.registry_name},SchemaName={subject}"
        return (
            f"Set the level of schema {subject} to NONE, as TiCDC makes its schemas: `aws glue update-schema "
            f"--schema-id {place} --schema-version-number LatestVersion=true --compatibility NONE`."
        )

    way_to_write = way_to_none

    def _is_there(self, subject: str, number: int) -> bool:
        try:
            return bool(self.version(subject, number))
        except SchemaUnknown:
            return False

    def _version_of(self, schema_id: int) -> Mapping[str, Any]:
        return self._ask("get_schema_version", SchemaVersionId=str(GlueId(schema_id)))

    def _named(self, subject: str) -> dict[str, Any]:
        return {"RegistryName": self._settings.registry_name, "SchemaName": subject}

    @cached_property
    def _glue(self) -> Any:
        try:
            import boto3  # noqa: PLC0415 - an optional package
            from botocore.config import Config  # noqa: PLC0415
        except ImportError:
            what = '[registry] type = "glue" needs the package boto3, which is not installed.'
            raise ConfigError([f"{what} Install it: pip install 'applier[glue]'."]) from None
        settings, seconds = self._settings, self._settings.timeout_seconds
        # The attempts are made here: boto3 would sleep through a request to stop.
        config = Config(connect_timeout=seconds, read_timeout=seconds, retries={"total_max_attempts": 1})
        return boto3.session.Session().client(
            "glue",
            region_name=settings.region,
            endpoint_url=settings.endpoint,
            aws_access_key_id=settings.access_key_id,
            aws_secret_access_key=settings.secret_access_key,
            aws_session_token=settings.session_token,
            config=config,
        )

    def _ask(self, operation: str, **arguments: Any) -> dict[str, Any]:
        """The answer of an operation.

        Raises:
            RegistryError: Glue refuses it, or does not know what was asked for.
            TransientError: It could not be reached, or is busy.
            ConfigError: boto3 is not installed.
        """
        try:
            answer: dict[str, Any] = retrying(self._settings, self._sleep)(self._once, operation, arguments)
        except Unavailable as down:
            place, attempts = self._settings.region, self._settings.attempts
            what = f"AWS Glue Schema Registry in {place} could not be reached in {attempts} attempts: {down}."
            raise TransientError(what, _PLACE_HINT) from down
        return answer

    def _once(self, operation: str, arguments: Mapping[str, Any]) -> Any:
        glue = self._glue
        from botocore import exceptions  # noqa: PLC0415 - it is there now

        try:
            return getattr(glue, operation)(**arguments)
        except exceptions.ClientError as error:
            raise self._refusal(error.response) from error
        except (
            exceptions.NoCredentialsError,
            exceptions.PartialCredentialsError,
            exceptions.CredentialRetrievalError,
        ) as error:
            what = "AWS Glue Schema Registry cannot be asked: there are no keys."
            raise RegistryDenied(what, _DENIED_HINT) from error
        except exceptions.SSLError as error:
            what = f"The certificate of AWS Glue Schema Registry in {self._settings.region} is not accepted."
            raise RegistryError(what, "name its authority's PEM file in AWS_CA_BUNDLE, in the environment.") from error
        except (exceptions.ConnectionError, exceptions.HTTPClientError) as error:
            raise Unavailable(f"it gives {type(error).__name__}") from error
        except exceptions.BotoCoreError as error:
            what = f"AWS Glue Schema Registry cannot be asked: {type(error).__name__}."
            raise RegistryError(what, "check [registry] and AWS's environment, such as AWS_PROFILE.") from error

    def _refusal(self, response: Mapping[str, Any]) -> Exception:
        error, status = response.get("Error", {}), response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        code, text = str(error.get("Code", "")), " ".join(str(error.get("Message", "")).split())[:300].rstrip(".")
        if code.startswith(_BUSY) or status == 429 or status >= 500:
            return Unavailable(f"it answers {code or status}")
        what = f"AWS Glue Schema Registry in {self._settings.region} answers {code or status}: {text or 'no message'}."
        if code.startswith(_DENIED) or status in (401, 403):
            return RegistryDenied(what, _DENIED_HINT)
        if code == "EntityNotFoundException":
            return SchemaUnknown(what, _UNKNOWN_HINT)
        return RegistryError(what, _UNKNOWN_HINT)


def _schema(answer: Mapping[str, Any]) -> RegistrySchema:
    return RegistrySchema(
        answer["SchemaDefinition"], str(answer.get("DataFormat", "AVRO")), (), answer["VersionNumber"]
    )
