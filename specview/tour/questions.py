"""Predictions: what a station asks, how a person's answer stands, and whether it is right. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from specview.tour.words import Word, Words

Verdict = Literal["right", "wrong"]


@dataclass(frozen=True, slots=True)
class Option:
    """One line of a question: facts of the trace as they are, or a sentence of the catalogue."""

    key: str
    """Names the option in the catalogue (`station.opt.key`) and in its feedback (`station.no.key`)."""
    label: Words = ()
    """Empty: the catalogue has the label."""
    values: Mapping[str, Word] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several."""

    options: tuple[Option, ...]
    right: int


@dataclass(frozen=True, slots=True)
class Prefix:
    """The options from the first one on, up to where the person sets the end."""

    options: tuple[Option, ...]
    right: int
    """How many."""


@dataclass(frozen=True, slots=True)
class Marks:
    """Any of several."""

    options: tuple[Option, ...]
    right: frozenset[int]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A ratio on a scale of steps. `value` is None as long as it is still being measured."""

    steps: tuple[float, ...]
    value: float | None
    options: tuple[Option, ...] = ()

    TOLERANCE = 0.25
    """An estimate is right when it is off by no more than this part of the value, or by one step from the nearest."""


Question = Choice | Prefix | Marks | Estimate


@dataclass(frozen=True, slots=True)
class Attempt:
    """Where a person is with a question."""

    cursor: int = 0
    """The option under the cursor."""
    marked: frozenset[int] = frozenset()
    count: int = 0
    """Length of the marked prefix."""
    step: int = 0
    """Index of the estimate."""
    verdict: Verdict | None = None
    """Of the last answer; None until one was given, and again as soon as the answer changes."""
    tries: int = 0
    revealed: bool = False
    """The outcome is on the screen: after a right answer, or because the person asked for it."""

    def move(self, question: Question, by: int) -> Attempt:
        """The next or previous option; in a prefix the first option can be left out too."""
        if not question.options:
            return self
        cursor = max(0, min(self.cursor + by, len(question.options) - 1))
        return self if cursor == self.cursor else self._changed(cursor=cursor)

    def toggle(self, question: Question) -> Attempt:
        """Mark the option under the cursor, or take the mark away; a prefix then ends at it, or before it."""
        if isinstance(question, Marks):
            return self._changed(marked=self.marked ^ {self.cursor})
        if isinstance(question, Prefix):
            return self._changed(count=self.cursor if self.count > self.cursor else self.cursor + 1)
        return self

    def slide(self, question: Question, by: int) -> Attempt:
        """Move the estimate by steps."""
        if not isinstance(question, Estimate):
            return self
        return self._changed(step=max(0, min(self.step + by, len(question.steps) - 1)))

    def answered(self, question: Question) -> Attempt:
        """With the verdict of the answer as it stands; a right one reveals the outcome."""
        right = judge(question, self)
        return replace(
            self,
            verdict="right" if right else "wrong",
            tries=self.tries + 1,
            revealed=self.revealed or right,
        )

    def shown(self) -> Attempt:
        """With the outcome on the screen, whatever was answered."""
        return replace(self, revealed=True)

    def again(self) -> Attempt:
        """From the start, with the outcome hidden; tries are still counted."""
        return Attempt(tries=self.tries)

    def _changed(self, **changes: object) -> Attempt:
        return replace(self, verdict=None, **changes)  # type: ignore[arg-type]


def judge(question: Question, attempt: Attempt) -> bool:
    """Whether the answer is right."""
    if isinstance(question, Choice):
        return attempt.cursor == question.right
    if isinstance(question, Prefix):
        return attempt.count == question.right
    if isinstance(question, Marks):
        return attempt.marked == question.right
    if question.value is None or not math.isfinite(question.value):
        return False
    value = estimated(question, attempt)
    near = abs(value - question.value) <= Estimate.TOLERANCE * question.value
    return near or abs(question.steps.index(value) - nearest(question.steps, question.value)) <= 1


def estimated(question: Estimate, attempt: Attempt) -> float:
    """The estimate. A scale may have become shorter since, when a measurement brought another one."""
    return question.steps[min(attempt.step, len(question.steps) - 1)]


def nearest(steps: tuple[float, ...], value: float) -> int:
    """The index of the step that lies nearest to the value."""
    return min(range(len(steps)), key=lambda i: abs(steps[i] - value))


def fault(question: Question, attempt: Attempt) -> tuple[str, Option | None]:
    """What is wrong with a wrong answer: the end of its feedback's key, and the option that it is about."""
    if isinstance(question, Choice):
        option = question.options[attempt.cursor]
        return f"no.{option.key}", option
    if isinstance(question, Prefix):
        if attempt.count < question.right:
            return "short", question.options[attempt.count]
        return "long", question.options[question.right]
    if isinstance(question, Marks):
        extra = sorted(attempt.marked - question.right)
        if extra:
            return f"no.{question.options[extra[0]].key}", question.options[extra[0]]
        missing = min(question.right - attempt.marked)
        return "missing", question.options[missing]
    if question.value is None:
        return "wait", None
    return ("low" if estimated(question, attempt) < question.value else "high"), None


def right_attempt(question: Question) -> Attempt:
    """The answer that `judge` calls right."""
    if isinstance(question, Choice):
        return Attempt(cursor=question.right)
    if isinstance(question, Prefix):
        return Attempt(count=question.right)
    if isinstance(question, Marks):
        return Attempt(marked=question.right)
    return Attempt(step=nearest(question.steps, question.value or 1.0))
