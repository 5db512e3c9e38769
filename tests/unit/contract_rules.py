"""The contract's clauses, recomputed from recorded rounds by rules written here and nowhere in the engine."""

from __future__ import annotations

import numpy as np

from engine.round import Round


def assert_contract(prompt: list[int], rounds: list[Round], greedy: bool, drafts_with_cache: bool = True) -> None:
    """C1–C11 over the rounds of one sequence."""
    tokens = list(prompt)
    for index, r in enumerate(rounds):
        assert r.index == index
        assert r.committed_before == len(tokens)  # C11
        block = [token for token, _ in r.committed]
        _proposals_and_verdicts(r, greedy)
        _commitments(r, block)
        _caches(r, drafts_with_cache)
        tokens += block
        assert r.committed_after == len(tokens)
        _times(r)


def _proposals_and_verdicts(r: Round, greedy: bool) -> None:
    judged = r.positions[: r.judged]
    assert len(r.positions) == r.proposed + 1
    assert r.positions[-1].candidate is None
    assert 0 <= r.accepted <= r.judged <= r.proposed <= r.gamma
    for position in r.positions[: r.proposed]:
        assert position.draft_prob > 0  # C1
        assert position.draft_prob <= 1
        assert 0 <= position.target_prob <= 1
        assert -1e-6 <= position.overlap <= 1 + 1e-5
        if greedy:
            assert position.candidate == position.draft_top[0][0]
    for position in judged:  # C3
        if greedy:
            kept = position.rank == 1
            assert position.u is None
        else:
            ratio = np.float32(position.target_prob) / np.float32(position.draft_prob)
            kept = np.float32(position.u) < min(np.float32(1), ratio)
            assert 0 <= position.u < 1
        assert kept == (position.position <= r.accepted)
    fates = [position.fate for position in r.positions[:-1]]
    accepted = ["accepted"] * min(r.accepted, len(r.committed)) + ["cut"] * max(0, r.accepted - len(r.committed))
    rejected = ["rejected"] if r.accepted < r.proposed else []
    discarded = ["discarded"] * (r.proposed - len(accepted) - len(rejected))
    assert fates == accepted + rejected + discarded  # C4
    assert all(position.u is None for position in r.positions[r.judged :])  # C5


def _commitments(r: Round, block: list[int]) -> None:
    assert 1 <= len(block) <= r.accepted + 1  # C8
    assert [t for t, o in r.committed if o == "accepted"] == list(r.candidates[: min(r.accepted, len(block))])
    if r.cut is None:
        assert len(block) == r.accepted + 1
        assert r.correction_token == block[-1]
        assert r.committed[-1][1] == r.correction_kind
        assert 0 < r.correction_prob <= 1 + 1e-6
        if r.correction_kind == "correction":  # C6
            assert r.accepted < r.proposed
            assert r.residual_fallback or r.correction_token != r.positions[r.accepted].candidate
            assert r.residual_fallback or r.residual_mass > 0
        else:  # C7
            assert r.accepted == r.proposed
            assert r.correction_target_prob > 0
            assert r.correction_kind == ("bonus" if r.proposed else "target")
    else:
        assert len(block) <= r.accepted
        assert r.correction_token is None
        assert r.correction_kind is None


def _caches(r: Round, drafts_with_cache: bool) -> None:
    assert r.target_calls == 1  # C2
    assert r.target_kv_before == r.committed_before - 1  # C9
    assert r.target_kv_written == r.proposed + 1
    assert r.target_kv_after == r.committed_after - 1
    if drafts_with_cache:
        fed = r.draft_kv_before + r.draft_kv_written
        assert r.draft_kv_after == min(r.committed_after - 1, r.committed_before + r.accepted, fed)  # C10
    else:
        assert r.draft_kv_after is None


def _times(r: Round) -> None:
    t = r.times
    assert t.round_ns >= t.propose_ns + t.score_ns + t.accept_ns + t.rollback_ns + t.record_ns
