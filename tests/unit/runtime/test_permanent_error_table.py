"""Which failures of outside systems come again: each entry of the table, by class and code."""

from __future__ import annotations

from typing import Any

import pytest

from applier.runtime.permanent_errors import (
    CATALOG,
    KAFKA,
    OPENING,
    SPARK,
    TABLE,
    Cause,
    System,
    causes,
    chain_of,
    redacted,
    refusal,
    told,
    without_secrets,
)
from applier.runtime.storage_keys import KEYS

RIGHTS = "check the log-in and the rights"
MISSING = "a class or a package is missing"
DRIVER = 'put the jar of the JDBC driver of this database on this machine, and its path into "spark.jars"'
NO_TLS = "the server does not speak TLS there"
NAMED = "asking again gives the same answer"
CERTIFICATE = "check the certificates"
DATES = "the server's certificate is out of its dates"
TRUST = "check the server's certificate: kafka.ssl.truststore.*"
CLIENT = "the broker ended the TLS handshake: check kafka.ssl.keystore.*"
READ = "give this user the right Read on the topic"
NO_SASL = "this listener takes no log-in by SASL"
OPTIONS = "check the kafka.* options"
EXPIRED = "the keys of the storage have expired, or it does not know them: renew s3.access-key-id of [catalog]"
KEYS_OF_CATALOG = "[catalog] does not open with these keys"
BUNDLE = "give Spark the jar that is missing"
REGION = 'set the region of AWS as "client.region" under [catalog]'
SCHEME = "check the scheme of catalog.warehouse"
NOWHERE = "there is no REST catalog, or no OAuth2 server, at that address: correct uri and oauth2-server-uri"

LASTING: dict[tuple[System, str], list[str]] = {
    ("java", MISSING): [
        "ClassNotFoundException", "NoClassDefFoundError", "NoSuchMethodError", "UnsupportedClassVersionError",
        "UnsatisfiedLinkError", "ServiceConfigurationError", "PySparkImportError", "ImportError",
        "ModuleNotFoundError", "PACKAGE_NOT_INSTALLED",
    ],
    ("tls", CERTIFICATE): [
        "SunCertPathBuilderException", "ValidatorException", "CertPathValidatorException", "CertificateException",
        "SSLPeerUnverifiedException",
    ],
    ("tls", DATES): ["CertificateExpiredException", "CertificateNotYetValidException"],
    ("kafka", RIGHTS): [
        "SaslAuthenticationException", "AuthenticationException", "GroupAuthorizationException",
        "ClusterAuthorizationException", "AuthorizationException",
    ],
    ("kafka", READ): ["TopicAuthorizationException"],
    ("kafka", NO_SASL): ["IllegalSaslStateException"],
    ("kafka", OPTIONS): [
        "ConfigException", "InvalidConfigurationException", "IllegalArgumentException", "LoginException",
        "UnsupportedSaslMechanismException", "KeyStoreException",
        "UnrecoverableKeyException", "InvalidKeyException", "InvalidKeySpecException", "NoSuchAlgorithmException",
        "NoSuchFileException", "FileNotFoundException", "AccessDeniedException", "InvalidTopicException",
        "UnsupportedVersionException",
    ],
    ("kafka", TRUST): [
        "SunCertPathBuilderException", "ValidatorException", "CertPathValidatorException", "CertificateException",
        "SSLPeerUnverifiedException",
    ],
    ("kafka", CLIENT): ["SslAuthenticationException"],
    ("jdbc", DRIVER): ["SQLException 08001"],
    ("jdbc", RIGHTS): ["SQLSTATE 28", "SQLSTATE 42501", "SQLITE_READONLY", "SQLITE_PERM", "SQLITE_AUTH"],
    ("jdbc", NAMED): ["SQLSTATE 42", "SQLSTATE 3D", "SQLITE_NOTADB", "SQLITE_CORRUPT"],
    ("rest", RIGHTS): [
        "NotAuthorizedException", "ForbiddenException", "NessieNotAuthorizedException", "NessieForbiddenException",
        "HTTP 401", "HTTP 403",
    ],
    ("rest", NAMED): [
        "BadRequestException", "UnsupportedFormatVersion", "NoSuchWarehouseException", "HTTP 400", "HTTP 405",
    ],
    ("rest", NOWHERE): ["HTTP 404"],
    ("opening", NO_TLS): ["SSLException", "SQLSTATE 08004"],
    ("opening", NAMED): ["FileNotFoundException", "NoSuchNamespaceException"],
    ("opening", KEYS_OF_CATALOG): [
        "IllegalArgumentException", "NumberFormatException", "URISyntaxException", "ValidationException",
    ],
    ("opening", BUNDLE): ["NoClassDefFoundError", "ClassNotFoundException", "NoSuchMethodException"],
    ("opening", REGION): ["SdkClientException"],
    ("storage", RIGHTS): [
        "AccessControlException", "AccessDeniedException", "AuthorizationException", "AWS AccessDenied",
        "AWS SignatureDoesNotMatch", "AWS InvalidSignature", "AWS 401", "AWS 403",
    ],
    ("storage", NAMED): [
        "NoSuchBucketException", "AWS NoSuchBucket", "AWS PermanentRedirect", "AWS AuthorizationHeaderMalformed",
        "ParentNotDirectoryException",
    ],
    ("storage", EXPIRED): [
        "AWS ExpiredToken", "AWS TokenRefreshRequired", "AWS RequestExpired", "AWS InvalidAccessKeyId",
        "AWS UnrecognizedClient",
    ],
    ("storage", SCHEME): ["UnsupportedFileSystemException"],
    ("spark", MISSING): ["DATA_SOURCE_NOT_FOUND"],
    ("spark", NAMED): ["AnalysisException", "ExtendedAnalysisException", "ParseException"],
}  # fmt: skip
"""What comes again, by system and hint, as the pages of these systems describe it."""

