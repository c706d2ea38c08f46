"""Failures of outside systems: a table that decides by exception class and error code whether a retry can help.

A text is never asked: it may be the answer of a server, which may speak of its own failures in the same words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from applier.errors import OutsideRefused
from applier.runtime.storage_keys import KEYS

System = Literal["java", "tls", "kafka", "jdbc", "rest", "storage", "spark", "opening"]

CATALOG: tuple[System, ...] = ("java", "tls", "jdbc", "rest", "storage", "spark")
"""Systems that a call into Iceberg's library may meet."""

OPENING: tuple[System, ...] = ("opening", *CATALOG)
"""The same for its first call, which shows whether the addresses are right."""

KAFKA: tuple[System, ...] = ("java", "kafka", "tls")
"""Systems that a call of Kafka's clients may meet."""

SPARK: tuple[System, ...] = ("java", "tls", "spark", "storage", "kafka")
"""Systems that a job of Spark may meet."""

_MISSING = "a class or a package is missing: see the jars of deploy/README.md, spark.jars, and make setup."
DRIVER = (
    'put the jar of the JDBC driver of this database on this machine, and its path into "spark.jars" under [spark].'
)
_RIGHTS = "check the log-in and the rights that the configuration gives for it."
_NAMED = "asking again gives the same answer: check what the configuration names."
_CERTIFICATE = "check the certificates: which authority the client trusts, and which host the server's is made for."
_DATES = "the server's certificate is out of its dates: renew it there, or set the clock of this machine."
_TRUST = (
    "check the server's certificate: kafka.ssl.truststore.* must hold the authority that issued it, and "
    "kafka.bootstrap.servers a host that it is made for."
)
_CLIENT = (
    "the broker ended the TLS handshake: check kafka.ssl.keystore.*, which must hold a certificate that is valid today "
    "and of an authority that the broker trusts, with its key; then kafka.ssl.enabled.protocols."
)
_READ = "give this user the right Read on the topic, which includes Describe; no other right is needed."
_NO_SASL = "this listener takes no log-in by SASL: write SSL or PLAINTEXT to kafka.security.protocol."
_NO_TLS = "the server does not speak TLS there: check http, https and sslmode in the addresses of [catalog]."
_OPTIONS = "check the kafka.* options under [source.kafka]: names, files, passwords and the log-in."
_EXPIRED = "the keys of the storage have expired, or it does not know them"
_KEYS = (
    "[catalog] does not open with these keys: correct the one that the sentence speaks of; docs/configuration.md lists "
    "those that each type needs."
)
_SCHEME = (
    "check the scheme of catalog.warehouse and catalog.io-impl: "
    "s3:// needs S3FileIO, gs:// GCSFileIO, abfss:// ADLSFileIO."
)
_UNRENEWED = (
    "write a new token to [catalog], as nothing renews it; or, in its place, credential and oauth2-server-uri, with "
    "which a run gets new ones."
)
_NOWHERE = (
    "there is no REST catalog, or no OAuth2 server, at that address: correct uri and oauth2-server-uri in [catalog]; "
    "without the latter, tokens come from v1/oauth/tokens below uri."
)

_BUNDLE = (
    'give Spark the jar that is missing, as "spark.jars" or "spark.jars.packages" under [spark]: of a storage '
    "org.apache.iceberg:iceberg-gcp-bundle for gs://, iceberg-azure-bundle for abfss:// (docs/storage.md); or correct "
    "the class that [catalog] names."
)
_REGION = 'set the region of AWS as "client.region" under [catalog], or in the environment variable AWS_REGION.'

_RENEWED = (
    "AWS ExpiredToken",
    "AWS TokenRefreshRequired",
    "AWS RequestExpired",
    "AWS InvalidAccessKeyId",
    "AWS UnrecognizedClient",
)
"""Codes of a storage that does not take the keys any more: such a failure may pass where something renews them."""

_UNNAMED = "AWS 403"
"""The answer to a HEAD, which has no code: vended keys that have expired get it as well."""

_AGAIN = ""
"""The failure may pass, so the call is made again."""

