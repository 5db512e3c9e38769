"""Clauses C1–C5: what was proposed, scored, accepted, stopped at and discarded."""

from __future__ import annotations

from collections.abc import Sequence

from engine.round import Position, Round
from specview.contract.report import JUDGED, NOTHING, Context, Finding, Outcome, f32, is_probability, number

DEVIATION_TOLERANCE = 1e-3
"""How far a recorded distribution may be from the raw logits under the settings asked for. The same float32 function
gives 0; another engine's kernels give about 1e-6; a setting that was ignored gives far more."""
TOP_DIGITS = 1e-5
"""Top alternatives are kept to six digits, so each is up to 5e-6 of itself off."""


def c1_propose(context: Context, r: Round) -> Outcome:
    """Every candidate is drawn from its own q: draft_prob > 0; greedy, it is the draft's argmax; q and p are the raw
    logits under the settings asked for."""
    checked, findings = 0, []
    if r.gamma is not None:
        checked += 1
        if r.proposed > r.gamma:
            findings.append(Finding(f"{r.proposed} proposed", f"at most γ = {r.gamma}"))
    for p in _candidates(r):
        if p.draft_prob is not None:
            checked += 1
            if not is_probability(p.draft_prob):
                findings.append(Finding(f"draft_prob {number(p.draft_prob)}", "a probability", p.position))
            elif p.draft_prob == 0:
                findings.append(Finding("draft_prob 0", "more than 0: it was drawn from q", p.position))
            elif context.greedy and p.draft_top and p.draft_prob < p.draft_top[0][1] * (1 - TOP_DIGITS):
                best, prob = p.draft_top[0]
                findings.append(
                    Finding(
                        f"token {p.candidate} with draft_prob {number(p.draft_prob)}",
                        f"the draft's argmax, token {best} with {number(prob)}",
                        p.position,
                    )
                )
    for p in r.positions:
        for name, value in (("draft", p.draft_deviation), ("target", p.target_deviation)):
            if value is not None:
                checked += 1
                if not value <= DEVIATION_TOLERANCE:  # so written, NaN is a finding too
                    findings.append(
                        Finding(
                            f"{name} distribution {number(value)} off its logits under the settings asked for",
                            f"at most {DEVIATION_TOLERANCE:g}",
                            p.position,
                        )
                    )
    return Outcome(checked, tuple(findings))


def c2_score(context: Context, r: Round) -> Outcome:
    """One forward gives γ+1 distributions: as many positions are recorded, and what they hold are probabilities.
    (That it was one forward is counted by C13.)"""
    if not r.positions:
        return NOTHING
    checked, findings = 0, []
    if any(p.target_prob is not None or p.target_top or p.target_entropy is not None for p in r.positions):
        checked += 1
        places = [p.position for p in r.positions]
        if len(places) != r.proposed + 1 or places != list(range(1, len(places) + 1)):
            findings.append(Finding(f"{len(places)} positions scored", f"{r.proposed + 1}: 1 … γ+1"))
    for p in r.positions:
        for name, value in (("target_prob", p.target_prob), ("overlap", p.overlap)):
            if value is not None:
                checked += 1
                if not is_probability(value):
                    findings.append(Finding(f"{name} {number(value)}", "a probability", p.position))
        for token, prob in p.target_top:
            if not is_probability(prob):
                findings.append(
                    Finding(f"target probability {number(prob)} of token {token}", "a probability", p.position)
                )
    return Outcome(checked, tuple(findings))


def c3_accept(context: Context, r: Round) -> Outcome:
    """A judged candidate is accepted when u < min(1, p/q) in float32; greedy, when it is the target's argmax."""
    checked, findings = 0, []
    for p in _candidates(r):
        if p.fate not in JUDGED:
            continue
        if p.u is not None and not 0 <= p.u < 1:
            checked += 1
            findings.append(Finding(f"u {number(p.u)}", "a number in [0, 1)", p.position))
            continue
        recorded = "rejected" if p.fate == "rejected" else "accepted"
        if context.greedy:
            if p.u is not None:
                checked += 1
                findings.append(Finding(f"u {number(p.u)}", "no u: greedy decoding draws none", p.position))
            elif p.rank is not None:
                checked += 1
                if (p.rank == 1) != (recorded == "accepted"):
                    expected = "accepted" if p.rank == 1 else "rejected"
                    findings.append(Finding(recorded, f"{expected}: its rank in p is {p.rank}", p.position))
            continue
        if not _testable(p):
            continue
        checked += 1
        threshold = _threshold(p)
        if p.u is None:
            findings += _impossible(p, recorded, threshold)
            continue
        expected = "accepted" if p.u < threshold else "rejected"
        if recorded != expected:
            relation = "<" if p.u < threshold else "≥"
            findings.append(
                Finding(recorded, f"{expected}: u {number(p.u)} {relation} p/q {number(threshold)}", p.position)
            )
    return Outcome(checked, tuple(findings))