PASSING: dict[System, list[str]] = {
    "java": [
        "ConnectException", "SocketException", "SocketTimeoutException", "UnknownHostException",
        "NoRouteToHostException", "EOFException", "InterruptedIOException",
    ],
    "tls": [],
    "kafka": [
        "TimeoutException", "DisconnectException", "NotLeaderOrFollowerException", "LeaderNotAvailableException",
        "CoordinatorNotAvailableException",
    ],
    "jdbc": [
        "SQLSTATE 08", "SQLSTATE 25006", "SQLSTATE 40", "SQLSTATE 53", "SQLSTATE 55", "SQLSTATE 57", "SQLITE_BUSY",
        "SQLITE_LOCKED", "SQLITE_FULL", "SQLITE_IOERR", "SQLITE_CANTOPEN",
    ],
    "rest": ["ServiceFailureException", "ServiceUnavailableException", "CommitStateUnknownException"],
    "storage": ["AWS 5", "AWS 429", "AWS SlowDown"],
    "spark": [],
    "opening": [],
}  # fmt: skip
"""What may pass."""


def cause(entry: str) -> Cause:
    """An exception that an entry of the table stands for."""
    if entry == "SQLException 08001":
        return Cause("SQLException", "08001", "No suitable driver")
    is_code = entry.startswith(("SQL", "AWS", "DATA_", "PACKAGE_", "HTTP "))
    return Cause("SomeException", f"{entry}99", "said") if is_code else Cause(entry, "", "said")


