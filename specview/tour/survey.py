"""What the tour needs to know of a trace, read once before it starts: the run's figures, and its first rounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from engine.round import Cost, Round, VocabEntry
from specview.errors import TraceError
from specview.metrics import Totals
from specview.text import showable, unnamed
from specview.tour.words import NAME_LIMIT, Word
from specview.trace.reader import TraceReader
from specview.trace.records import RunRecord

LOOKED_AT = 2000
"""Rounds of the run in which a fitting one is sought."""
BLOCK = 200


@dataclass(frozen=True, slots=True)
class Place:
    """A round of a trace, as a cursor counts."""

    path: Path
    run: int
    sequence: int
    round: int


@dataclass(frozen=True, slots=True)
class Case:
    """A round, and what stands around it."""

    place: Place
    round: Round
    pending: int | None
    """The last committed token before the round, whose KV the round's forward builds."""
    before: int | None
    """The token before that one."""
    following: Round | None
    """The next round of the same sequence."""


@dataclass(frozen=True, slots=True)
class Survey:
    """A run, as far as the tour looks at it."""

    path: Path
    run_index: int
    run: RunRecord
    totals: Totals
    costs: tuple[Cost, ...]
    cases: tuple[Case, ...]
    vocab: Mapping[int, VocabEntry]

    @property
    def greedy(self) -> bool:
        sampling = self.run.info.sampling
        return sampling is not None and sampling.greedy

    def name(self, token: int | None, limit: int = NAME_LIMIT) -> str:
        """A token's text with visible whitespace; its number where the trace does not say what it stands for."""
        if token is None:
            return "?"
        entry = self.vocab.get(token)
        return (showable(entry.data, whitespace=True, limit=limit) or "∅") if entry is not None else unnamed(token)

    def word(self, token: int | None, role: str) -> Word:
        return Word(self.name(token), role)


def survey(path: Path) -> Survey:
    """Look at the first run of a trace that has rounds.

    Raises:
        TraceError: the file cannot be read, or holds no round.
    """
    with TraceReader(path) as reader:
        for index, run in enumerate(reader.runs()):
            cases = tuple(_cases(reader, path, index, run))
            if cases:
                tokens = {t for case in cases for t in _tokens(case)}
                return Survey(
                    path=path,
                    run_index=index,
                    run=run,
                    totals=reader.totals(run.id),
                    costs=tuple(reader.costs(run.id)),
                    cases=cases,
                    vocab=reader.vocab(run.id, tokens),
                )
    raise TraceError(f"{path} holds no round to learn from; record one with `specview record --prompt …`.")


def _cases(reader: TraceReader, path: Path, run_index: int, run: RunRecord) -> Iterator[Case]:
    left = LOOKED_AT
    for index in range(reader.sequence_count(run.id)):
        if left <= 0:
            return
        (sequence,) = reader.sequences(run.id, index, index + 1)
        count = min(left, reader.round_count(sequence.id))
        left -= count
        earlier: Case | None = None
        for start in range(0, count, BLOCK):
            rounds = reader.rounds(sequence.id, start, min(count, start + BLOCK))
            if not rounds:
                break
            first = max(0, rounds[0].committed_before - 2)
            tokens = {t.position: t.token for t in reader.tokens(sequence.id, first, rounds[-1].committed_before)}
            for round_ in rounds:
                if earlier is not None:
                    yield _followed(earlier, round_)
                earlier = Case(
                    Place(path, run_index, index, round_.index),
                    round_,
                    tokens.get(round_.committed_before - 1),
                    tokens.get(round_.committed_before - 2),
                    None,
                )
        if earlier is not None:
            yield earlier


def _followed(case: Case, following: Round) -> Case:
    return Case(case.place, case.round, case.pending, case.before, following)


def _tokens(case: Case) -> Iterator[int]:
    """Every token that the tour may name when it shows this round."""
    for token in (case.pending, case.before, case.round.correction_token):
        if token is not None:
            yield token
    for position in case.round.positions:
        if position.candidate is not None:
            yield position.candidate
        yield from (token for token, _ in position.draft_top)
        yield from (token for token, _ in position.target_top)
