"""Clauses C9 and C10: what the two KV caches hold after a round."""

from __future__ import annotations

from engine.round import Round
from specview.contract.report import NOTHING, Context, Finding, Outcome


def c9_target_kv(context: Context, r: Round) -> Outcome:
    """After the round the target's cache holds the committed tokens but the pending last one; the forward wrote the
    pending token and the γ candidates."""
    checked, findings = 0, []
    before = ("target_kv_before", r.target_kv_before, r.committed_before - 1, "committed length − 1 before the round")
    written = ("target_kv_written", r.target_kv_written, r.proposed + 1, "the pending token and the candidates")
    if context.previous is None and context.sequence.target_prefill_calls == 0 and r.target_kv_before is not None:
        # The source has no prefill of its own: its first forward reads what the cache lacks of the prompt, too.
        fed = r.committed_before + r.proposed - r.target_kv_before
        before = ("target_kv_before", r.target_kv_before, min(r.target_kv_before, r.committed_before - 1), before[3])
        written = ("target_kv_written", r.target_kv_written, fed, "the rest of the prompt and the candidates")
    for name, recorded, expected, why in (
        before,
        written,
        ("target_kv_after", r.target_kv_after, r.committed_after - 1, "committed length − 1"),
    ):
        if recorded is not None:
            checked += 1
            if recorded != expected:
                findings.append(Finding(f"{name} {recorded}", f"{expected}: {why}"))
    return Outcome(checked, tuple(findings))


def c10_draft_kv(context: Context, r: Round) -> Outcome:
    """The draft's cache never holds a position off the true path, and after a full acceptance it lacks the last
    candidate: it equals min(committed − 1, t + accepted, positions fed). It may hold less where the next round is seen
    to feed again what is missing: the path is whole, only the time was spent twice."""
    if r.draft_kv_after is None:
        return NOTHING
    checked, given_up, findings = 1, 0, []
    before = context.previous
    if before is not None and before.draft_kv_after is not None and r.draft_kv_before is not None:
        checked += 1
        if r.draft_kv_before != before.draft_kv_after:
            findings.append(
                Finding(f"draft_kv_before {r.draft_kv_before}", f"{before.draft_kv_after}, as the round before left it")
            )
    bounds = [r.committed_after - 1, r.committed_before + r.accepted]
    if r.draft_kv_before is not None and r.draft_kv_written is not None:
        bounds.append(r.draft_kv_before + r.draft_kv_written)
        if r.draft_kv_after < min(bounds) and _fed_again(r, context.following):
            given_up = min(bounds) - r.draft_kv_after
        elif r.draft_kv_after != min(bounds):
            lost = "; what it gave up is not fed again" if r.draft_kv_after < min(bounds) else ""
            findings.append(
                Finding(
                    f"draft_kv_after {r.draft_kv_after}",
                    f"{min(bounds)}: min(committed − 1, t + accepted, positions fed){lost}",
                )
            )
    elif r.draft_kv_after > min(bounds):
        findings.append(Finding(f"draft_kv_after {r.draft_kv_after}", f"at most {min(bounds)}: nothing off the path"))
    return Outcome(checked, tuple(findings), given_up)


def _fed_again(r: Round, following: Round | None) -> bool:
    """Whether the next round starts from the shorter cache and feeds everything from there to its last candidate but
    one."""
    if following is None or following.draft_kv_before is None or following.draft_kv_written is None:
        return False
    # The last candidate is read by nobody before it is accepted; where nothing is proposed, nothing is read.
    missing = following.committed_before + following.proposed - 1 - following.draft_kv_before
    fed = not following.proposed or following.draft_kv_written >= missing
    return following.draft_kv_before == r.draft_kv_after and fed
