"""The story of a round in plain words, for every way a round can go."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.round import Position, Round, RunInfo, Sampling
from specview.story import decisive_position, explain, probability

NAMES = {1: "␠This", 2: "␠is", 3: "␠why", 4: "␠means", 9: "<eos>"}


def name(token: int) -> str:
    return NAMES.get(token, f"#{token}")


def position(
    i: int, token: int, fate: str | None, *, q: float = 0.44, p: float = 0.07, u: float | None = None
) -> Position:
    return Position(i, token, q, p, u, fate, rank=2)  # type: ignore[arg-type]


REJECTED_AT_2 = Round(
    index=3,
    gamma=3,
    proposed=3,
    judged=2,
    accepted=1,
    committed_before=10,
    committed_after=12,
    committed=((1, "accepted"), (4, "correction")),
    positions=(
        position(1, 1, "accepted", q=0.81, p=0.93, u=0.5),
        position(2, 2, "rejected", u=0.48),
        position(3, 3, "discarded"),
        Position(4),
    ),
    correction_token=4,
    correction_kind="correction",
    correction_prob=0.31,
    residual_mass=0.6,
)
FULL = replace(
    REJECTED_AT_2,
    judged=3,
    accepted=3,
    positions=(*(position(i, i, "accepted", u=0.01) for i in (1, 2, 3)), Position(4)),
    committed=((1, "accepted"), (2, "accepted"), (3, "accepted"), (4, "bonus")),
    committed_after=14,
    correction_kind="bonus",
    correction_prob=0.52,
    residual_mass=None,
)
GREEDY = RunInfo(uuid="x", sampling=Sampling(temperature=0))
SAMPLED = RunInfo(uuid="x", proposer="draft-model", sampling=Sampling())


def test_a_rejection_says_by_how_much_and_why_nothing_behind_it_stays() -> None:
    story = explain(REJECTED_AT_2, name, SAMPLED)
    assert "“␠is” was kept only if u < .16; u was .48, .32 too high." in story
    assert "The one before it stays." in story
    assert "“␠means” takes its place, drawn from the residual max(0, p − q), where it holds .31." in story
    assert "“␠why” was scored as if “␠is” stood, so it cannot be kept." in story


def test_a_rejection_at_the_first_position_keeps_nothing() -> None:
    first = replace(
        REJECTED_AT_2, judged=1, accepted=0, positions=(position(1, 2, "rejected", u=0.9), position(2, 3, "discarded"))
    )
    assert "stay." not in explain(first, name, SAMPLED)


def test_a_rejection_at_the_last_position_discards_nothing() -> None:
    last = replace(
        REJECTED_AT_2,
        judged=3,
        accepted=2,
        positions=(
            *(position(i, i, "accepted", u=0.01) for i in (1, 2)),
            position(3, 3, "rejected", u=0.9),
            Position(4),
        ),
    )
    story = explain(last, name, SAMPLED)
    assert "The 2 before it stay." in story
    assert "scored as if" not in story


def test_a_discarded_candidate_that_equals_the_correction_is_explained() -> None:
    same = replace(REJECTED_AT_2, correction_token=3, committed=((1, "accepted"), (3, "correction")))
    story = explain(same, name, SAMPLED)
    assert "Candidate 3 is the very token of the correction, and still may not stay" in story
    assert "a path that no longer exists" in story


def test_a_discarded_candidate_that_the_next_round_commits_is_explained() -> None:
    assert "The next round does commit “␠why” here" in explain(REJECTED_AT_2, name, SAMPLED, following=3)
    assert "next round" not in explain(REJECTED_AT_2, name, SAMPLED, following=1)


def test_full_acceptance_brings_a_bonus() -> None:
    story = explain(FULL, name, SAMPLED)
    assert story.startswith("All 3 candidates passed: each u was below target ÷ draft.")
    assert "“␠means” (.52) is a bonus" in story


def test_greedy_speaks_of_first_choices() -> None:
    rejected = explain(REJECTED_AT_2, name, GREEDY)
    assert "it is not the target's first choice but its choice number 2" in rejected
    assert "u <" not in rejected
    assert "each the target's own first choice" in explain(FULL, name, GREEDY)


def test_a_token_that_the_target_excludes_could_not_be_kept() -> None:
    excluded = replace(REJECTED_AT_2, positions=(position(1, 2, "rejected", p=0.0, u=0.3),), accepted=0)
    assert "the target gives it no probability at all" in explain(excluded, name, SAMPLED)


def test_residual_fallback_is_said() -> None:
    story = explain(replace(REJECTED_AT_2, residual_fallback=True), name, SAMPLED)
    assert "p and q agree to rounding" in story
    assert "drawn from p itself" in story


@pytest.mark.parametrize(
    ("cut", "said"),
    [
        ("eos", "“<eos>” ends the text inside the block: the 2 accepted candidates behind it are cut"),
        ("length", "The length limit falls inside the block: the 2 accepted candidates behind it are cut"),
        ("stop", "A stop string is complete with “<eos>”: the 2 accepted candidates behind it are cut"),
    ],
)
def test_an_end_inside_the_block_is_told(cut: str, said: str) -> None:
    ended = replace(
        FULL,
        cut=cut,  # type: ignore[arg-type]
        positions=(position(1, 9, "accepted", u=0.1), position(2, 2, "cut", u=0.1), position(3, 3, "cut", u=0.1)),
        committed=((9, "accepted"),),
        correction_token=None,
        correction_kind=None,
    )
    story = explain(ended, name, SAMPLED)
    assert said in story
    assert "no bonus token" in story
    assert decisive_position(ended) == 1


@pytest.mark.parametrize(
    ("fates", "said"),
    [
        (
            ("accepted", "cut", "rejected"),
            "block: the accepted candidate behind it is cut, and no correction is drawn.",
        ),
        (("accepted", "accepted", "rejected"), "The length limit falls inside the block, so no correction is drawn."),
    ],
)
def test_a_rejection_in_a_block_that_is_cut_claims_no_more_than_stays(fates: tuple[str, ...], said: str) -> None:
    cut = replace(
        REJECTED_AT_2,
        cut="length",
        judged=3,
        accepted=2,
        positions=tuple(position(i, i, fate, u=0.5) for i, fate in enumerate(fates, 1)),
        committed=((1, "accepted"), (2, "accepted"))[: fates.count("accepted")],
        correction_token=None,
        correction_kind=None,
    )
    story = explain(cut, name, SAMPLED)
    assert "was kept only if u < .16; u was .50" in story
    assert story.endswith(said)
    assert "stay." not in story


def test_gamma_zero_is_a_plain_step() -> None:
    plain = Round(
        index=0, gamma=0, proposed=0, judged=0, accepted=0, committed_before=5, committed_after=6,
        committed=((4, "target"),), correction_token=4, correction_kind="target", correction_prob=0.2,
    )  # fmt: skip
    assert explain(plain, name, SAMPLED) == (
        "Nothing was proposed (γ is 0), so the target took one plain step and chose “␠means”, "
        "which had probability .20."
    )
    assert "no earlier match" in explain(replace(plain, gamma=3, draft_stop="no earlier match"), name, SAMPLED)


def test_prompt_lookup_copies() -> None:
    info = RunInfo(uuid="x", proposer="prompt-lookup", sampling=Sampling())
    assert "copied from where the text said the same before" in explain(REJECTED_AT_2, name, info, phase="propose")


def test_an_imported_trace_without_probabilities_is_told_as_far_as_it_goes() -> None:
    bare = replace(
        REJECTED_AT_2,
        positions=(Position(1, 1, fate="accepted"), Position(2, 2, fate="rejected"), Position(3, 3, fate="discarded")),
        correction_prob=None,
        residual_mass=None,
    )
    story = explain(bare, name)
    assert "the trace records no probabilities for it" in story
    assert "The target put “␠means” in its place." in story
    counted = replace(bare, positions=(), judged=None)
    assert "1 of 3 candidates were accepted; the trace records no single verdicts." in explain(counted, name)


def test_no_phase_tells_what_comes_later() -> None:
    assert "u was" not in explain(REJECTED_AT_2, name, SAMPLED, phase="propose")
    assert "refused" not in explain(REJECTED_AT_2, name, SAMPLED, phase="score")
    assert "“␠means”" not in explain(REJECTED_AT_2, name, SAMPLED, phase="accept")


def test_early_stop_of_the_draft_is_told() -> None:
    short = replace(REJECTED_AT_2, gamma=5, draft_stop="the draft was unsure")
    assert "It stopped short of γ = 5 (the draft was unsure)." in explain(short, name, SAMPLED, phase="propose")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.814, ".81"),
        (0.07, ".07"),
        (0.072, ".072"),
        (1.0, "1.00"),
        (0.0, "0"),
        (0.0042, ".0042"),
        (4e-5, "4e-5"),
        (0.999, "1.00"),
    ],
)
def test_probabilities_have_no_leading_zero(value: float, text: str) -> None:
    assert probability(value) == text


def test_the_decisive_position() -> None:
    assert decisive_position(REJECTED_AT_2) == 2
    assert decisive_position(FULL) == 4
