"""Figures as people read them."""

from __future__ import annotations


def counted(count: int, noun: str, nouns: str = "") -> str:
    """A number of things: `1 table`, `1,000 tables`."""
    return f"{count:,} {noun if count == 1 else nouns or f'{noun}s'}"


def span(seconds: float | None, unknown: str = "unknown") -> str:
    """A time span in one unit: 0.7 s, 45 s, 12 min, 3.5 h, 2 days."""
    if seconds is None:
        return unknown
    forms = ((10, 1, "{:.1f} s"), (120, 1, "{:.0f} s"), (7200, 60, "{:.0f} min"), (172_800, 3600, "{:.1f} h"))
    shown = next((form.format(seconds / unit) for limit, unit, form in forms if seconds < limit), "")
    return (shown or f"{seconds / 86_400:.1f} days").replace(".0 ", " ")