@pytest.mark.parametrize(
    ("system", "entry", "hint"),
    [(system, entry, hint) for (system, hint), entries in LASTING.items() for entry in entries],
)
def test_a_failure_that_comes_again_is_refused_at_once(
    system: System, entry: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A class or a code decides, under whatever wrappers, and the sentence holds what the deepest exception says."""
    monkeypatch.setattr(KEYS, "given", ("s3.access-key-id",))
    found = refusal("Cannot do it", [Cause("WrappedException", "", "outer"), cause(entry)], (system,))

    assert found is not None
    assert found.what == f"Cannot do it: outer; caused by: {cause(entry).text}"
    assert found.hint.startswith(hint)


@pytest.mark.parametrize("entry", LASTING["storage", EXPIRED])
def test_keys_that_the_configuration_does_not_give_are_asked_with_again(
    entry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What gave them renews them; only a person renews those of the configuration."""
    monkeypatch.setattr(KEYS, "given", ())

    assert refusal("Cannot do it", [cause(entry)], ("storage",)) is None


def test_the_keys_of_glue_are_never_those_of_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its client takes none of it: to name those of the files would send a user to keys that are well."""
    monkeypatch.setattr(KEYS, "given", ("s3.access-key-id",))

    for code in ("AWS ExpiredTokenException", "AWS UnrecognizedClientException"):
        assert refusal("Cannot do it", [Cause("GlueException", code, "said")], CATALOG) is None


@pytest.mark.parametrize(
    ("system", "entry"), [(system, entry) for system, entries in PASSING.items() for entry in entries]
)
def test_an_outage_is_asked_again(system: System, entry: str) -> None:
    """Locks, time-outs, overload and lost connections pass, also under a class that alone would come again."""
    assert refusal("Cannot do it", [Cause("ConfigException"), cause(entry)], (system, "kafka")) is None


def test_each_entry_of_the_table_has_a_test() -> None:
    """An entry without a case above would be decided by nobody."""
    tested = {system: set(entries) for system, entries in PASSING.items()}
    for (system, _), entries in LASTING.items():
        tested[system] |= set(entries)

    assert tested == {system: set(entries) for system, entries in TABLE.items()}


@pytest.mark.parametrize("systems", [CATALOG, KAFKA, SPARK])
def test_an_unknown_class_is_asked_again(systems: tuple[System, ...]) -> None:
    """What the table does not name may pass, within the limit."""
    assert refusal("Cannot do it", [Cause("NeverSeenException", "", "said")], systems) is None


@pytest.mark.parametrize(
    ("chain", "hint"),
    [
        (
            [
                Cause(
                    "IllegalArgumentException",
                    "",
                    "Cannot initialize JDBCCatalog because warehousePath must not be null",
                )
            ],
            KEYS_OF_CATALOG,
        ),
        ([Cause("NumberFormatException", "", 'For input string: "abc"')], KEYS_OF_CATALOG),
        (
            [
                Cause("RESTException", "", "Failed to create request URI from base not a uri"),
                Cause("IllegalArgumentException", "", "Illegal character in path at index 3: not a uri"),
                Cause("URISyntaxException", "", "Illegal character in path at index 3: not a uri"),
            ],
            KEYS_OF_CATALOG,
        ),
        (
            [
                Cause("IllegalArgumentException", "", "Cannot initialize FileIO implementation org.x.No"),
                Cause("NoSuchMethodException", "", "Missing org.x.No"),
            ],
            BUNDLE,
        ),
        (
            [
                Cause("IllegalArgumentException", "", "java.net.UnknownHostException: namenode"),
                Cause("UnknownHostException", "", "namenode"),
            ],
            None,
        ),
    ],
)
def test_a_key_of_the_catalog_that_is_wrong_is_no_outage(chain: list[Cause], hint: str | None) -> None:
    """As Iceberg 1.10 raises them where a catalog is opened; a host that does not resolve may pass."""
    found = refusal("Catalog lake cannot be opened", chain, OPENING)

    assert (found and found.hint.startswith(hint or "?")) == (None if hint is None else True)
    # Later calls are about tables, which such a class may refuse.
    assert hint == MISSING or refusal("Cannot create table a.b", chain, CATALOG) is None


def test_the_text_of_an_answer_decides_nothing() -> None:
    """A REST server that lacks a class of its own answers 500: no jar is missing here."""
    answer = Cause("ServiceFailureException", "", "Server error: NoClassDefFoundError: org/x/Y; AccessDenied")

    assert refusal("Cannot load table a.b", [answer], CATALOG) is None


class Throwable:
    """A Java exception as py4j shows it."""

    def __init__(self, kind: str, message: str | None, beneath: Throwable | None = None, **codes: Any) -> None:
        self._kind, self._message, self._beneath = kind, message, beneath
        for name, value in codes.items():
            setattr(self, name, lambda value=value: value)

    def getClass(self) -> Throwable:  # noqa: N802 - Java's name
        """The class, which is this very object."""
        return self

    def getSimpleName(self) -> str:  # noqa: N802 - Java's name
        """Its simple class name."""
        return self._kind

    def getMessage(self) -> str | None:  # noqa: N802 - Java's name
        """What it says."""
        return self._message

    def getCause(self) -> Throwable | None:  # noqa: N802 - Java's name
        """What is beneath it."""
        return self._beneath


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Throwable("PSQLException", "no", getSQLState="28P01"), "SQLSTATE 28P01"),
        (Throwable("SQLException", "No suitable driver", getSQLState="08001"), "08001"),
        (Throwable("SQLException", "no", getSQLState=None), "SQLSTATE "),
        (Throwable("SQLiteException", "no", getResultCode=Throwable("", "")), ""),
        (Throwable("S3Exception", "no", awsErrorDetails=None, statusCode=403), "AWS 403"),
        (Throwable("UncheckedSQLException", "no such method"), ""),
    ],
)
def test_codes_are_read_from_exceptions(error: Throwable, code: str) -> None:
    """SQLState and the status of an answer of AWS; an exception without a code has none."""
    assert causes(error)[0].code == code


def test_the_deepest_cause_is_shown() -> None:
    """Kafka wraps three times what is wrong with a key store."""
    deepest = Throwable("UnrecoverableKeyException", "failed to decrypt safe contents entry")
    password = Throwable("IOException", "keystore password was incorrect", deepest)
    store = Throwable("KafkaException", "Failed to load SSL keystore k.p12 of type PKCS12", password)
    network = Throwable("KafkaException", "Failed to create new NetworkClient", store)
    chain = causes(Throwable("KafkaException", "Failed to create new KafkaAdminClient", network))

    assert told(chain) == (
        "Failed to create new KafkaAdminClient; caused by: Failed to load SSL keystore k.p12 of type PKCS12; "
        "caused by: keystore password was incorrect; caused by: failed to decrypt safe contents entry"
    )
    assert refusal("Kafka cannot be asked", chain, KAFKA) is not None


class Failed(Exception):
    """A failed job as py4j shows it."""

    def __init__(self, report: str, *beneath: tuple[str, str]) -> None:
        super().__init__(report)
        self.java_exception: Throwable | None = None
        for kind, message in reversed(beneath):
            self.java_exception = Throwable(kind, message, self.java_exception)


def test_a_failed_job_names_the_file_that_its_task_does_not_find() -> None:
    """Classes that Spark's report repeats say less than the causes themselves."""
    report = "Job aborted, most recent failure: (executor 1): org.x.KafkaException: Failed to construct consumer"
    trace = (
        "\n\tat org.x.Consumer.<init>\nCaused by: java.nio.file.NoSuchFileException: /x/trust.jks\n\nDriver stacktrace:"
    )
    beneath = ("KafkaException", "Failed to load SSL keystore"), ("NoSuchFileException", "/x/trust.jks")

    chain = chain_of(Failed(f": org.x.SparkException: {report}{trace}", ("SparkException", report + trace), *beneath))

    assert told(chain) == f"{report}; caused by: Failed to load SSL keystore; caused by: there is no file /x/trust.jks"
    assert refusal("Messages cannot be read", chain, KAFKA) is not None


def test_what_python_said_in_a_task_is_not_repeated() -> None:
    """The end of its report may hold a row."""
    report = (
        "Job aborted: (executor 1): org.x.PythonException: Traceback (most recent call last):\n\nMemoryError: a row\n"
    )

    chain = chain_of(Failed(report, ("SparkException", report), ("PythonException", report[40:])))

    assert "a row" not in told(chain)
    assert told(chain).endswith("caused by: MemoryError")


@pytest.mark.parametrize(
    "said",
    [
        'PlainLoginModule required password="hush hush";',
        "jdbc:x?password=hush-1&a=b",
        "s3 access-key-id=hush",
        "token: hush",
    ],
)
def test_credentials_are_cut_out(said: str) -> None:
    """Values behind a name that sounds like a secret are not repeated."""
    assert "hush" not in redacted(said)


def test_values_of_secret_options_are_cut_out() -> None:
    """Kafka repeats the part of a log-in that it cannot read, which may be the password in the wrong place."""
    options = {
        "kafka.sasl.jaas.config": 'org.x.PlainLoginModule hush-1 username="me" password="hush-2";',
        "kafka.ssl.key.password": "hush-3",
        "kafka.client.id": "reader",
    }
    text = "control flag hush-1 of org.x.PlainLoginModule, hush-2, hush-3, reader"

    assert without_secrets(text, options) == "control flag *** of org.x.PlainLoginModule, ***, ***, reader"
