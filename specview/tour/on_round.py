"""The stations that look at one recorded round: its four phases, the mask, the stop, the caches."""

from __future__ import annotations

from collections.abc import Mapping

from rich.cells import cell_len

from engine.round import Position, Round
from specview import metrics
from specview.story import probability
from specview.tour import cases
from specview.tour.costs import milliseconds
from specview.tour.exhibits import Mask
from specview.tour.questions import Choice, Marks, Option, Prefix
from specview.tour.station import Station, Veil
from specview.tour.survey import Case, Survey
from specview.tour.words import Word, number

_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


def sub(letter: str, index: int) -> str:
    """y₃"""
    return letter + str(index).translate(_SUBSCRIPTS)


def _prob(value: float | None) -> Word:
    return number("–" if value is None else probability(value))


def _named(survey: Survey, round_: Round) -> dict[str, Word]:
    """y1, y2, … and how many of them there are."""
    names = {f"y{i}": survey.word(c, "proposed") for i, c in enumerate(round_.candidates, start=1)}
    return {**names, "n": number(round_.proposed), "rows": number(round_.proposed + 1)}


def _candidate(survey: Survey, position: Position, key: str, role: str = "proposed") -> Option:
    name = survey.word(position.candidate, role)
    return Option(key, (Word(f"{sub('y', position.position)} "), name), {"item": name})


def _counted(numbers: Mapping[int, str], actual: int) -> Choice:
    """Numbers to choose from; one that the trace counts and nobody expects is among them."""
    keys = {**numbers} if actual in numbers else {**numbers, actual: "other"}
    order = sorted(keys)
    return Choice(tuple(Option(keys[n], values={"n": number(n)}) for n in order), order.index(actual))


def propose(survey: Survey, case: Case) -> Station:
    """The draft's own chain (C1)."""
    round_ = case.round
    calls = round_.draft_calls
    if calls is None:
        return Station("propose", None)
    share = metrics.cost_ratio(survey.costs)
    return Station(
        "propose",
        case.place,
        _counted({1: "one", round_.proposed: "each"}, calls),
        veil=Veil("propose"),
        after="propose",
        values={
            **_named(survey, round_),
            "calls": number(calls),
            "share": number("–" if share is None else f"{share:.2f}"),
        },
        variants=(
            *(("lookup",) if survey.run.info.proposer == "prompt-lookup" else ()),
            *(("other",) if calls != round_.proposed else ()),
            *(("uncosted",) if share is None else ()),
            *(("greedy",) if survey.greedy else ()),
        ),
        selected=1,
    )


def score(survey: Survey, case: Case) -> Station:
    """One forward for γ+1 rows (C2)."""
    round_ = case.round
    calls = round_.target_calls
    if calls is None:
        return Station("score", None)
    ns = round_.times.score_ns
    return Station(
        "score",
        case.place,
        _counted({1: "one", round_.proposed: "each", round_.proposed + 1: "row"}, calls),
        veil=Veil("propose"),
        after="score",
        values={
            **_named(survey, round_),
            "calls": number(calls),
            "last": Word(sub("p", round_.proposed + 1)),
            "time": number("–" if ns is None else f"{milliseconds(ns)} ms"),
        },
        variants=() if calls == 1 else ("other",),
        selected=1,
    )


def accept(survey: Survey, case: Case) -> Station:
    """The acceptance test, candidate by candidate (C3, C4)."""
    round_ = case.round
    judged = [p for p in round_.positions if p.fate in ("accepted", "rejected")]
    if not survey.greedy and any(p.u is None for p in judged):
        return Station("accept", None)
    refused = cases.rejected(round_)
    values = {**_named(survey, round_), "count": number(round_.accepted)}
    if refused is not None:
        ratio = min(1.0, (refused.target_prob or 0) / (refused.draft_prob or 1))
        values |= {
            "refused": survey.word(refused.candidate, "rejected"),
            "ratio": _prob(ratio),
            "u": _prob(refused.u),
            "rank": number("–" if refused.rank is None else refused.rank),
        }
    options = tuple(_candidate(survey, p, "candidate") for p in round_.positions[: round_.proposed])
    variants = ("full",) if refused is None else ()
    return Station(
        "accept",
        case.place,
        Prefix(options, round_.accepted),
        veil=Veil("score", draws=not survey.greedy),
        after="accept",
        values=values,
        variants=(*(f"greedy_{v}" for v in variants), "greedy") if survey.greedy else variants,
    )


