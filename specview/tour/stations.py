"""The stations, built from a trace: every figure and every token in them comes out of the survey or a measurement."""

from __future__ import annotations

from collections.abc import Callable

from specview import metrics
from specview.tour import cases
from specview.tour.costs import Figures, cost_station
from specview.tour.exhibits import Bar, Bars, Histogram
from specview.tour.on_round import accept, correct, kv_full, kv_rejected, mask, propose, same, score, stop
from specview.tour.questions import Choice, Marks, Option
from specview.tour.station import ORDER, Station, Veil
from specview.tour.survey import Case, Survey
from specview.tour.words import number


def stations(survey: Survey, figures: Figures, found: Survey | None = None) -> tuple[Station, ...]:
    """All stations in the lesson's order.

    Args:
        figures: the cost of scoring several positions.
        found: a survey of another trace, recorded because this one has no discarded candidate that equals the next
            token.
    """
    phases = cases.phases(survey)
    built: dict[str, Station] = {
        "chain": _chain(survey, phases),
        "progress": _progress(survey, phases),
        "cost": cost_station(figures, phases or survey.cases[0]),
        "flops": _flops(survey, phases),
        "close": Station("close", (phases or survey.cases[0]).place),
    }
    whole: tuple[tuple[str, Case | None, Callable[[Survey, Case], Station]], ...] = (
        ("propose", phases, propose),
        ("score", phases, score),
        ("accept", phases, accept),
        ("correct", phases, correct),
        ("mask", phases, mask),
        ("stop", cases.tempting(survey), stop),
        ("kv_rejected", cases.kv_rejected(survey), kv_rejected),
        ("kv_full", cases.kv_full(survey), kv_full),
    )
    for key, case, build in whole:
        built[key] = build(survey, case) if case is not None else Station(key, None)
    source, case = survey, cases.same(survey)
    if case is None and found is not None:
        source, case = found, cases.same(found)
    built["same"] = same(source, case) if case is not None else Station("same", None)
    return tuple(built[key] for key in ORDER)


def _calls(survey: Survey) -> int:
    t = survey.totals
    return t.num_rounds if t.target_calls is None else t.target_calls


def _start(survey: Survey, case: Case | None) -> Case:
    return case if case is not None else survey.cases[0]


def _chain(survey: Survey, case: Case | None) -> Station:
    """Serial target calls of the run against its tokens (C13)."""
    t, calls = survey.totals, _calls(survey)
    kind = "round" if calls == t.num_rounds else "counted"
    amounts = {"candidate": t.num_draft_tokens, "token": t.num_output_tokens, kind: calls}
    options, right = _numbered(amounts, calls)
    values = {"tokens": number(f"{t.num_output_tokens:,}"), "calls": number(f"{calls:,}")}
    bars = (
        Bar("plain", t.num_output_tokens, f"{t.num_output_tokens:,}"),
        Bar("here", calls, f"{calls:,}", role="accepted", late=True),
    )
    return Station(
        "chain",
        _start(survey, case).place,
        Choice(options, right),
        veil=Veil("propose"),
        after="propose",
        values=values,
        variants=() if calls < t.num_output_tokens else ("long",),
        exhibit=Bars((bars,)),
        timeline=True,
    )


def _numbered(amounts: dict[str, int], right: int) -> tuple[tuple[Option, ...], int]:
    """Options with different numbers, largest first; of equal ones the last named stays."""
    by_number = {amount: key for key, amount in amounts.items()}
    order = sorted(by_number, reverse=True)
    options = tuple(Option(by_number[n], values={"n": number(f"{n:,}")}) for n in order)
    return options, order.index(right)


def _progress(survey: Survey, case: Case | None) -> Station:
    """Tokens a round: between 1 and γ+1 (C8)."""
    t = survey.totals
    gamma = len(t.proposed_at)
    if gamma == 0:
        return Station("progress", None)
    rounds = dict(enumerate(metrics.acceptance_histogram(t), start=1))
    most = gamma + 1
    options = tuple(
        Option(
            "zero" if n == 0 else "over" if n > most else "some",
            (number(n),),
            {"item": number(n), "less": number(max(0, n - 1))},
        )
        for n in range(most + 2)
    )
    mean = metrics.mean_acceptance_length(t)
    values = {
        "gamma": number(gamma),
        "most": number(most),
        "rounds": number(f"{t.num_rounds:,}"),
        "mean": number("–" if mean is None else f"{mean:.2f}"),
    }
    return Station(
        "progress",
        _start(survey, case).place,
        Marks(options, frozenset(range(1, most + 1))),
        values=values,
        exhibit=Histogram(tuple((n, rounds.get(n, 0)) for n in range(most + 2))),
        timeline=True,
    )


def _flops(survey: Survey, case: Case | None) -> Station:
    """Positions computed against tokens, beside the serial calls: what speculation does not save."""
    t, calls = survey.totals, _calls(survey)
    positions = t.num_draft_tokens + t.num_rounds  # γ+1 a round, whatever γ was
    tokens = t.num_output_tokens
    if not tokens:
        return Station("flops", None)
    kind = "more" if positions > tokens else "same" if positions == tokens else "less"
    keys = ("less", "same", "more")
    bars = (
        (
            Bar("plain_positions", tokens, f"{tokens:,}"),
            Bar("positions", positions, f"{positions:,}", role="rejected_plain", late=True),
        ),
        (
            Bar("plain_calls", tokens, f"{tokens:,}", late=True),
            Bar("calls", calls, f"{calls:,}", role="accepted", late=True),
        ),
    )
    return Station(
        "flops",
        _start(survey, case).place,
        Choice(tuple(Option(key) for key in keys), keys.index(kind)),
        values={
            "tokens": number(f"{tokens:,}"),
            "positions": number(f"{positions:,}"),
            "ratio": number(f"{positions / tokens:.2f}"),
            "calls": number(f"{calls:,}"),
        },
        variants=(kind,),
        exhibit=Bars(bars),
        timeline=True,
    )