_CODES: dict[System, dict[str, str]] = {
    "java": {
        _MISSING: """
            ClassNotFoundException, NoClassDefFoundError, NoSuchMethodError, UnsupportedClassVersionError,
            UnsatisfiedLinkError, ServiceConfigurationError, PySparkImportError, ImportError, ModuleNotFoundError,
            PACKAGE_NOT_INSTALLED
        """,
        _AGAIN: """
            ConnectException, SocketException, SocketTimeoutException, UnknownHostException, NoRouteToHostException,
            EOFException, InterruptedIOException
        """,
    },
    "tls": {
        _CERTIFICATE: """
            SunCertPathBuilderException, ValidatorException, CertPathValidatorException, CertificateException,
            SSLPeerUnverifiedException
        """,
        _DATES: "CertificateExpiredException, CertificateNotYetValidException",
    },
    "kafka": {
        _RIGHTS: """
            SaslAuthenticationException, AuthenticationException, GroupAuthorizationException,
            ClusterAuthorizationException, AuthorizationException
        """,
        _NO_SASL: "IllegalSaslStateException",
        _READ: "TopicAuthorizationException",
        _OPTIONS: """
            ConfigException, InvalidConfigurationException, IllegalArgumentException, LoginException,
            UnsupportedSaslMechanismException, KeyStoreException,
            UnrecoverableKeyException, InvalidKeyException, InvalidKeySpecException, NoSuchAlgorithmException,
            NoSuchFileException, FileNotFoundException, AccessDeniedException, InvalidTopicException,
            UnsupportedVersionException
        """,
        _TRUST: """
            SunCertPathBuilderException, ValidatorException, CertPathValidatorException, CertificateException,
            SSLPeerUnverifiedException
        """,
        # A certificate of the server that is refused is a cause beneath these; an alert of the broker has none.
        _CLIENT: "SslAuthenticationException",
        _AGAIN: """
            TimeoutException, DisconnectException, NotLeaderOrFollowerException, LeaderNotAvailableException,
            CoordinatorNotAvailableException
        """,
    },
    "jdbc": {
        # java.sql.DriverManager itself; drivers raise classes of their own with this SQLState.
        DRIVER: "SQLException 08001",
        _RIGHTS: "SQLSTATE 28, SQLSTATE 42501, SQLITE_READONLY, SQLITE_PERM, SQLITE_AUTH",
        _NAMED: "SQLSTATE 42, SQLSTATE 3D, SQLITE_NOTADB, SQLITE_CORRUPT",
        _AGAIN: """
            SQLSTATE 08, SQLSTATE 25006, SQLSTATE 40, SQLSTATE 53, SQLSTATE 55, SQLSTATE 57, SQLITE_BUSY,
            SQLITE_LOCKED, SQLITE_FULL, SQLITE_IOERR, SQLITE_CANTOPEN
        """,
    },
    "rest": {
        _RIGHTS: """
            NotAuthorizedException, ForbiddenException, NessieNotAuthorizedException, NessieForbiddenException,
            HTTP 401, HTTP 403
        """,
        _NAMED: "BadRequestException, UnsupportedFormatVersion, NoSuchWarehouseException, HTTP 400, HTTP 405",
        _NOWHERE: "HTTP 404",
        _AGAIN: "ServiceFailureException, ServiceUnavailableException, CommitStateUnknownException",
    },
    "storage": {
        _RIGHTS: """
            AccessControlException, AccessDeniedException, AuthorizationException, AWS AccessDenied,
            AWS SignatureDoesNotMatch, AWS InvalidSignature, AWS 401, AWS 403
        """,
        _NAMED: """
            NoSuchBucketException, AWS NoSuchBucket, AWS PermanentRedirect, AWS AuthorizationHeaderMalformed,
            ParentNotDirectoryException
        """,
        _EXPIRED: ", ".join(_RENEWED),
        _AGAIN: "AWS 5, AWS 429, AWS SlowDown",
        _SCHEME: "UnsupportedFileSystemException",
    },
    "spark": {
        _MISSING: "DATA_SOURCE_NOT_FOUND",
        _NAMED: "AnalysisException, ExtendedAnalysisException, ParseException",
    },
    "opening": {
        _NO_TLS: "SSLException, SQLSTATE 08004",
        _NAMED: "FileNotFoundException, NoSuchNamespaceException",
        # Later ones may be about a table. Hadoop wraps a host that does not resolve in one, which the deepest decides.
        _KEYS: "IllegalArgumentException, NumberFormatException, URISyntaxException, ValidationException",
        # The clients of AWS are built and not asked yet; a network that fails is a cause beneath it.
        _REGION: "SdkClientException",
        # Iceberg finds no constructor where a class of the storage is missing that it mentions.
        _BUNDLE: "NoClassDefFoundError, ClassNotFoundException, NoSuchMethodException",
    },
}
"""Per system and hint, the classes and codes, between commas; `_AGAIN` for a failure that may pass."""

