"""Sentences with facts in them: a template of the catalogue and values that the trace gave become inked words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from string import Formatter

NAME_LIMIT = 14
"""Characters of a token's name inside a sentence."""


@dataclass(frozen=True, slots=True)
class Word:
    """A piece of text, safe to show, and the meaning that colours it."""

    text: str
    role: str = "text"
    """An origin or fate (accepted, rejected, …), draft, target, proposed, number, key, or text."""


Words = tuple[Word, ...]
Values = Mapping[str, Word]


def number(value: object) -> Word:
    """A figure of the trace, as it is to be printed."""
    return Word(str(value), "number")


def fill(template: str, values: Values) -> Words:
    """The template with `{name}` replaced by the value of that name.

    Raises:
        KeyError: the template names a value that the station does not have.
    """
    words: list[Word] = []
    for literal, name, _, _ in Formatter().parse(template):
        if literal:
            words.append(Word(literal))
        if name:
            words.append(values[name])
    return tuple(words)


def plain(words: Words) -> str:
    """The sentence without its colours."""
    return "".join(word.text for word in words)


def fields(template: str) -> set[str]:
    """The names of the values that a template needs."""
    return {name for _, name, _, _ in Formatter().parse(template) if name}
