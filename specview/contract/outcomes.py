"""Clauses C12–C14: what a run as a whole delivers. C12 and C14 are measured; they need more than rounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from engine.round import Cost, Round
from specview import metrics
from specview.contract.report import JUDGED, NOTHING, Context, Finding, Outcome, is_probability, number
from specview.plain import PlainComparison, sentence
from specview.trace.records import RunRecord

SIGMAS = 5.0
"""How far acceptance may be from what the overlaps predict before chance is no explanation (1 in 1.7 million)."""

HALF_PRECISION = frozenset({"bfloat16", "float16"})
"""Dtypes in which forwards of different widths may disagree about the better of two nearly tied tokens."""


def c13_serial_calls(context: Context, r: Round) -> Outcome:
    """A round costs one serial target forward, whatever it commits."""
    if r.target_calls is None:
        return NOTHING
    if r.target_calls != 1:
        return Outcome(1, (Finding(f"{r.target_calls} target calls", "1: all positions are scored in one forward"),))
    return Outcome(1)


def c14_short_scoring(context: Context, r: Round) -> Outcome:
    """The clocks of a round are possible: none runs backwards, and the wall time holds all phases."""
    t = r.times
    phases = {
        "propose_ns": t.propose_ns,
        "score_ns": t.score_ns,
        "accept_ns": t.accept_ns,
        "rollback_ns": t.rollback_ns,
        "record_ns": t.record_ns,
    }
    known = {name: value for name, value in phases.items() if value is not None}
    if not known and t.round_ns is None:
        return NOTHING
    findings = [Finding(f"{name} {value}", "0 or more") for name, value in known.items() if value < 0]
    if t.round_ns is not None and t.round_ns < sum(known.values()):
        findings.append(Finding(f"round_ns {t.round_ns}", f"at least the sum of its phases, {sum(known.values())}"))
    return Outcome(1, tuple(findings))


@dataclass(slots=True)
class Sums:
    """What the run-wide clauses add up while the rounds go by."""

    rounds: int = 0
    output: int = 0
    calls: int = 0
    calls_known: bool = True
    scoring_ns: int = 0
    scoring_rounds: int = 0
    tested: int = 0
    """Judged candidates with an overlap, of a sampled run."""
    accepted: int = 0
    expected: float = 0.0
    variance: float = 0.0
    given_up: int = 0
    """Valid positions of the draft's cache that were dropped and fed again."""
    giving_up: int = 0
    """Rounds that did so."""

    def add(self, r: Round, sampled: bool) -> None:
        self.rounds += 1
        self.output += r.committed_after - r.committed_before
        self.calls_known = self.calls_known and r.target_calls is not None
        self.calls += r.target_calls or 0
        scoring_ns = metrics.scoring_ns(r)
        if scoring_ns is not None:
            self.scoring_ns += scoring_ns
            self.scoring_rounds += 1
        if not sampled:
            return
        for p in r.positions:
            if p.fate not in JUDGED or p.overlap is None or not is_probability(p.overlap):
                continue
            if p.draft_prob in (None, 1.0):
                continue  # a one-hot q is no draw: its overlap says nothing about chance
            chance = min(1.0, p.overlap)
            self.tested += 1
            self.accepted += p.fate in ("accepted", "cut")
            self.expected += chance
            self.variance += chance * (1 - chance)


def serial_calls_note(sums: Sums) -> str | None:
    """C13 in numbers."""
    if not sums.calls_known or not sums.calls:
        return None
    return f"{sums.output:,} tokens in {sums.calls:,} target calls, {sums.output / sums.calls:.2f} a call"


def short_scoring_note(sums: Sums, run: RunRecord, costs: Sequence[Cost]) -> str | None:
    """C14 in numbers: the score time ÷ one plain decoding step, and the longest forward of the cost curve ÷ one of a
    single position; None where neither was measured."""
    parts = []
    ratio = metrics.short_scoring_ratio(sums.scoring_ns, sums.scoring_rounds, run.baseline_ms_per_token)
    if ratio is not None:
        parts.append(f"scoring takes {ratio:.2f} × a plain step")
    one = next((c.target_ns for c in costs if c.positions == 1 and c.target_ns), None)
    most = max((c for c in costs if c.target_ns), key=lambda c: c.positions, default=None)
    if one and most and most.target_ns and most.positions > 1:
        parts.append(f"one forward of {most.positions} positions takes {most.target_ns / one:.2f} × one of 1")
    return "; ".join(parts) or None


def given_up_note(sums: Sums) -> str | None:
    """What the draft's cache drops although it stands on the true path costs time, and nothing else."""
    if not sums.given_up:
        return None
    rounds = "1 round" if sums.giving_up == 1 else f"{sums.giving_up:,} rounds"
    positions = "1 valid position" if sums.given_up == 1 else f"{sums.given_up:,} valid positions"
    return f"{rounds} gave up {positions}, which the next round fed again: a cost, no fault"


def lossless_statistic(sums: Sums) -> tuple[Outcome, str | None]:
    """C12 for sampled runs, as a statistic: a draw from q is accepted with probability β = Σ min(p, q)
    (Leviathan et al., theorem 3.5), so the accepted ones must be as many as the overlaps predict."""
    if not sums.tested or sums.variance <= 0:
        return NOTHING, None
    spread = math.sqrt(sums.variance)
    note = (
        f"statistic: {sums.accepted:,} of {sums.tested:,} judged accepted, "
        f"overlap predicts {sums.expected:,.0f} ± {1.96 * spread:,.0f}"
    )
    if abs(sums.accepted - sums.expected) > SIGMAS * spread + 1:
        finding = Finding(
            f"{sums.accepted} of {sums.tested} judged candidates accepted",
            f"{sums.expected:.0f} ± {SIGMAS * spread:.0f}, what the overlaps predict",
        )
        return Outcome(sums.tested, (finding,)), note
    return Outcome(sums.tested), note


def lossless_greedy(run: RunRecord, comparison: PlainComparison) -> tuple[Outcome, str | None]:
    """C12 for greedy runs: the output begins as the target's own greedy output, the measured baseline, does.

    In float32 it must. In half precision it may leave it where the two best tokens are nearly tied: that is told, with
    their margin, and what was the same before it is what was checked.

    Returns:
        The outcome, and what was found in words; nothing for a run whose dtype was not recorded.
    """
    note, parting = sentence(comparison), comparison.parting
    if run.info.target_dtype in HALF_PRECISION:
        if parting is not None:
            note += f" ({run.info.target_dtype} rounds by the width of a forward)"
        return Outcome(comparison.agreed), note
    if run.info.target_dtype != "float32":
        return NOTHING, None
    if parting is None:
        return Outcome(comparison.compared), note
    finding = Finding(
        f"output token {parting.place} is {number(parting.token)}, top-2 margin {number(parting.margin)}",
        f"{parting.plain_token}, as in the target's own greedy output",
    )
    return Outcome(comparison.compared, (finding,)), note