TABLE: dict[System, dict[str, str]] = {
    system: {code.strip(): hint for hint, codes in hints.items() for code in codes.split(",")}
    for system, hints in _CODES.items()
}
"""Per system what a class or a code means: the hint of a failure that comes again, or "" for one that may pass.

A code ends with anything: `SQLITE_READONLY` also stands for `SQLITE_READONLY_DIRECTORY`. What is not here may pass."""

_LONGEST_CHAIN = 10
_SHOWN = 4
_TEXT = 300
_SECRET = re.compile(
    r"(?i)(password|passwd|pwd|secret|token|credential|access.?key\S*?)(\s*[=:]\s*)(\"[^\"]*\"?|'[^']*'?|[^\s&;,]+)"
)
_SECRET_KEY = re.compile(r"(?i)password|secret|token|jaas\.config$|ssl\.keystore\.key")
_JAAS_WORDS = frozenset(("required", "requisite", "sufficient", "optional", "username", "password"))
_CLASS = re.compile(r"(?:\w+\.)+[A-Z]\w*")
_SHORTEST_SECRET = 4
"""A shorter part would be cut out of words that hold it by chance."""

_WORDED = {"NoSuchFileException": "there is no file ", "AccessDeniedException": "there are no rights on "}
"""What stands before the path of a file, which is all that these say."""

_KINDS = re.compile(r"(?m)(?:^|[\s(])(?:[\w$]+\.)*([A-Z]\w*(?:Exception|Error))(?=: )")
"""How Spark shows, in the report of a failed job, which exceptions its tasks met."""

_TRACE = re.compile(r"(?s)\s*(?:Traceback \(most recent call last\):|\n\s*at |\nDriver stacktrace:).*")
"""What an exception says of places in code, and of a task's Python, whose last line may hold a row."""

_HTTP = re.compile(r"Unable to process \(code: (\d{3}),")
"""How Iceberg's client begins what it says of an answer of an OAuth2 server that has another form than errors have."""

_USER_INFO = re.compile(r"://[^/@\s]*@")


@dataclass(frozen=True, slots=True)
class Cause:
    """An exception of a chain: its simple class name, its code, and what it says, without credentials.

    The code is SQLState, SQLite's result code, the code in an answer of AWS, the status of one over HTTP, or Spark's
    error condition; else "".
    """

    kind: str
    code: str = ""
    text: str = ""


def causes(throwable: Any, options: Mapping[str, str] = MappingProxyType({})) -> tuple[Cause, ...]:
    """A `java.lang.Throwable`, as py4j shows it, and its causes, the deepest last; without secrets of these options."""
    found: list[Cause] = []
    while throwable is not None and len(found) < _LONGEST_CHAIN:
        kind = str(throwable.getClass().getSimpleName())
        text = redacted(without_secrets(_TRACE.sub("", str(throwable.getMessage() or "")), options))
        found.append(Cause(kind, _code(kind, throwable), text))
        throwable = throwable.getCause()
    return tuple(found)


def chain_of(error: Exception, options: Mapping[str, str] = MappingProxyType({})) -> tuple[Cause, ...]:
    """An exception of py4j or PySpark, and the Java exception that it stands for.

    What it says holds no secret of `options`: Kafka repeats parts of what it cannot read.
    """
    origin = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    condition = getattr(error, "getCondition", None)
    code = str((condition() if condition is not None else None) or "")
    own = Cause(type(error).__name__, code, redacted(without_secrets(str(error).strip().partition("\n")[0], options)))
    chain = (own,) if origin is None else (*((own,) if code else ()), *causes(origin, options))
    if origin is None or any(cause.kind == "SparkException" for cause in chain):
        # The tasks of a job are elsewhere: Spark's report alone names what they met, where it is no cause of its own.
        known = {cause.kind for cause in chain}
        return (*chain, *(Cause(kind) for kind in _KINDS.findall(str(error)) if kind not in known))
    return chain


