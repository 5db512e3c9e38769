"""The five states of the KV slots, correct to the slot, in every phase and at every end of a round."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.round import Position, Round
from specview.tui.model.kv import Lane, lanes
from specview.tui.model.phases import PHASES, known
from tests.synthetic import rounds

# A prompt of 10, γ = 3: the caches hold 9 positions, the tenth token is pending.
REJECTED = Round(
    index=0,
    gamma=3,
    proposed=3,
    judged=2,
    accepted=1,
    committed_before=10,
    committed_after=12,
    positions=(Position(1, 1, fate="accepted"), Position(2, 2, fate="rejected"), Position(3, 3, fate="discarded")),
    correction_token=4,
    correction_kind="correction",
    target_kv_before=9,
    target_kv_written=4,
    target_kv_after=11,
    draft_kv_before=9,
    draft_kv_written=3,
    draft_kv_after=11,
)
FULL = replace(
    REJECTED,
    judged=3,
    accepted=3,
    committed_after=14,
    positions=tuple(Position(i, i, fate="accepted") for i in (1, 2, 3)),
    correction_kind="bonus",
    target_kv_after=13,
    draft_kv_after=12,
)

CUT_AT_2 = replace(
    FULL, committed_after=11, correction_token=None, correction_kind=None, target_kv_after=10, draft_kv_after=10
)


def picture(lane: Lane, *, result: bool = False) -> str:
    """One letter a slot."""
    letters = {
        "committed": "c", "kept": "k", "rejected": "x", "off_path": "o", "pending": "p", "written": "w", "missing": "m",
    }  # fmt: skip
    text = ""
    for span in lane.result if result else lane.spans:
        assert span.start == len(text), "spans follow one another without a gap"
        text += letters[span.state] * span.length
    return text


def test_a_rejection_rolls_back_the_refused_slot_and_all_behind_it() -> None:
    target, draft = lanes(REJECTED)
    assert picture(target) == "c" * 9 + "kk" + "x" + "o"
    assert picture(target, result=True) == "c" * 9 + "kk" + "p"
    assert picture(draft) == "c" * 9 + "kk" + "x"
    assert picture(draft, result=True) == "c" * 9 + "kk" + "p"
    assert (target.kept, target.rejected, target.off_path, target.pending) == (2, 1, 1, 1)


def test_after_a_full_acceptance_the_draft_lacks_the_last_candidate() -> None:
    target, draft = lanes(FULL)
    assert picture(target) == "c" * 9 + "kkkk"
    assert picture(target, result=True) == "c" * 9 + "kkkk" + "p"
    assert picture(draft) == "c" * 9 + "kkk"
    assert picture(draft, result=True) == "c" * 9 + "kkk" + "m" + "p"


def test_a_plain_step_writes_the_pending_slot_alone() -> None:
    plain = replace(
        FULL, gamma=0, proposed=0, judged=0, accepted=0, positions=(Position(1),), committed_after=11,
        correction_kind="target", target_kv_written=1, target_kv_after=10, draft_kv_written=0, draft_kv_after=9,
    )  # fmt: skip
    target, draft = lanes(plain)
    assert picture(target, result=True) == "c" * 9 + "k" + "p"
    assert picture(draft, result=True) == "c" * 9 + "m" + "p"


def test_a_cut_round_ends_where_the_text_ends() -> None:
    cut = replace(
        CUT_AT_2,
        cut="eos",
        positions=(Position(1, 1, fate="accepted"), Position(2, 2, fate="cut"), Position(3, 3, fate="cut")),
    )
    target, draft = lanes(cut)
    assert picture(target) == "c" * 9 + "k" + "p" + "oo", "the last token's own slot is rolled back as well"
    assert picture(target, result=True) == "c" * 9 + "k" + "p"
    assert (target.kept, target.pending, target.off_path) == (1, 1, 2)
    assert picture(draft) == "c" * 9 + "k" + "p" + "o"


def test_a_rejection_behind_the_end_of_the_text_keeps_its_slot() -> None:
    cut = replace(
        CUT_AT_2,
        cut="length",
        accepted=2,
        positions=(Position(1, 1, fate="accepted"), Position(2, 2, fate="cut"), Position(3, 3, fate="rejected")),
    )
    target, draft = lanes(cut)
    assert picture(target) == "c" * 9 + "k" + "p" + "o" + "x"
    assert (target.kept, target.rejected, target.off_path, target.pending) == (1, 1, 1, 1)
    assert picture(draft) == "c" * 9 + "k" + "p" + "o", "the draft never fed its last candidate"
    assert picture(target, result=True) == picture(draft, result=True) == "c" * 9 + "k" + "p"


def test_a_draft_that_did_not_feed_the_last_token_has_no_slot_of_it_to_roll_back() -> None:
    ended = replace(
        FULL, cut="eos", committed_after=13, correction_token=None, correction_kind=None, target_kv_after=12
    )
    target, draft = lanes(ended)
    assert picture(target) == "c" * 9 + "kkk" + "p"
    assert picture(draft) == "c" * 9 + "kkk"
    assert picture(draft, result=True) == "c" * 9 + "kkk" + "p"


def test_each_phase_shows_what_is_written_by_then() -> None:
    target, draft = lanes(REJECTED, "propose")
    assert picture(target) == "c" * 9
    assert picture(target, result=True) == "c" * 9 + "p"
    assert picture(draft) == "c" * 9 + "www"
    target, _ = lanes(REJECTED, "score")
    assert picture(target) == "c" * 9 + "wwww"
    target, _ = lanes(REJECTED, "accept")
    assert picture(target) == "c" * 9 + "kkxo"
    assert target.after is None


def test_a_cache_rolled_back_wrongly_shows_as_wrong() -> None:
    target, _ = lanes(replace(REJECTED, target_kv_after=13))
    assert picture(target, result=True) == "c" * 9 + "kkkk"
    target, _ = lanes(replace(REJECTED, target_kv_after=7))
    assert picture(target, result=True).startswith("c" * 7 + "m")


def test_a_trace_without_kv_lengths_shows_none() -> None:
    bare = replace(
        REJECTED, target_kv_before=None, target_kv_written=None, target_kv_after=None, draft_kv_before=None,
        draft_kv_written=None, draft_kv_after=None,
    )  # fmt: skip
    assert all(lane.before is None and not lane.spans for lane in lanes(bare))


def test_lengths_agree_with_the_recorded_ones_on_many_rounds() -> None:
    for round_ in rounds(300, seed=5):
        for lane, before, written, after in zip(
            lanes(round_),
            (round_.target_kv_before, round_.draft_kv_before),
            (round_.target_kv_written, round_.draft_kv_written),
            (round_.target_kv_after, round_.draft_kv_after),
            strict=True,
        ):
            assert before is not None
            assert written is not None
            assert len(picture(lane)) == before + written
            kept = picture(lane, result=True).rstrip("p").rstrip("m")
            assert len(kept) == after
            assert set(kept) <= {"c", "k"}
        target = lanes(round_)[0]
        assert target.rejected + target.off_path == round_.proposed - round_.accepted


@pytest.mark.parametrize("phase", PHASES[:3])
def test_a_phase_knows_nothing_that_comes_later(phase: str) -> None:
    for round_ in rounds(50, seed=7):
        seen = known(round_, phase)  # type: ignore[arg-type]
        assert seen.correction_token is None
        assert seen.committed == ()
        assert seen.committed_after == seen.committed_before
        if phase != "accept":
            assert all(p.u is None and p.fate is None for p in seen.positions)
            assert seen.accepted == 0
        if phase == "propose":
            assert all(p.target_prob is None and not p.target_top for p in seen.positions)
            assert len(seen.positions) == round_.proposed
