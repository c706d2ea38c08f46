"""Reads what checkpoints before format 6 say in words: why tables are what they are, and outcomes of requests."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from applier.changefeed.checkpoint import RequestOutcome
from applier.changefeed.completeness import Wholeness, Why
from applier.wording import CLAUSES

_CAUSES = {
    "include": Why.LEFT_OUT,
    "hand": Why.BY_HAND,
    "ddl": Why.DDL,
    "row": Why.ROW,
    "table": Why.TABLE,
    "lost": Why.LOST,
    "load": Why.LOADING,
}

_REFUSED = "refused: "


def reasons(written: dict[str, Any]) -> dict[str, Any]:
    """The members of a table's completeness that tell why, from those in words; others stay as they are."""
    words = written.get("lacked")
    return ({"reason": _reason(written)} if "state" in written else {}) | (
        {"lacked": _lacked(words) if words else None} if isinstance(words, str) else {}
    )


def _reason(written: dict[str, Any]) -> dict[str, str]:
    state, text = msgspec.convert(written["state"], Wholeness), msgspec.convert(written.get("reason", ""), str)
    if state == "parked":
        return _parked(_CAUSES[written.get("cause") or "include"], text)
    return _lacked(text) if text else {"why": Why.WHOLE if state == "live" else Why.UNRECORDED}


def _parked(cause: Why, text: str) -> dict[str, str]:
    told, _ = _recognised(text)
    kind = (cause.is_left_out, cause.is_loaded)
    if told is not None and told.state == "parked" and (told.is_left_out, told.is_loaded) == kind:
        return {"why": told}
    # A command had such a table built anew, and left the words for what it was before.
    is_rebuilt = cause is Why.BY_HAND and told is not None and told.state == "incomplete"
    return {"why": Why.REBUILT} if is_rebuilt else {"why": cause, "detail": text}


def _lacked(text: str) -> dict[str, str]:
    """The members of a `Reason` from the words for it."""
    why, detail = _recognised(text)
    # Words that are not known say of an incomplete table that it may lack rows, and why.
    return {"why": Why.UNRECORDED, "detail": text} if why is None else {"why": why, "detail": detail}


def outcome(text: str) -> RequestOutcome:
    """The outcome of a request from the words for it: what it says beyond that is for the command that waited."""
    if text.startswith(_REFUSED):
        return RequestOutcome("refused", notes=(text.removeprefix(_REFUSED),))
    return RequestOutcome("resumes", notes=(text,))


def _recognised(text: str) -> tuple[Why | None, str]:
    for why, words in CLAUSES.items():
        before, _, after = map(re.escape, words.partition("{}"))
        if found := re.fullmatch(f"{before}(.*){after}" if "{}" in words else before, text):
            return why, "".join(found.groups())
    return None, ""