def told(chain: Sequence[Cause]) -> str:
    """What a chain says: its first sentence and the deepest ones, each once; class names where there are none."""
    texts = list(dict.fromkeys(cause.text or cause.kind for cause in chain))
    # Java puts the text of a cause behind its class name where a wrapper says nothing of its own.
    texts = [text for at, text in enumerate(texts) if not any(text.endswith(later) for later in texts[at + 1 :])]
    if len(texts) > _SHOWN:
        texts = [texts[0], *texts[1 - _SHOWN :]]
    paths = {it.text: _WORDED[it.kind] + it.text for it in chain if it.kind in _WORDED and it.text.startswith("/")}
    return "; caused by: ".join(paths.get(text, text) for text in texts)


def refusal(action: str, chain: Sequence[Cause], systems: Iterable[System]) -> OutsideRefused | None:
    """The error for a failure that would come again; None where a retry can help.

    The deepest exception that the table names decides: those above it only pass it on. The action is a sentence without
    a full stop; the systems are those that the call may have met.
    """
    wanted = tuple(systems)
    for cause in reversed(chain):
        hint = _hint(cause, wanted)
        if hint is not None:
            what = f"{action}: {told(chain)}"
            if cause.code.startswith(_RENEWED) or (KEYS.are_vended and cause.code == _UNNAMED):
                if cause.kind == "GlueException":
                    # Its client takes no keys of [catalog]: whatever gave them renews them.
                    return None
                KEYS.refusals += 1
                return expired(what)
            if cause.kind == "NotAuthorizedException":
                # The first call logs in: what is refused then is no token that was good before.
                if KEYS.is_token_renewed and "opening" not in wanted:
                    KEYS.refused_tokens += 1
                    return None
                hint = _UNRENEWED if KEYS.is_token_given else hint
            return OutsideRefused(what, hint) if hint else None
    return None


def expired(what: str) -> OutsideRefused | None:
    """The error for keys that a storage does not take any more; None where they are renewed without a person."""
    return OutsideRefused(what, f"{_EXPIRED}: {KEYS.way_out}") if KEYS.given else None


def redacted(text: str) -> str:
    """The text without what looks like a credential, cut to a length that fits a log line."""
    return _USER_INFO.sub("://", _SECRET.sub(r"\1\2***", text))[:_TEXT]


def without_secrets(text: str, options: Mapping[str, str]) -> str:
    """What a system says, without the values of those of its options that hold secrets."""
    for key, value in options.items():
        if not _SECRET_KEY.search(key):
            continue
        parts = [part for part in re.split(r"[\s\"'=;]+", value) if part]
        if key.endswith("jaas.config") and parts and _CLASS.fullmatch(parts[0]):
            parts = [part for part in parts[1:] if part not in _JAAS_WORDS]
        for part in parts:
            if len(part) >= _SHORTEST_SECRET:
                text = text.replace(part, "***")
    return text


def _hint(cause: Cause, systems: Sequence[System]) -> str | None:
    """What the table says of one exception; None where it does not name it. A code says more than a class."""
    for system in systems:
        entries = TABLE[system]
        exact = f"{cause.kind} {cause.code}"
        if exact in entries:
            return entries[exact]
        prefixes = [entry for entry in entries if cause.code and cause.code.startswith(entry)]
        if prefixes:
            return entries[max(prefixes, key=len)]
    return next((TABLE[system][cause.kind] for system in systems if cause.kind in TABLE[system]), None)


def _code(kind: str, throwable: Any) -> str:
    try:
        if kind == "SQLiteException":
            return str(throwable.getResultCode().name())
        if "SQL" in kind:
            state = str(throwable.getSQLState() or "")
            return state if kind == "SQLException" and state == "08001" else f"SQLSTATE {state}"
        if kind in {"S3Exception", "AwsServiceException", "GlueException", "StsException"}:
            details = throwable.awsErrorDetails()
            code = details.errorCode() if details is not None else None
            return f"AWS {code or throwable.statusCode()}"
        if kind == "RESTException":
            answer = _HTTP.match(str(throwable.getMessage()))
            return f"HTTP {answer[1]}" if answer else ""
        if kind.endswith("AnalysisException"):
            return str(throwable.getCondition() or "")
    except Exception:  # noqa: BLE001 - an exception without such a method has no code
        return ""
    return ""