def _impossible(p: Position, recorded: str, threshold: float) -> list[Finding]:
    """Where the source does not tell its u: the verdicts that no u on [0, 1) can give."""
    if recorded == "rejected" and threshold >= 1.0:
        return [Finding("rejected", f"accepted whatever u is: p/q {number(threshold)}", p.position)]
    if recorded == "accepted" and threshold == 0.0:
        return [Finding("accepted", "rejected whatever u is: p/q 0", p.position)]
    return []


def c4_stop(context: Context, r: Round) -> Outcome:
    """The first rejection ends the round: the accepted candidates are the longest accepted prefix."""
    findings = []
    if r.accepted > r.proposed:
        findings.append(Finding(f"{r.accepted} accepted", f"at most the {r.proposed} proposed"))
    fates = [p.fate for p in _candidates(r) if p.fate is not None]
    if not fates:
        if r.judged is not None and r.judged != min(r.proposed, r.accepted + 1) and r.cut is None:
            expected = min(r.proposed, r.accepted + 1)
            findings.append(Finding(f"{r.judged} judged", f"{expected}: the accepted ones and the first rejected"))
        return Outcome(1 if r.judged is not None else 0, tuple(findings))
    place = _first_out_of_order(fates, r.cut is not None)
    if place is not None:
        after = fates[place - 2] if place > 1 else "nothing"
        findings.append(
            Finding(f"{fates[place - 1]} after {after}", "accepted ones, at most one rejected, then discarded", place)
        )
    accepted = sum(f in ("accepted", "cut") for f in fates)
    if accepted != r.accepted:
        findings.append(Finding(f"{r.accepted} accepted", f"{accepted}, as many as have that fate"))
    judged = accepted + fates.count("rejected")
    if r.judged is not None and judged != r.judged:
        findings.append(Finding(f"{r.judged} judged", f"{judged}, as many as were accepted or rejected"))
    return Outcome(len(fates), tuple(findings))


def c5_discard(context: Context, r: Round) -> Outcome:
    """Nothing after the first rejection is judged or committed."""
    checked, findings = 0, []
    kept = sum(p.fate == "accepted" for p in _candidates(r))
    committed = sum(origin == "accepted" for _, origin in r.committed)
    for p in _candidates(r):
        if p.fate != "discarded":
            continue
        checked += 1
        if p.u is not None:
            findings.append(Finding(f"u {number(p.u)}", "no u: a discarded candidate is never judged", p.position))
    if checked and committed > kept:
        findings.append(
            Finding(f"{committed} candidates committed", f"{kept}: what follows the first rejection is off the path")
        )
    return Outcome(checked, tuple(findings))


def _candidates(r: Round) -> tuple[Position, ...]:
    return tuple(p for p in r.positions if p.position <= r.proposed)


def _testable(p: Position) -> bool:
    """Whether p and q can be compared; a value that is no probability is a finding of C1 or C2."""
    if p.draft_prob is None or p.target_prob is None:
        return False
    return is_probability(p.target_prob) and is_probability(p.draft_prob) and p.draft_prob > 0


def _threshold(p: Position) -> float:
    """min(1, p/q), Algorithm 1 of Leviathan et al. (arXiv 2211.17192)."""
    assert p.target_prob is not None
    assert p.draft_prob is not None
    return min(1.0, f32(p.target_prob / p.draft_prob))


_MAY_FOLLOW = {
    None: {"accepted", "cut", "rejected"},
    "accepted": {"accepted", "cut", "rejected"},
    "cut": {"cut", "rejected"},
    "rejected": {"discarded"},
    "discarded": {"discarded"},
}


def _first_out_of_order(fates: Sequence[str], cut: bool) -> int | None:
    """The position (from 1) of the first fate that may not stand where it stands."""
    before: str | None = None
    for place, fate in enumerate(fates, 1):
        allowed = fate in _MAY_FOLLOW[before] and (cut or fate != "cut")
        # An engine may stop judging where an end-of-text token cuts the round; what follows is then discarded unjudged.
        if not allowed and not (cut and fate == "discarded" and before in ("accepted", "cut")):
            return place
        before = fate
    return None
