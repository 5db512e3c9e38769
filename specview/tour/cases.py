"""Which recorded round shows a thing best: one rule a station, None where the trace has no such round."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from engine.round import Position, Round
from specview.tour.survey import Case, Survey

Score = tuple[float, ...]
MOST_PROPOSED = 8
"""A round with more candidates does not fit beside its guide."""
CLEAR = 0.1
"""A correction with this chance in the residual convinces more than one that was drawn by luck."""


def best(cases: Iterable[Case], score: Callable[[Case], Score | None]) -> Case | None:
    """The case with the highest score, the earliest of equals; None when no case has one."""
    found: tuple[Score, Case] | None = None
    for case in cases:
        value = score(case)
        if value is not None and (found is None or value > found[0]):
            found = value, case
    return found[1] if found is not None else None


def rejected(round_: Round) -> Position | None:
    """The refused candidate, which ends the round."""
    return next((p for p in round_.positions if p.fate == "rejected"), None)


def at(round_: Round, position: int) -> Position | None:
    return next((p for p in round_.positions if p.position == position), None)


def heir(round_: Round) -> Position | None:
    """The discarded candidate that stood directly behind the refused one."""
    refused = rejected(round_)
    behind = at(round_, refused.position + 1) if refused is not None else None
    return behind if behind is not None and behind.fate == "discarded" else None


def judgeable(position: Position) -> bool:
    """The test at this position can be made again from what is recorded."""
    return position.draft_prob is not None and position.target_prob is not None and position.draft_prob > 0


def legible(survey: Survey, round_: Round) -> float:
    """The share of candidates that a person can tell apart by their names."""
    names = [survey.name(c) for c in round_.candidates]
    good = {n for n in names if any(c.isalnum() for c in n) and "…" not in n and "\\" not in n}
    return len(good) / max(1, len(names))


def phases(survey: Survey) -> Case | None:
    """One round for propose, score, accept and correct: best with something kept, refused and discarded."""

    def score(case: Case) -> Score | None:
        round_ = case.round
        if not 2 <= round_.proposed <= MOST_PROPOSED or round_.cut or round_.correction_token is None:
            return None
        judged = [p for p in round_.positions if p.fate in ("accepted", "rejected")]
        if not judged or not all(judgeable(p) for p in judged) or None in round_.candidates:
            return None
        known = survey.greedy or all(p.u is not None for p in judged)
        refused = rejected(round_)
        narrow = any(p.fate == "accepted" and (p.target_prob or 0) < (p.draft_prob or 0) for p in judged)
        return (
            float(known),
            float(refused is not None and round_.accepted >= 1),
            float(len(replacements(case)) >= 2),
            float(heir(round_) is not None),
            float((round_.correction_prob or 0) >= CLEAR),
            float(narrow),
            legible(survey, round_),
            float(min(round_.proposed, 4)),
        )

    return best(survey.cases, score)


def replacements(case: Case) -> tuple[int, ...]:
    """The correction, and up to three tokens that cannot take its place, in the order of the draft's preference.

    A token cannot come out of the residual max(0, p − q) when q ≥ p there. A token outside the recorded alternatives of
    p is at most as probable as the last of them. Empty where the record does not tell.
    """
    round_ = case.round
    refused = rejected(round_)
    token = round_.correction_token
    p_new, q_new = round_.correction_target_prob, round_.correction_draft_prob
    if refused is None or refused.candidate is None or token is None or round_.residual_fallback:
        return ()
    if p_new is None or q_new is None or p_new <= q_new or not judgeable(refused):
        return ()
    p, q = dict(refused.target_top), dict(refused.draft_top)
    p[refused.candidate], q[refused.candidate] = refused.target_prob or 0.0, refused.draft_prob or 0.0
    least = min((chance for _, chance in refused.target_top), default=1.0)
    impossible = [t for t in q if t not in (token, refused.candidate) and q[t] >= p.get(t, least)]
    impossible.sort(key=lambda t: -q[t])
    q[token] = q_new
    return tuple(sorted((token, refused.candidate, *impossible[:2]), key=lambda t: (-q[t], t)))


def tempting(survey: Survey) -> Case | None:
    """A refusal with a candidate behind it that its own test would have kept."""

    def score(case: Case) -> Score | None:
        round_, behind = case.round, heir(case.round)
        if behind is None or not judgeable(behind) or not 2 <= round_.proposed <= MOST_PROPOSED:
            return None
        ratio = min(1.0, (behind.target_prob or 0) / (behind.draft_prob or 1))
        would = behind.rank == 1 if survey.greedy else ratio >= 1
        return (
            float(would),
            float(round_.accepted >= 1),
            float(not is_same(case)),
            legible(survey, round_),
            behind.target_prob or 0.0,
        )

    return best(survey.cases, score)


def is_same(case: Case) -> bool:
    """The discarded candidate behind the refused one is what the next round commits in its place."""
    behind, following = heir(case.round), case.following
    if behind is None or following is None or not following.committed:
        return False
    return behind.candidate == following.committed[0][0]


def same(survey: Survey) -> Case | None:
    """A discarded candidate that equals the next token."""

    def score(case: Case) -> Score | None:
        behind = heir(case.round)
        if behind is None or not is_same(case) or not 2 <= case.round.proposed <= MOST_PROPOSED:
            return None
        return (
            float(behind.target_prob is not None and later_prob(case) is not None),
            float(case.round.accepted >= 1),
            legible(survey, case.round),
        )

    return best(survey.cases, score)


def later_prob(case: Case) -> float | None:
    """The target's probability of the next round's first token, on the true path."""
    following = case.following
    if following is None or not following.committed:
        return None
    token = following.committed[0][0]
    first = at(following, 1)
    if first is not None and first.candidate == token and first.target_prob is not None:
        return first.target_prob
    if following.accepted == 0 and following.correction_token == token:
        return following.correction_target_prob
    return dict(first.target_top).get(token) if first is not None else None


def kv_rejected(survey: Survey) -> Case | None:
    """A refusal in the middle of a round whose cache lengths are recorded."""

    def score(case: Case) -> Score | None:
        round_ = case.round
        if rejected(round_) is None or not kv_known(round_):
            return None
        return (
            float(round_.accepted >= 1),
            float(heir(round_) is not None),
            float(round_.accepted == 2),
            legible(survey, round_),
        )

    return best(survey.cases, score)


def kv_full(survey: Survey) -> Case | None:
    """A full acceptance whose cache lengths are recorded."""

    def score(case: Case) -> Score | None:
        round_ = case.round
        if round_.accepted != round_.proposed or round_.cut or not kv_known(round_):
            return None
        return (float(min(round_.proposed, 4)), legible(survey, round_))

    return best(survey.cases, score)


def kv_known(round_: Round) -> bool:
    """The target cache's lengths are recorded, and obey the contract: a faulty engine is no teacher."""
    before, written, after = round_.target_kv_before, round_.target_kv_written, round_.target_kv_after
    if before is None or written is None or after is None or round_.correction_token is None:
        return False
    return (
        None not in round_.candidates
        and 2 <= round_.proposed <= MOST_PROPOSED
        and written == round_.proposed + 1
        and after - before == round_.accepted + 1
    )
