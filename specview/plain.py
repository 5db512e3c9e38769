"""A greedy run against the target's own greedy output, the plain decoding that was measured as its baseline.

In float32 the two must agree token by token. In half precision kernels of different widths round differently, so that
a run may leave plain decoding where the target's two best tokens are nearly tied: how nearly is told by their margin.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from engine.round import Alternatives
from specview.trace.reader import TraceReader
from specview.trace.records import RunRecord, SequenceRecord


@dataclass(frozen=True, slots=True)
class Parting:
    """The first output token that differs from plain greedy decoding."""

    place: int
    """Output tokens before it."""
    token: int
    plain_token: int
    round: int | None
    """The round that committed it, from 0."""
    choices: Alternatives
    """The target's two best tokens there, with their probabilities, as far as they were recorded."""

    @property
    def margin(self) -> float | None:
        """p of the target's best token minus p of its second; None where the trace does not hold both."""
        return self.choices[0][1] - self.choices[1][1] if len(self.choices) == 2 else None


@dataclass(frozen=True, slots=True)
class PlainComparison:
    """One sequence against plain greedy decoding of its prompt."""

    sequence: int
    """From 0."""
    compared: int
    """Output tokens that both have."""
    parting: Parting | None

    @property
    def agreed(self) -> int:
        """Leading output tokens that are the same."""
        return self.compared if self.parting is None else self.parting.place


def comparisons(reader: TraceReader, run: RunRecord) -> Iterator[PlainComparison]:
    """Every sequence of a greedy run whose plain decoding was measured; nothing for a sampled run.

    Raises:
        TraceError: the trace cannot be read.
    """
    if run.baseline_tokens:
        for sequence in reader.all_sequences(run.id):
            found = against_plain(reader, run, sequence)
            if found is not None:
                yield found


def run_against_plain(reader: TraceReader, run: RunRecord) -> PlainComparison | None:
    """What stands for the whole run: the first sequence that leaves plain decoding, or else the first compared; None
    for a sampled run.

    Raises:
        TraceError: the trace cannot be read.
    """
    first = None
    for found in comparisons(reader, run):
        if found.parting is not None:
            return found
        first = first or found
    return first


def against_plain(reader: TraceReader, run: RunRecord, sequence: SequenceRecord) -> PlainComparison | None:
    """One sequence against its baseline; None where the run is not greedy or the sequence has no baseline.

    Raises:
        TraceError: the trace cannot be read.
    """
    sampling, plain = run.info.sampling, sequence.baseline_ids
    if sampling is None or not sampling.greedy or not plain:
        return None
    start = sequence.prompt_tokens
    output = reader.tokens(sequence.id, start, start + len(plain))
    for place, (ours, theirs) in enumerate(zip(output, plain, strict=False)):
        if ours.token != theirs:
            choices = _choices(reader, sequence, ours.round_index, start + place)
            parting = Parting(place, ours.token, theirs, ours.round_index, choices)
            return PlainComparison(sequence.index, min(len(output), len(plain)), parting)
    return PlainComparison(sequence.index, min(len(output), len(plain)), None)


def _choices(reader: TraceReader, sequence: SequenceRecord, round_: int | None, place: int) -> Alternatives:
    """The target's two best tokens for the position `place` of a sequence, prompt included."""
    if round_ is None:
        return ()
    for found in reader.rounds(sequence.id, round_, round_ + 1):
        step = place - found.committed_before + 1
        return next((p.target_top[:2] for p in found.positions if p.position == step), ())
    return ()


def sentence(comparison: PlainComparison) -> str:
    """In words: how far the run goes along with plain decoding, and how close a call the target's choice was there."""
    parting = comparison.parting
    if parting is None:
        return f"as plain greedy decoding for all {comparison.compared:,} tokens compared"
    margin = "not recorded" if parting.margin is None else f"{parting.margin:.4f}"
    return f"leaves plain greedy decoding at output token {parting.place + 1:,}; top-2 margin there {margin}"
