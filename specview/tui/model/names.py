"""What tokens are called: the run's own vocabulary, made safe once a token."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from engine.round import VocabEntry
from specview.text import showable, unnamed

LONGEST = 200
"""Characters of one token that a screen ever shows; the rest is an ellipsis."""


class Names:
    """Token id → bytes and showable name. Grows as rounds are looked at; one a run."""

    def __init__(self, entries: Mapping[int, VocabEntry] | None = None) -> None:
        self._entries: dict[int, VocabEntry] = dict(entries or {})
        self._shown: dict[int, str] = {}

    def add(self, entries: Mapping[int, VocabEntry]) -> None:
        self._entries.update(entries)
        for token in entries:
            self._shown.pop(token, None)

    def lacking(self, tokens: Iterable[int]) -> set[int]:
        return {token for token in tokens if token not in self._entries}

    def __call__(self, token: int) -> str:
        """The token's text with visible whitespace; `⟨id⟩` when the trace does not say what it is."""
        shown = self._shown.get(token)
        if shown is None:
            entry = self._entries.get(token)
            shown = showable(entry.data, whitespace=True, limit=LONGEST) if entry is not None else unnamed(token)
            shown = shown or "∅"
            self._shown[token] = shown
        return shown

    def data(self, token: int) -> bytes:
        """The token's bytes, cut after LONGEST characters' worth; its number when they are not known."""
        entry = self._entries.get(token)
        if entry is None:
            return unnamed(token).encode()
        return entry.data if len(entry.data) <= LONGEST * 4 else entry.data[: LONGEST * 4]

    def special(self, token: int) -> bool:
        entry = self._entries.get(token)
        return entry is not None and entry.special
