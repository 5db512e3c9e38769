"""The counters of a comparison side by side with their difference, for the screen and for plain text."""

from __future__ import annotations

from dataclasses import dataclass

from specview import metrics
from specview.plain import sentence
from specview.text import showable
from specview.tui.model.compare import Comparison
from specview.tui.model.titles import draft_name, model_name, settings
from specview.tui.numbers import MISSING, count, plain, prob

LEGEND = "pp: percentage points"
"""What the unit of a difference of two percentages means; it stands once, under the counters."""


@dataclass(frozen=True, slots=True)
class Counter:
    """One metric on both sides. `difference` is right minus left."""

    name: str
    left: float | None
    right: float | None
    percent: bool = False

    @property
    def difference(self) -> float | None:
        return None if self.left is None or self.right is None else self.right - self.left


def counters(c: Comparison) -> list[Counter]:
    """The metrics worth comparing, in the order of metrics.md."""

    def both(name: str, value: object, percent: bool = False) -> Counter:
        assert callable(value)
        return Counter(name, value(c.left.summary), value(c.right.summary), percent)

    def clock(phase: str) -> object:
        return lambda s: None if s.clocks[phase] is None else s.clocks[phase].median / metrics.NS_PER_MS

    return [
        both("num_rounds", lambda s: s.totals.num_rounds),
        both("num_draft_tokens", lambda s: s.totals.num_draft_tokens),
        both("num_accepted_draft_tokens", lambda s: s.totals.num_accepted_draft_tokens),
        both("num_output_tokens", lambda s: s.totals.num_output_tokens),
        both("draft_acceptance_rate", lambda s: metrics.draft_acceptance_rate(s.totals), True),
        both("judged_acceptance_rate", lambda s: metrics.judged_acceptance_rate(s.totals), True),
        both("overlap", lambda s: metrics.mean_overlap(s.totals), True),
        both("mean_acceptance_length", lambda s: metrics.mean_acceptance_length(s.totals)),
        both("target_calls_per_token", lambda s: metrics.target_calls_per_token(s.totals)),
        both("propose_ms (median)", clock("propose")),
        both("score_ms (median)", clock("score")),
        both("round_ms (median)", clock("round")),
        both("tokens_per_second", lambda s: metrics.tokens_per_second(s.totals)),
        both("baseline_ms_per_token", lambda s: s.run.baseline_ms_per_token),
        both("measured_speedup", lambda s: s.measured_speedup),
        both("cost_ratio", lambda s: s.cost_ratio),
    ]


def value_text(counter: Counter, value: float | None) -> str:
    """One side of a counter."""
    if value is None:
        return MISSING
    if counter.percent:
        return f"{100 * value:.1f} %"
    return count(value) if isinstance(value, int) else plain(value, 0)


def difference_text(counter: Counter) -> str:
    """Right minus left, with its sign; that of two percentages in percentage points, since it is no share of either."""
    difference = counter.difference
    if difference is None:
        return MISSING
    sign = "+" if difference > 0 else "−" if difference < 0 else ""
    if counter.percent:
        return f"{sign}{100 * abs(difference):.1f} pp"
    return sign + value_text(counter, abs(difference))


def table(comparison: Comparison) -> list[str]:
    """The comparison as plain text, for a terminal that is none."""
    c = comparison
    lines = []
    for letter, side in (("A", c.left), ("B", c.right)):
        info = side.summary.run.info
        lines.append(f"{letter}  {model_name(info.target)} ◂ {draft_name(info)} · {' · '.join(settings(info))}")
    place = f"prompt {c.sequence_index + 1} of {c.sequence_count}: " if c.sequence_count > 1 else ""
    if c.divergence is None:
        lines.append(f"{place}the outputs agree on all {c.shared} tokens that both have")
    else:
        lines.append(f"{place}the outputs agree on {c.shared} tokens and part at output token {c.divergence + 1}")
        for letter, side in (("A", c.left), ("B", c.right)):
            if side.margin is not None:
                lines.append(f"{letter}  top-2 margin of the target there: {prob(side.margin, 0)}")
    for letter, side in (("A", c.left), ("B", c.right)):
        if side.summary.plain is not None:
            lines.append(f"{letter}  {sentence(side.summary.plain)}")
    lines.append("")
    lines.append(f"{'counter':<28}{'A':>11}{'B':>11}{'B − A':>12}")
    for counter in counters(c):
        left, right = value_text(counter, counter.left), value_text(counter, counter.right)
        lines.append(f"{counter.name:<28}{left:>11}{right:>11}{difference_text(counter):>12}")
    lines.append(LEGEND)
    return [showable(line) for line in lines]
