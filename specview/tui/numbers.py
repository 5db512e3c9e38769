"""How numbers look: right-aligned, no leading zero, a dash for what is not known."""

from __future__ import annotations

from specview.story import probability

MISSING = "–"


def prob(value: float | None, width: int = 5) -> str:
    return (MISSING if value is None else probability(value)).rjust(width)


def ratio(target: float | None, draft: float | None, width: int = 6) -> str:
    """p ÷ q, as the acceptance test compares it with u."""
    if target is None or draft is None:
        return MISSING.rjust(width)
    if draft <= 0:
        return "∞".rjust(width)
    value = target / draft
    if value >= 1000:
        return ">999".rjust(width)
    if value >= 10:
        return f"{value:.1f}".rjust(width)
    if value >= 1:
        return f"{value:.2f}".rjust(width)
    return probability(value).rjust(width)


def plain(value: float | None, width: int = 6, digits: int = 2) -> str:
    """A number ≥ 0 with a fixed number of digits after the point, without its leading zero."""
    if value is None or value != value:
        return MISSING.rjust(width)
    text = f"{value:.{digits}f}"
    if text.startswith("0.") and digits:
        text = text[1:]
    return text.rjust(width)


def milliseconds(ns: float | None, width: int = 7) -> str:
    """Nanoseconds as milliseconds: .03, 6.1, 123."""
    if ns is None:
        return MISSING.rjust(width)
    ms = ns / 1e6
    digits = 0 if ms >= 100 else 1 if ms >= 1 else 2
    return plain(ms, width, digits)


def percent(part: float | None, whole: float | None) -> str:
    if not whole or part is None:
        return MISSING
    return f"{100 * part / whole:.0f} %"


def count(value: int) -> str:
    """12,345"""
    return f"{value:,}"


def short(value: int) -> str:
    """At most five cells: 9,999 · 19.5k · 1.2M"""
    if value < 10_000:
        return f"{value:,}"
    if value < 999_950:
        return f"{value / 1000:.1f}k" if value < 100_000 else f"{value / 1000:.0f}k"
    return f"{value / 1e6:.1f}M" if value < 100e6 else f"{value / 1e6:.0f}M"


def duration(seconds: float) -> str:
    """0.4 s, 12 s, 3 min 20 s"""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest:02} s"
