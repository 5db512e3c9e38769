"""Clauses C6–C8 and C11: what the target drew itself, how far a round got, and how rounds chain."""

from __future__ import annotations

from engine.round import Round
from specview.contract.report import NOTHING, Context, Finding, Outcome, is_probability, number

RESIDUAL_TOLERANCE = 1e-3
"""Relative; the residual is normalised by a float32 sum over the vocabulary."""


def c6_correct(context: Context, r: Round) -> Outcome:
    """At a rejection one token is drawn from norm(max(0, p − q)): it has residual probability, and is not the rejected
    one; greedy, it is the target's argmax."""
    if r.accepted >= r.proposed:
        return NOTHING
    if r.correction_token is None:
        if r.cut is not None or context.from_log or not _has_tokens(r):
            return NOTHING
        return Outcome(1, (Finding("no token drawn", "a correction for the rejected candidate"),))
    at = r.accepted + 1
    findings = []
    if r.correction_kind != "correction":
        findings.append(Finding(f"a {r.correction_kind} token", "a correction: a candidate was rejected", at))
    rejected = next((p for p in r.positions if p.position == at), None)
    if context.from_log and (rejected is None or rejected.candidate is None):
        return NOTHING
    if rejected is not None and rejected.candidate == r.correction_token and not r.residual_fallback:
        findings.append(Finding(f"token {r.correction_token}, the rejected one", "any other token", at))
    for name, value in (
        ("correction_prob", r.correction_prob),
        ("correction_target_prob", r.correction_target_prob),
        ("correction_draft_prob", r.correction_draft_prob),
        ("residual_mass", r.residual_mass),
    ):
        if value is not None and not is_probability(value):
            findings.append(Finding(f"{name} {number(value)}", "a probability", at))
    if not findings and context.greedy:
        findings += _argmax(r, at)
    elif not findings and not r.residual_fallback:
        findings += _residual(r, at)
    return Outcome(1, tuple(findings))


def _residual(r: Round, at: int) -> list[Finding]:
    if r.residual_mass is not None and r.residual_mass <= 0:
        return [Finding("residual_mass 0", "more than 0, or a residual fallback", at)]
    if r.correction_prob is not None and r.correction_prob <= 0:
        return [Finding("correction_prob 0", "more than 0: it was drawn from the residual", at)]
    p, q = r.correction_target_prob, r.correction_draft_prob
    if p is None or q is None:
        return []
    if p <= q:
        return [Finding(f"target_prob {number(p)} ≤ draft_prob {number(q)}", "p > q: max(0, p − q) is 0 there", at)]
    if r.residual_mass is None or r.correction_prob is None:
        return []
    expected = (p - q) / r.residual_mass
    if abs(expected - r.correction_prob) > RESIDUAL_TOLERANCE * expected + 1e-6:
        return [
            Finding(
                f"correction_prob {number(r.correction_prob)}",
                f"{number(expected)}: (p − q) ÷ the residual's mass {number(r.residual_mass)}",
                at,
            )
        ]
    return []


def c7_bonus(context: Context, r: Round) -> Outcome:
    """When all candidates are accepted, one token is drawn from p at γ+1; greedy, the argmax."""
    if r.accepted < r.proposed:
        return NOTHING
    if r.correction_token is None:
        if r.cut is not None or not _has_tokens(r):
            return NOTHING
        return Outcome(1, (Finding("no token drawn", "a bonus token after the accepted candidates"),))
    at = r.proposed + 1
    kind = "bonus" if r.proposed else "target"
    findings = []
    if r.correction_kind != kind:
        findings.append(Finding(f"a {r.correction_kind} token", f"a {kind} token: nothing was rejected", at))
    for name, value in (
        ("correction_target_prob", r.correction_target_prob),
        ("correction_prob", r.correction_prob),
    ):
        if value is not None and not is_probability(value):
            findings.append(Finding(f"{name} {number(value)}", "a probability", at))
        elif value == 0:
            findings.append(Finding(f"{name} 0", "more than 0: it was drawn from p", at))
    if not findings and context.greedy:
        findings += _argmax(r, at)
    return Outcome(1, tuple(findings))


def _has_tokens(r: Round) -> bool:
    """Whether the source tells tokens at all; some tell only how many were accepted."""
    return bool(r.committed) or any(p.candidate is not None or p.target_top for p in r.positions)


def _argmax(r: Round, at: int) -> list[Finding]:
    scored = next((p for p in r.positions if p.position == at), None)
    if scored is None or not scored.target_top:
        return []
    best, prob = scored.target_top[0]
    tied = {token for token, other in scored.target_top if other >= prob}
    if r.correction_token in tied:
        return []
    return [Finding(f"token {r.correction_token}", f"the target's argmax, token {best} with {number(prob)}", at)]


def c8_progress(context: Context, r: Round) -> Outcome:
    """A round commits accepted + 1 tokens, or at least one when a stated cut ends it."""
    committed = r.committed_after - r.committed_before
    if r.cut is None and committed != r.accepted + 1:
        return Outcome(1, (Finding(f"{committed} tokens committed", f"{r.accepted + 1}: accepted + 1"),))
    if r.cut is not None and not 1 <= committed <= r.accepted:
        return Outcome(
            1,
            (
                Finding(
                    f"{committed} tokens committed after a cut ({r.cut})",
                    f"1 … {r.accepted}, inside the accepted block",
                ),
            ),
        )
    return Outcome(1)


def c11_continuity(context: Context, r: Round) -> Outcome:
    """A round starts from exactly the prefix that the one before it left, and the output is what was committed."""
    findings = []
    before = context.previous
    index, length = (
        (0, context.sequence.prompt_tokens) if before is None else (before.index + 1, before.committed_after)
    )
    if r.index != index:
        findings.append(Finding(f"round_index {r.index}", f"round_index {index}: none is missing"))
    if r.committed_before != length:
        findings.append(Finding(f"starts from {r.committed_before} tokens", f"{length}, what was committed before it"))
    if not r.committed:
        if r.correction_token is not None:
            findings.append(Finding("no committed token in the output", f"{r.committed_after - r.committed_before}"))
        return Outcome(1, tuple(findings))
    if len(r.committed) != r.committed_after - r.committed_before:
        findings.append(
            Finding(
                f"{len(r.committed)} of its tokens in the output", f"{r.committed_after - r.committed_before} in a row"
            )
        )
    else:
        findings += _wrong_tokens(r)
    return Outcome(1 + len(r.committed), tuple(findings))


def _wrong_tokens(r: Round) -> list[Finding]:
    kept = [p.candidate for p in r.positions if p.position <= r.proposed and p.fate == "accepted"]
    known = None not in kept and len(kept) == sum(origin == "accepted" for _, origin in r.committed)
    if not known:
        return []  # a source without candidates; their number is a matter of C4, C5 and C8
    expected = [*kept, *([] if r.correction_token is None or r.cut is not None else [r.correction_token])]
    return [
        Finding(f"token {token} in the output", f"token {wanted}", place)
        for place, ((token, _), wanted) in enumerate(zip(r.committed, expected, strict=False), 1)
        if token != wanted
    ]