def correct(survey: Survey, case: Case) -> Station:
    """The residual: which token can take the place of the refused one (C6)."""
    round_, refused = case.round, cases.rejected(case.round)
    offered = cases.replacements(case)
    if refused is None or len(offered) < 2 or round_.correction_token is None:
        return Station("correct", None)
    p, q = dict(refused.target_top), dict(refused.draft_top)
    p |= {refused.candidate or 0: refused.target_prob or 0.0}
    q |= {refused.candidate or 0: refused.draft_prob or 0.0}
    p[round_.correction_token] = round_.correction_target_prob or 0.0
    q[round_.correction_token] = round_.correction_draft_prob or 0.0
    widest = max(cell_len(survey.name(token)) for token in offered)
    options = []
    for token in offered:
        key = "new" if token == round_.correction_token else "refused" if token == refused.candidate else "draft"
        name = survey.word(token, "rejected" if key == "refused" else "text")
        blank = Word(" " * (widest - cell_len(name.text)))
        target = Word(f"  p {probability(p[token]) if token in p else '–':<5}", "target")
        label = (name, blank, target, Word(f" q {probability(q[token])}", "draft"))
        options.append(Option(key, label, {"item": name}))
    return Station(
        "correct",
        case.place,
        Choice(tuple(options), offered.index(round_.correction_token)),
        veil=Veil("accept"),
        values={
            "refused": survey.word(refused.candidate, "rejected"),
            "new": survey.word(round_.correction_token, "correction"),
            "prob": _prob(round_.correction_prob),
        },
        variants=("greedy",) if survey.greedy else (),
        selected=refused.position,
    )


def mask(survey: Survey, case: Case) -> Station:
    """Which prefix each row of the one forward saw (C2)."""
    round_ = case.round
    row = min(3, round_.proposed)
    prefix = Word(f"…{survey.name(case.before, 8) if case.before is not None else ''}{survey.name(case.pending, 10)}")
    candidates = [_candidate(survey, p, "seen" if p.position < row else "later") for p in round_.positions]
    options = (Option("prefix", (prefix,), {"item": prefix}), *candidates[: round_.proposed])
    columns = (Word(prefix.text, "prompt"), *(survey.word(c, "proposed") for c in round_.candidates))
    return Station(
        "mask",
        case.place,
        Marks(options, frozenset(range(row))),
        veil=Veil("score"),
        after="score",
        values={
            "row": Word(sub("p", row), "target"),
            "judged": survey.word(round_.candidates[row - 1], "proposed"),
            "last": survey.word(round_.candidates[row - 2], "proposed"),
        },
        exhibit=Mask(columns, round_.proposed + 1, row),
        selected=row,
    )


def _behind(survey: Survey, case: Case) -> dict[str, Word]:
    """The refused candidate, the one behind it, and the correction."""
    refused, heir = cases.rejected(case.round), cases.heir(case.round)
    assert refused is not None
    assert heir is not None
    return {
        "refused": survey.word(refused.candidate, "rejected"),
        "heir": survey.word(heir.candidate, "proposed"),
        "new": survey.word(case.round.correction_token, "correction"),
        "p": _prob(heir.target_prob),
        "q": _prob(heir.draft_prob),
    }


def stop(survey: Survey, case: Case) -> Station:
    """Why nothing behind the first refusal is judged (C4, C5)."""
    refused = cases.rejected(case.round)
    assert refused is not None
    return Station(
        "stop",
        case.place,
        Choice((Option("keep"), Option("judge"), Option("drop")), 2),
        veil=Veil("accept", fates=refused.position),
        values=_behind(survey, case),
        selected=refused.position + 1,
    )


def same(survey: Survey, case: Case) -> Station:
    """The discarded candidate that equals the next token (C5)."""
    refused = cases.rejected(case.round)
    assert refused is not None
    later = cases.later_prob(case)
    values = {**_behind(survey, case), "later": _prob(later)}
    known = later is not None and cases.judgeable(cases.heir(case.round) or refused)
    return Station(
        "same",
        case.place,
        Choice((Option("equal"), Option("test"), Option("never")), 2),
        veil=Veil("accept", fates=refused.position),
        values=values,
        variants=() if known else ("unknown",),
        selected=refused.position + 1,
    )


def kv_rejected(survey: Survey, case: Case) -> Station:
    """Which slots survive a rejection (C9)."""
    refused = cases.rejected(case.round)
    assert refused is not None
    return _kv("kv_rejected", survey, case, {"refused": survey.word(refused.candidate, "rejected")}, "correction")


def kv_full(survey: Survey, case: Case) -> Station:
    """Which slots survive a full acceptance (C9)."""
    return _kv("kv_full", survey, case, {}, "bonus")


_KEYS = {"accepted": "kept", "rejected": "refused", "discarded": "behind"}


def _kv(key: str, survey: Survey, case: Case, values: dict[str, Word], kind: str) -> Station:
    round_ = case.round
    pending = survey.word(case.pending, "text")
    new = survey.word(round_.correction_token, kind)
    options = [Option("pending", values={"item": pending})]
    for position in round_.positions[: round_.proposed]:
        options.append(_candidate(survey, position, _KEYS[position.fate or "accepted"], position.fate or "proposed"))
    options.append(Option("new", values={"item": new}))
    kept = (round_.target_kv_after or 0) - (round_.target_kv_before or 0)
    written = round_.target_kv_written or 0
    return Station(
        key,
        case.place,
        Marks(tuple(options), frozenset(range(kept))),
        veil=Veil("accept"),
        values={
            **values,
            "pending": pending,
            "new": new,
            "n": number(round_.proposed),
            "kept": number(kept),
            "gone": number(written - kept),
        },
        kv=True,
    )
