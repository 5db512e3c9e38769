"""The statistics screen: what a run was like as a whole, and what another γ might have made of it."""

from __future__ import annotations

from typing import ClassVar

from rich.style import Style
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from specview import metrics
from specview.plain import sentence
from specview.summary import Spread
from specview.tui.charts import bar_row, columns, side_by_side
from specview.tui.ink import Line, bar, spread, wrap
from specview.tui.model.statistics import Bin, Statistics, best
from specview.tui.model.titles import draft_name, model_name, settings
from specview.tui.numbers import MISSING, count, milliseconds, plain, prob
from specview.tui.screens.closing import close
from specview.tui.widgets.scroll import ScrollCanvas

_LABEL = 8
_MIN_COLUMN = 50


class StatisticsPane(ScrollCanvas):
    """Two columns where there is room for them, one otherwise."""

    def __init__(self, statistics: Statistics | None = None) -> None:
        super().__init__()
        self.statistics = statistics

    def show(self, statistics: Statistics) -> None:
        self.statistics = statistics
        self.redraw()

    def draw(self, width: int, height: int) -> list[Line]:
        if self.statistics is None:
            return [[], [("  summing up the run …", self.ink.muted)]]
        head = self._head(self.statistics, width)
        if width < 2 * _MIN_COLUMN + 3:
            left = self._left(self.statistics, width)
            return [*head, *left, [], *self._right(self.statistics, width)]
        half = (width - 3) // 2
        blocks = side_by_side(
            self._left(self.statistics, half),
            self._right(self.statistics, width - 3 - half),
            half,
            " │ ",
            self.ink.rule,
        )
        return [*head, *blocks]

    def _head(self, s: Statistics, width: int) -> list[Line]:
        ink, info, t = self.ink, s.summary.run.info, s.summary.totals
        left: Line = [
            (model_name(info.target) or "target", ink.strong),
            (" ◂ ", ink.faint),
            (draft_name(info), ink.draft),
            ("".join(f" · {x}" for x in settings(info)), ink.muted),
        ]
        right: Line = [(f"{count(t.num_rounds)} rounds · {count(t.num_output_tokens)} tokens", ink.muted)]
        return [spread(left, right, width, self.base), [("─" * width, ink.rule)], *self._against_plain(s, width)]

    def _against_plain(self, s: Statistics, width: int) -> list[Line]:
        """How far a greedy run goes along with plain decoding; nothing for a sampled run."""
        found = s.summary.plain
        if found is None:
            return []
        said = self.ink.muted if found.parting is None else self.ink.strong
        words = sentence(found)
        return [*wrap([(f"{words[0].upper()}{words[1:]}.", said)], width), []]

    def _left(self, s: Statistics, width: int) -> list[Line]:
        blocks = (
            self._by_position(s, width),
            self._histogram(s, width),
            self._along("overlap along the output", s.overlap, width, self.ink.target, 1.0, s.sampled),
            self._along("ms per token along the output", s.ms_per_token, width, self.ink.bonus, None, False),
        )
        return _stacked(blocks)

    def _right(self, s: Statistics, width: int) -> list[Line]:
        return _stacked((self._speed(s, width), self._phases(s, width), self._costs(s, width), self._what_if(s, width)))

    def _title(self, text: str, note: str, width: int) -> Line:
        return spread([(text, self.ink.strong)], [(note, self.ink.faint)], width, self.base)

    def _by_position(self, s: Statistics, width: int) -> list[Line]:
        ink, t = self.ink, s.summary.totals
        rates = metrics.acceptance_rate_per_position(t)
        conditional = metrics.conditional_acceptance_per_position(t)
        overlaps = metrics.overlap_per_position(t)
        if not rates:
            return []
        lines = [self._title("Acceptance by position", f"of {count(t.num_rounds)} rounds", width)]
        room = max(4, width - 4 - 3 * 9)
        lines.append([(" " * (4 + room) + "of all".rjust(9) + "of judged".rjust(10) + "overlap".rjust(8), ink.faint)])
        for i, rate in enumerate(rates[:16]):
            overlap = overlaps[i] if i < len(overlaps) else None
            lines.append(
                [
                    (f"{i + 1:>3} ", ink.muted),
                    (bar(rate, room), ink.accepted),
                    (prob(rate, 9), ink.text),
                    (prob(conditional[i], 10), ink.text),
                    (prob(overlap, 8), ink.target),
                ]
            )
        return lines

    def _histogram(self, s: Statistics, width: int) -> list[Line]:
        ink, t = self.ink, s.summary.totals
        histogram = metrics.acceptance_histogram(t)
        most = max(histogram, default=0)
        if not most:
            return []
        mean = metrics.mean_acceptance_length(t)
        note = f"{plain(mean, 0)} tokens a round, the target's own included" if mean is not None else ""
        lines = [self._title("Accepted in a round", note, width)]
        size = max(len(count(n)) for n in histogram[:17]) + 7
        for k, n in enumerate(histogram[:17]):
            text = f"{count(n)}  {100 * n / t.num_rounds:3.0f} %".rjust(size)
            style = ink.accepted if k else ink.refused
            lines.append(bar_row(f"{k:>3}", n / most, width, text, ink.muted, style, label_width=3))
        return lines

    def _along(
        self, title: str, bins: tuple[Bin, ...], width: int, style: Style, top: float | None, sampled: bool
    ) -> list[Line]:
        known = [b.value for b in bins if b.value is not None]
        if not known:
            return []
        low, high = min(known), max(known)
        note = f"{plain(low, 0)} … {plain(high, 0)}" + (" · sampled" if sampled else "")
        lines = [self._title(title[0].upper() + title[1:], note, width)]
        lines += columns([b.value for b in bins], width, 3, style, self.ink.faint, top)
        wide = max(1, width // len(bins)) * len(bins)
        last = f"{count(bins[-1].last + 1)}"
        lines.append([("1" + last.rjust(max(1, min(wide, width) - 1)), self.ink.faint)])
        return lines

    def _speed(self, s: Statistics, width: int) -> list[Line]:
        ink, t, run = self.ink, s.summary.totals, s.summary.run
        judged = t.num_judged_draft_tokens
        first = s.summary.time_to_first_token_ms
        of_judged = f"{count(t.num_accepted_draft_tokens)} of {count(judged)} judged" if judged is not None else ""
        rows = (
            ("measured speed-up", _times(s.summary.measured_speedup), "against plain decoding in this run"),
            ("tokens per second", plain(metrics.tokens_per_second(t), 0, 1), s.summary.prefill_note),
            ("ms per token", plain(metrics.ms_per_token(t), 0), f"plain {plain(run.baseline_ms_per_token, 0)}"),
            ("acceptance", _percent(metrics.draft_acceptance_rate(t)),
             f"{count(t.num_accepted_draft_tokens)} of {count(t.num_draft_tokens)} proposed"),
            ("judged acceptance", _percent(metrics.judged_acceptance_rate(t)), of_judged),
            ("target calls per token", plain(metrics.target_calls_per_token(t), 0), "plain decoding has 1"),
            ("first token, ms", plain(first[1], 0, 1) if first else MISSING, "median, prefill of both models included"),
        )  # fmt: skip
        lines = [self._title("Speed", "", width)]
        for name, value, remark in rows:
            lines.append([(f"{name:<24}", ink.muted), (f"{value:>8}", ink.text), (f"  {remark}", ink.faint)])
        return lines

    def _phases(self, s: Statistics, width: int) -> list[Line]:
        ink = self.ink
        clocks = s.summary.clocks
        wall = clocks.get("round")
        if wall is None:
            return []
        lines = [self._title("Phases", "ms", width)]
        room = max(0, width - 10 - 27)
        lines.append([(" " * 10 + "mean".rjust(9) + "median".rjust(9) + "p95".rjust(9), ink.faint)])
        for phase in metrics.PHASES:
            clock: Spread | None = clocks.get(phase)
            if clock is None:
                continue
            share = clock.mean / wall.mean if wall.mean else 0.0
            lines.append(
                [
                    (f"{phase:<10}", ink.muted),
                    (milliseconds(clock.mean, 9), ink.text),
                    (milliseconds(clock.median, 9), ink.text),
                    (milliseconds(clock.p95, 9), ink.text),
                    (" " + bar(share, room - 1) if room > 4 else "", ink.faint if phase == "round" else ink.target),
                ]
            )
        return lines

    def _costs(self, s: Statistics, width: int) -> list[Line]:
        ink = self.ink
        most = max((c.target_ns or 0 for c in s.costs), default=0)
        if not most:
            return []
        context = next((c.context for c in s.costs if c.context is not None), None)
        note = "ms of one target forward" + (f", {count(context)} tokens cached" if context is not None else "")
        lines = [self._title("Cost of scoring n positions at once", note, width)]
        one = next((c.target_ns for c in s.costs if c.positions == 1 and c.target_ns), None)
        for cost in s.costs:
            if cost.target_ns is None:
                continue
            times = f"{cost.target_ns / one:.2f}×" if one else ""
            text = f"{milliseconds(cost.target_ns, 7)}{times:>8}"
            lines.append(
                bar_row(
                    f"{cost.positions:>3}", cost.target_ns / most, width, text, ink.muted, ink.target, label_width=3
                )
            )
        return lines

    def _what_if(self, s: Statistics, width: int) -> list[Line]:
        ink = self.ink
        estimates = s.what_if()
        choice = best(estimates)
        if choice is None or s.alpha is None or s.summary.cost_ratio is None:
            return [
                self._title("What if γ were …", "", width),
                [("unknown: this trace records no cost curve, or no overlap", ink.faint)],
            ]
        note = f"estimate · α {prob(s.alpha, 0)} · c {prob(s.summary.cost_ratio, 0)}"
        lines = [self._title("What if γ were …", note, width)]
        top = max(max(w.by_theorem, w.by_cost_curve or 0.0) for w in estimates)
        curve = any(w.by_cost_curve is not None for w in estimates)
        heads = "theorem 3.8".rjust(12) + ("cost curve".rjust(12) if curve else "")
        room = max(4, width - 4 - len(heads) - 11)
        lines.append([("expected speed-up".ljust(4 + room)[: 4 + room] + heads, ink.faint)])
        for w in estimates:
            mine = w.gamma == s.summary.gamma
            value = w.by_cost_curve if w.by_cost_curve is not None else w.by_theorem
            style = ink.bonus if w is choice else ink.accepted if mine else ink.faint
            sign = " ◂ best" if w is choice else " ◂ this run" if mine else ""
            lines.append(
                [
                    (f"{w.gamma:>3} ", ink.text if mine or w is choice else ink.muted),
                    (bar(value / top, room), style),
                    (_times(w.by_theorem).rjust(12), ink.muted),
                    (_times(w.by_cost_curve).rjust(12) if curve else "", ink.text),
                    (sign, style),
                ]
            )
        measured = s.summary.measured_speedup
        own = f"This run: γ {s.summary.gamma}, measured {_times(measured)}. " if measured is not None else ""
        note = f"{own}Best by estimate: γ {choice.gamma}. It assumes independent acceptances."
        return lines + wrap([(note, ink.faint)], width)


class StatisticsScreen(Screen[None]):
    DEFAULT_CSS = """
    StatisticsScreen { background: $background; }
    StatisticsScreen StatisticsPane { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,s", "close", "close", show=False)]

    def __init__(self) -> None:
        super().__init__()
        self.pane = StatisticsPane()

    def compose(self) -> ComposeResult:
        yield self.pane

    def on_mount(self) -> None:
        self.pane.focus()

    def action_close(self) -> None:
        close(self)


def _stacked(blocks: tuple[list[Line], ...]) -> list[Line]:
    """Blocks under each other with a line to breathe; empty ones are left out."""
    lines: list[Line] = []
    for block in blocks:
        if block:
            lines += [[], *block] if lines else block
    return lines


def _times(value: float | None) -> str:
    return MISSING if value is None else f"{value:.2f}×"


def _percent(value: float | None) -> str:
    return MISSING if value is None else f"{100 * value:.1f} %"
