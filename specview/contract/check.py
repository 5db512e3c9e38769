"""Checks a whole trace against the contract, in one pass over its rounds and with flat memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from engine.round import Round
from specview.contract import caches, commits, outcomes, verdicts
from specview.contract.report import LOG_SOURCES, ClauseReport, Context, Outcome, RunReport, Violation
from specview.plain import against_plain
from specview.trace.reader import TraceReader
from specview.trace.records import RunRecord, SequenceRecord

ROUNDS_PER_READ = 500

Clause = Callable[[Context, Round], Outcome]
Progress = Callable[[int], None]

PER_ROUND: dict[str, Clause] = {
    "C1": verdicts.c1_propose,
    "C2": verdicts.c2_score,
    "C3": verdicts.c3_accept,
    "C4": verdicts.c4_stop,
    "C5": verdicts.c5_discard,
    "C6": commits.c6_correct,
    "C7": commits.c7_bonus,
    "C8": commits.c8_progress,
    "C9": caches.c9_target_kv,
    "C10": caches.c10_draft_kv,
    "C11": commits.c11_continuity,
    "C13": outcomes.c13_serial_calls,
    "C14": outcomes.c14_short_scoring,
}
"""The clauses that are decided round by round; C12 is decided by whole sequences and runs."""

TITLES = {
    "C1": "propose",
    "C2": "score",
    "C3": "accept",
    "C4": "stop",
    "C5": "discard",
    "C6": "correct",
    "C7": "bonus",
    "C8": "progress",
    "C9": "target KV",
    "C10": "draft KV",
    "C11": "continuity",
    "C12": "lossless",
    "C13": "serial calls",
    "C14": "short scoring",
}


NOT_IN_LOGS = frozenset({"C5", "C7", "C8", "C11"})
"""What these clauses look at, an importer works out from the accepted count; that would only confirm itself."""


def check(reader: TraceReader, progress: Progress | None = None) -> list[RunReport]:
    """Check every run of a trace.

    Args:
        progress: is told how many rounds were checked since the last call.

    Raises:
        TraceError: the trace cannot be read.
    """
    return [check_run(reader, run, progress) for run in reader.runs()]


def check_run(reader: TraceReader, run: RunRecord, progress: Progress | None = None) -> RunReport:
    """Check one run against C1 … C14."""
    reports = {id_: ClauseReport(id_, title) for id_, title in TITLES.items()}
    sums = outcomes.Sums()
    sampled = run.info.sampling is not None and not run.info.sampling.greedy
    from_log = run.info.source in LOG_SOURCES
    clauses = {id_: clause for id_, clause in PER_ROUND.items() if not (from_log and id_ in NOT_IN_LOGS)}
    sequences = 0
    for sequence in reader.all_sequences(run.id):
        sequences += 1
        previous: Round | None = None
        for r, following in _with_following(_rounds(reader, sequence, progress)):
            context = Context(run.info, sequence, previous, following)
            for id_, clause in clauses.items():
                outcome = clause(context, r)
                _add(reports[id_], outcome, run, sequence.index, r.index)
                sums.given_up += outcome.given_up
                sums.giving_up += outcome.given_up > 0
            sums.add(r, sampled)
            previous = r
        _greedy(reader, run, sequence, reports["C12"])
    if sampled:
        outcome, reports["C12"].note = outcomes.lossless_statistic(sums)
        _add(reports["C12"], outcome, run, None, None)
    reports["C10"].note = outcomes.given_up_note(sums)
    reports["C13"].note = outcomes.serial_calls_note(sums)
    reports["C14"].note = outcomes.short_scoring_note(sums, run, reader.costs(run.id))
    if reports["C14"].note is None:
        reports["C14"].checked = 0  # clocks alone do not show what scoring costs beside a plain step
    return RunReport(run, sequences, sums.rounds, tuple(reports.values()))


def _greedy(reader: TraceReader, run: RunRecord, sequence: SequenceRecord, report: ClauseReport) -> None:
    comparison = against_plain(reader, run, sequence)
    if comparison is None:
        return
    outcome, note = outcomes.lossless_greedy(run, comparison)
    if report.note is None or comparison.parting is not None:
        report.note = note
    _add(report, outcome, run, sequence.index, None if comparison.parting is None else comparison.parting.round)


def _add(report: ClauseReport, outcome: Outcome, run: RunRecord, sequence: int | None, round_: int | None) -> None:
    report.checked += outcome.checked
    for f in outcome.findings:
        report.add(Violation(report.id, run.id, sequence, round_, f.position, f.recorded, f.expected))


def _rounds(reader: TraceReader, sequence: SequenceRecord, progress: Progress | None) -> Iterator[Round]:
    # A gap in the numbers is a finding of C11, so rounds are read to the last number and not to the first gap.
    last = reader.round_count(sequence.id)
    for start in range(0, last, ROUNDS_PER_READ):
        chunk = reader.rounds(sequence.id, start, start + ROUNDS_PER_READ)
        yield from chunk
        if progress is not None:
            progress(len(chunk))


def _with_following(rounds: Iterator[Round]) -> Iterator[tuple[Round, Round | None]]:
    """Each round with the one after it."""
    previous: Round | None = None
    for r in rounds:
        if previous is not None:
            yield previous, r
        previous = r
    if previous is not None:
        yield previous, None
