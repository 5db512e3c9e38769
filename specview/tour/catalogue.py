"""The catalogue of one language: keys become sentences with the trace's facts in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from specview.tour.station import Station
from specview.tour.texts import en, zh
from specview.tour.words import Values, Words, fill

Language = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = ("en", "zh")
TEXTS: dict[Language, dict[str, str]] = {"en": en.TEXTS, "zh": zh.TEXTS}
_VARIABLES = ("LC_ALL", "LC_MESSAGES", "LANG")


class Catalogue:
    """What the tour says in one language."""

    def __init__(self, language: Language) -> None:
        self.language = language
        self._texts = TEXTS[language]

    def __contains__(self, key: str) -> bool:
        return key in self._texts

    def say(self, key: str, values: Values | None = None) -> Words:
        """The sentence of a key of the frame.

        Raises:
            KeyError: the catalogue has no such key, or its sentence needs a value that is not there.
        """
        return fill(self._texts[key], values or {})

    def text(self, key: str) -> str:
        """A sentence without values."""
        return self._texts[key]

    def of(self, station: Station, part: str, values: Values | None = None) -> Words:
        """A sentence of a station, in the first of its variants that the catalogue has."""
        key = self.key(station, part)
        return fill(self._texts[key], {**station.values, **(values or {})})

    def key(self, station: Station, part: str) -> str:
        """The key under which a part of a station stands."""
        key = f"{station.key}.{part}"
        return next((k for k in _with_variants(key, station.variants) if k in self._texts), key)


def _with_variants(key: str, variants: Iterable[str]) -> Iterable[str]:
    return (f"{key}.{variant}" for variant in variants)


def language_of(environment: Mapping[str, str]) -> Language:
    """The language of a locale: Chinese where it begins with zh, English otherwise."""
    locale = next((environment[name] for name in _VARIABLES if environment.get(name)), "")
    return "zh" if locale.lower().startswith("zh") else "en"
