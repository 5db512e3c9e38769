"""Two runs side by side, aligned by output token: where they part, by what margin, and what each one cost."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from engine.round import Round
from specview.errors import TraceError
from specview.summary import Summary, summarize
from specview.text import showable
from specview.trace.reader import TraceReader
from specview.trace.records import RunRecord, SequenceRecord, TokenRecord
from specview.tui.model.names import Names

BLOCK = 4096
AROUND_BEFORE = 120
AROUND_AFTER = 200
"""Tokens shown before and behind the divergence."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two runs, at one prompt."""

    summary: Summary
    sequence: SequenceRecord | None
    names: Names
    tokens: tuple[TokenRecord, ...] = ()
    """Output tokens around the divergence."""
    output_tokens: int = 0
    at: Round | None = None
    """The round that committed the token where the two part."""
    margin: float | None = None
    """p of the first minus p of the second choice of the target there."""
    choices: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Comparison:
    """Both sides; `divergence` counts output tokens from 0, None when neither contradicts the other."""

    left: Side
    right: Side
    sequence_index: int
    sequence_count: int
    divergence: int | None
    shared: int
    """Output tokens that both have and agree on."""
    same_prompt: bool


def compare(
    left: TraceReader, left_run: RunRecord, right: TraceReader, right_run: RunRecord, sequence_index: int = 0
) -> Comparison:
    """Align two runs at one prompt, by the order of the prompts.

    Raises:
        TraceError: one of the traces cannot be read.
    """
    count = min(left.sequence_count(left_run.id), right.sequence_count(right_run.id))
    sequence_index = max(0, min(sequence_index, count - 1))
    pair = [
        next(iter(reader.sequences(run.id, sequence_index, sequence_index + 1)), None)
        for reader, run in ((left, left_run), (right, right_run))
    ]
    names = (Names(), Names())
    divergence, shared = None, 0
    if pair[0] is not None and pair[1] is not None:
        divergence, shared = _divergence((left, right), (left_run, right_run), (pair[0], pair[1]), names)
    at = divergence if divergence is not None else max(0, shared - 1)
    sides = [
        _side(reader, run, sequence, name, at)
        for reader, run, sequence, name in zip((left, right), (left_run, right_run), pair, names, strict=True)
    ]
    prompts = [s.prompt if s is not None else None for s in pair]
    return Comparison(sides[0], sides[1], sequence_index, count, divergence, shared, prompts[0] == prompts[1])


def _divergence(
    readers: tuple[TraceReader, TraceReader],
    runs: tuple[RunRecord, RunRecord],
    sequences: tuple[SequenceRecord, SequenceRecord],
    names: tuple[Names, Names],
) -> tuple[int | None, int]:
    """The first output token that differs, and how many agree before it. Compared by their bytes, which two
    tokenizers share, and by id where a trace does not name its tokens."""
    lengths = [r.token_count(s.id) - s.prompt_tokens for r, s in zip(readers, sequences, strict=True)]
    both = max(0, min(lengths))
    for start in range(0, both, BLOCK):
        stop = min(both, start + BLOCK)
        rows: list[list[bytes]] = []
        for reader, run, sequence, name in zip(readers, runs, sequences, names, strict=True):
            tokens = reader.tokens(sequence.id, sequence.prompt_tokens + start, sequence.prompt_tokens + stop)
            lacking = name.lacking(t.token for t in tokens)
            name.add(reader.vocab(run.id, lacking))
            rows.append([name.data(t.token) for t in tokens])
        for offset, (a, b) in enumerate(zip(*rows, strict=False)):
            if a != b:
                return start + offset, start + offset
    return None, both


def _side(reader: TraceReader, run: RunRecord, sequence: SequenceRecord | None, names: Names, at: int) -> Side:
    summary = summarize(reader, run)
    if sequence is None:
        return Side(summary, None, names)
    place = sequence.prompt_tokens + at
    start = max(sequence.prompt_tokens, place - AROUND_BEFORE)
    tokens = tuple(reader.tokens(sequence.id, start, place + AROUND_AFTER))
    names.add(reader.vocab(run.id, names.lacking(t.token for t in tokens)))
    here = next((t for t in tokens if t.position == place), None)
    round_: Round | None = None
    choices: tuple[tuple[int, float], ...] = ()
    if here is not None and here.round_index is not None:
        round_ = next(iter(reader.rounds(sequence.id, here.round_index, here.round_index + 1)), None)
    if round_ is not None:
        step = place - round_.committed_before + 1
        choices = next((p.target_top[:2] for p in round_.positions if p.position == step), ())
        names.add(reader.vocab(run.id, names.lacking(token for token, _ in choices)))
    margin = choices[0][1] - choices[1][1] if len(choices) == 2 else None
    output = reader.token_count(sequence.id) - sequence.prompt_tokens
    return Side(summary, sequence, names, tokens, output, round_, margin, choices)


def load_comparison(left: Path, left_run: int | None, right: Path, right_run: int | None, index: int) -> Comparison:
    """Read and align two runs; a run that is not named is the newest of its trace.

    Raises:
        TraceError: a trace cannot be read or holds no run.
    """
    with ExitStack() as stack:
        readers = [stack.enter_context(TraceReader(path)) for path in (left, right)]
        runs = [_run_of(reader, wanted) for reader, wanted in zip(readers, (left_run, right_run), strict=True)]
        return compare(readers[0], runs[0], readers[1], runs[1], index)


def _run_of(reader: TraceReader, wanted: int | None) -> RunRecord:
    runs = reader.runs()
    if not runs:
        raise TraceError(f"{reader.path} holds no run; there is nothing to compare.")
    run = runs[-1] if wanted is None else next((r for r in runs if r.id == wanted), None)
    if run is None:
        known = ", ".join(str(r.id) for r in runs)
        raise TraceError(f"{showable(str(reader.path))} has no run {wanted}; it has {known}.")
    return run
