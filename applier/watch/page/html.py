"""Builds HTML whose texts cannot become markup, however they are put together."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from html import escape
from typing import TypeAlias

from applier.runtime.escaping import escaped

_VOID = frozenset({"input", "link", "meta"})


class Html(str):
    """Markup that is shown as it is; every other string is a text."""

    __slots__ = ()


Child: TypeAlias = "str | Iterable[Child] | None"
"""What an element may hold: markup, a text, nothing, or several of them."""


def tag(name: str, /, *children: Child, **attributes: str | float | bool | None) -> Html:
    """An element; `class_="x"` and `data_key="y"` become `class` and `data-key`, and None and False leave one out."""
    shown = "".join(_attribute(key, value) for key, value in attributes.items()) if attributes else ""
    if name in _VOID:
        return Html(f"<{name}{shown}>")
    return Html(f"<{name}{shown}>{text(*children)}</{name}>")


def text(*children: Child) -> Html:
    r"""Texts and markup one after the other; what a terminal or a reader's eye would obey is written out: `\x1b`."""
    return Html("".join([_shown(child) for child in children]))


def lines(content: str) -> Html:
    """A text that keeps its line breaks."""
    return Html("\n".join([escape(escaped(line)) for line in content.split("\n")]))


def _shown(child: Child) -> str:
    if isinstance(child, Html):
        return child
    if isinstance(child, str):
        return escape(escaped(child))
    return "" if child is None else "".join(map(_shown, child))


@lru_cache(maxsize=1024)
def _attribute(key: str, value: str | float | bool | None) -> str:  # noqa: FBT001 - HTML has attributes without a value
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(escaped(str(value)))}"'


def moment(iso: str | None) -> Html:
    """A time in UTC to the second; a script adds the reader's own. `unknown` for none."""
    if iso is None:
        return tag("span", "unknown", class_="soft")
    return tag("time", f"{iso[:10]} {iso[11:19]}", datetime=iso)


@lru_cache(maxsize=256)
def badge(word: str, tone: str) -> Html:
    """A word in a colour, with a sign for those who do not see it; the tone is good, bad, wait or mute."""
    return tag("span", word, class_=f"badge {tone}")


def copyable(content: str, *, kept: bool = False) -> Html:
    """A command or query with a button that copies what is shown, so that no hidden character gets into a terminal."""
    shown = lines(content) if kept else text(content)
    button = tag("button", "Copy", type="button", class_="copy js", aria_label="Copy the queries" if kept else None)
    if kept:
        code = tag("code", shown)
        return tag("div", tag("pre", code, tabindex="0", aria_label="Queries", role="region"), button, class_="copied")
    return tag("span", tag("code", shown), button, class_="copied")


def table(caption: str, headings: Iterable[str], rows: Iterable[Html], *, numbers: Iterable[int] = ()) -> Html:
    """A table that scrolls on its own; `numbers` are the columns that are set to the right."""
    right = set(numbers)
    head = [tag("th", name, scope="col", class_="n" if at in right else None) for at, name in enumerate(headings)]
    content = tag("table", tag("caption", caption), tag("thead", tag("tr", head)), tag("tbody", rows))
    return tag("div", content, class_="scroll", tabindex="0", role="region", aria_label=caption)


def section(name: str, heading: str, *children: Child, note: str = "") -> Html:
    """A part of the page with its heading."""
    title = tag("h2", heading, tag("span", note, class_="note") if note else None, id=f"{name}-h")
    return tag("section", title, children, id=name, aria_labelledby=f"{name}-h")
