"""What an outside system said in, whether asking again can help out: a log-in that is refused will be refused again."""

from __future__ import annotations

import re
from collections.abc import Iterable

from applier.errors import OutsideRefused

_MISSING = re.compile(
    r"ClassNotFound|NoClassDefFoundError|NoSuchMethodError|UnsupportedClassVersionError|ServiceConfigurationError"
    r"|DATA_SOURCE_NOT_FOUND|Failed to find data source|PACKAGE_NOT_INSTALLED|ImportError|ModuleNotFoundError"
    r"|No suitable driver|UnsatisfiedLinkError"
)
_RIGHTS = re.compile(
    r"NotAuthorizedException|ForbiddenException|AccessDeniedException|AccessControlException|AuthorizationException"
    r"|AuthenticationException|InvalidAccessKeyId|SignatureDoesNotMatch|AccessDenied|Status Code: 40[13]\b"
    r"|password authentication failed|Access denied for user|SQLITE_READONLY|SQLITE_AUTH"
)
_STATEMENT = re.compile(r"AnalysisException|ParseException|UnsupportedFormatVersion|NoSuchBucket|ConfigException")

_HINTS = (
    (_MISSING, "a class or a package is missing: see the jars of deploy/README.md, spark.jars, and make setup."),
    (_RIGHTS, "check the log-in and the rights that the configuration gives for it."),
    (_STATEMENT, "asking again gives the same answer: check what the configuration names."),
)


def refusal(action: str, kinds: Iterable[str], detail: str) -> OutsideRefused | None:
    """The error for a failure that would come again; None where asking again may help.

    Args:
        action: What was being done, as a sentence without a full stop.
        kinds: Simple class names of the exception and its causes.
        detail: Its message, without credentials.
    """
    told = " ".join([*kinds, detail])
    for pattern, hint in _HINTS:
        if pattern.search(told):
            return OutsideRefused(f"{action}: {detail}", hint)
    return None
