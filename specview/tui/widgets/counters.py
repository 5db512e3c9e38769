"""The counters: ms per phase, and the rates of the last rounds beside those of the whole run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.round import Round
from specview import metrics
from specview.metrics import Totals
from specview.tui.ink import Line, width_of
from specview.tui.model.view import View
from specview.tui.numbers import MISSING, count, milliseconds, plain, short
from specview.tui.widgets.canvas import Hit
from specview.tui.widgets.pane import Pane

_PHASES = ("propose", "score", "accept", "rollback", "record", "round")
_PHASE_TIPS = {
    "propose": "propose_ms: the draft proposes its candidates, one after the other",
    "score": "score_ms: the target's one forward over all γ+1 positions",
    "accept": "accept_ms: acceptance test, residual and draw",
    "rollback": "rollback_ms: both caches go back to the true path",
    "record": "record_ms: the instrument itself",
    "round": "round_ms: wall time of the round, at least the sum of its phases",
}
_LABEL = 8


class CountersPane(Pane):
    """Two tables side by side; where they do not fit, the rates stay and the phases fold away."""

    def draw_view(self, view: View, width: int, height: int) -> list[Line]:
        phases = self._phases(view)
        beside = width - width_of(phases[0]) - 3
        columns = _fitting(beside)
        if len(columns) < 3:
            self.hits.clear()
            rates = self._rates(view, 0, _fitting(width))
            return rates
        gap: Line = [(" │ ", self.ink.rule)]
        rates = self._rates(view, width - beside, columns)
        return [[*a, *gap, *b] for a, b in zip(phases, rates, strict=True)]

    def _phases(self, view: View) -> list[Line]:
        ink = self.ink
        round_ = view.snapshot.round
        head: Line = [("ms".ljust(_LABEL), ink.faint)]
        now: Line = [("round".ljust(_LABEL), ink.muted)]
        mean: Line = [("mean".ljust(_LABEL), ink.muted)]
        x = _LABEL
        for name in _PHASES:
            size = max(6, len(name) + 1)
            head.append((name.rjust(size), ink.faint))
            now.append((milliseconds(_phase_ns(round_, name), size), ink.text))
            of_run = metrics.phase_ms(view.totals, name) if view.totals is not None else None
            mean.append((milliseconds(of_run * 1e6 if of_run is not None else None, size), ink.muted))
            self.hits += [Hit(y, x, size, "counter", 0, _PHASE_TIPS[name]) for y in range(3)]
            x += size
        return [head, now, mean]

    def _rates(self, view: View, x: int, columns: list[Rate]) -> list[Line]:
        ink = self.ink
        baseline = view.snapshot.run.baseline_ms_per_token if view.snapshot.run is not None else None
        recent, whole = view.snapshot.recent, view.totals
        head: Line = [(" " * _LABEL, ink.faint)]
        first: Line = [(f"last {min(16, view.snapshot.cursor.round + 1)}".ljust(_LABEL), ink.muted)]
        second: Line = [("run".ljust(_LABEL), ink.muted)]
        x += _LABEL
        for rate in columns:
            head.append((rate.name.rjust(rate.width), ink.faint))
            first.append((rate.text(recent, baseline), ink.text))
            second.append((rate.text(whole, baseline), ink.muted))
            for y, totals in ((0, whole), (1, recent), (2, whole)):
                self.hits.append(Hit(y, x, rate.width, "counter", 0, _with_numbers(rate.tip, totals)))
            x += rate.width
        return [head, first, second]


@dataclass(frozen=True, slots=True)
class Rate:
    """A column of the rates."""

    name: str
    width: int
    keep: int
    """The column with the smallest number goes first when there is no room."""
    tip: str
    value: Callable[[Totals, float | None], str]

    def text(self, totals: Totals | None, baseline: float | None) -> str:
        known = totals is not None and totals.num_rounds
        return (self.value(totals, baseline) if totals is not None and known else MISSING).rjust(self.width)


def _fitting(width: int) -> list[Rate]:
    """The columns that fit, in their usual order."""
    columns = list(_RATES)
    while columns and _LABEL + sum(r.width for r in columns) > width:
        columns.remove(min(columns, key=lambda r: r.keep))
    return columns


def _phase_ns(round_: Round | None, name: str) -> int | None:
    value: int | None = getattr(round_.times, f"{name}_ns") if round_ is not None else None
    return value


def _accepted(t: Totals, _: float | None) -> str:
    rate = metrics.draft_acceptance_rate(t)
    return MISSING if rate is None else f"{100 * rate:.0f} % of {short(t.num_draft_tokens)}"


def _judged(t: Totals, _: float | None) -> str:
    rate = metrics.judged_acceptance_rate(t)
    return MISSING if rate is None else f"{100 * rate:.0f} % of {short(t.num_judged_draft_tokens or 0)}"


def _speedup(t: Totals, baseline: float | None) -> str:
    value = metrics.measured_speedup(t, baseline)
    return MISSING if value is None else f"{value:.2f}×"


def _rate(t: Totals, _: float | None) -> str:
    value = metrics.tokens_per_second(t)
    return plain(value, 0, 0 if value is not None and value >= 100 else 1)


def _with_numbers(tip: str, t: Totals | None) -> str:
    if t is None:
        return tip
    wall = f"{t.round_ns / 1e9:.3g} s" if t.round_ns is not None else "no clock"
    return (
        f"{tip}\n{count(t.num_rounds)} rounds · {count(t.num_draft_tokens)} proposed · "
        f"{count(t.num_accepted_draft_tokens)} accepted · {count(t.num_output_tokens)} tokens · {wall}"
    )


_RATES = (
    Rate("tok/s", 7, 5, "tokens_per_second: output tokens ÷ wall seconds of the rounds, prefill apart", _rate),
    Rate("accepted", 16, 4, "draft_acceptance_rate: accepted ÷ proposed", _accepted),
    Rate("judged", 16, 0, "judged_acceptance_rate: accepted ÷ judged, an estimate of α", _judged),
    Rate(
        "tok/round",
        10,
        2,
        "mean_acceptance_length: 1 + accepted ÷ rounds",
        lambda t, _: plain(metrics.mean_acceptance_length(t), 0),
    ),
    Rate(
        "calls/tok",
        10,
        1,
        "target calls ÷ output tokens; plain decoding has 1",
        lambda t, _: plain(metrics.target_calls_per_token(t), 0),
    ),
    Rate("speed-up", 9, 3, "measured_speedup: baseline ms per token ÷ speculative ms per token, same run", _speedup),
)
