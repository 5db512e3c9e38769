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
    candidate: it equals min(committed − 1, t + accepted, positions fed)."""
    if r.draft_kv_after is None:
        return NOTHING
    checked, findings = 1, []
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
        if r.draft_kv_after != min(bounds):
            lost = "; the next round must feed again what it gave up" if r.draft_kv_after < min(bounds) else ""
            findings.append(
                Finding(
                    f"draft_kv_after {r.draft_kv_after}",
                    f"{min(bounds)}: min(committed − 1, t + accepted, positions fed){lost}",
                )
            )
    elif r.draft_kv_after > min(bounds):
        findings.append(Finding(f"draft_kv_after {r.draft_kv_after}", f"at most {min(bounds)}: nothing off the path"))
    return Outcome(checked, tuple(findings))
