"""C1–C11 on recorded rounds: every proposer, every way a sequence ends."""

from __future__ import annotations

import pytest
import torch

from engine.decode import Decoder
from engine.errors import NumericalError
from engine.gamma import FixedGamma
from engine.layer_skip import skip_layers
from engine.model import Model
from engine.proposers.prompt_lookup import PromptLookup
from engine.round import Round, Sampling
from engine.timing import PhaseClock
from tests.unit.contract_rules import assert_contract
from tests.unit.engine_models import VOCAB, TableModel, decoder, first_layer_of, llama, output, run
from tests.unit.lossless import tables

T = llama()
D = first_layer_of(T)
PROMPT = [5, 17, 40]
SETTINGS = [
    Sampling(temperature=0.0),
    Sampling(temperature=1.0),
    Sampling(temperature=0.7, top_k=9),
    Sampling(temperature=1.4, top_p=0.8),
    Sampling(temperature=1.4, min_p=0.1, repetition_penalty=1.3, frequency_penalty=0.5, presence_penalty=0.2),
    Sampling(temperature=1.0, logit_bias={3: 2.0, 4: -5.0}),
]


@pytest.mark.parametrize("sampling", SETTINGS)
@pytest.mark.parametrize("gamma", [1, 4, 7])
def test_every_clause_holds(sampling: Sampling, gamma: int) -> None:
    loop = decoder(T, D, sampling, gamma, seed=gamma)
    rounds = run(loop, PROMPT, 60)
    assert_contract(PROMPT, rounds, sampling.greedy)
    assert len(output(rounds)) == 60
    assert loop.stop_reason == "length"
    assert any(r.accepted for r in rounds)
    assert any(r.accepted < r.proposed for r in rounds)


@pytest.mark.parametrize("tokens", [1, 2, 3])
@pytest.mark.parametrize("gamma", [0, 1, 4])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_short_outputs(tokens: int, gamma: int, temperature: float) -> None:
    sampling = Sampling(temperature=temperature)
    for prompt in ([7], [7, 8]):
        rounds = run(decoder(T, D, sampling, gamma), prompt, tokens)
        assert_contract(prompt, rounds, sampling.greedy)
        assert len(output(rounds)) == tokens


def test_a_one_token_prompt_needs_no_prefill() -> None:
    loop = decoder(T, D, SETTINGS[0])
    rounds = run(loop, [9], 8)
    assert rounds[0].target_kv_before == 0
    assert loop.target.calls == len(rounds)


def test_gamma_zero_is_plain_decoding() -> None:
    rounds = run(decoder(T, D, SETTINGS[0], gamma=0), PROMPT, 12)
    assert [r.correction_kind for r in rounds] == ["target"] * 12
    assert [r.draft_calls for r in rounds] == [0] * 12


def test_candidates_behind_a_change_leave_the_earlier_scores_alone() -> None:
    """C2: p₁…p_j do not depend on y_j."""
    model = Model(T, "T")
    with torch.inference_mode():
        model.begin(8)
        model.forward(torch.tensor(PROMPT), 1)
        one = model.forward(torch.tensor([1, 2, 3]), 3)
        model.roll_back(len(PROMPT))
        other = model.forward(torch.tensor([1, 2, 60]), 3)
    assert torch.equal(one[:2], other[:2])
    assert not torch.equal(one[2], other[2])


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_end_of_text_at_every_position(temperature: float) -> None:
    """Each token of a run, declared as end of text, ends the same run right behind its first occurrence."""
    sampling = Sampling(temperature=temperature)
    full = output(run(decoder(T, D, sampling), PROMPT, 40))
    cuts = 0
    for token in sorted(set(full)):
        loop = decoder(T, D, sampling)
        rounds = run(loop, PROMPT, 40, eos=frozenset({token}))
        assert output(rounds) == full[: full.index(token) + 1]
        assert loop.stop_reason == ("eos" if full.index(token) < 40 else "length")
        assert_contract(PROMPT, rounds, sampling.greedy)
        cuts += rounds[-1].cut == "eos"
    assert cuts > 0


def test_a_stop_string_across_two_tokens_inside_an_accepted_block() -> None:
    sampling = Sampling(temperature=0.0)
    full = output(run(decoder(T, T, sampling), PROMPT, 30))
    text = "".join(chr(97 + token % 26) for token in full)
    cuts = set()
    for start in range(10):
        loop = decoder(T, T, sampling)
        rounds = run(loop, PROMPT, 30, stop=(text[start : start + 2],))
        end = text.index(text[start : start + 2]) + 2
        assert output(rounds) == full[:end]
        assert loop.stop_reason == "stop"
        assert_contract(PROMPT, rounds, greedy=True)
        cuts.add(rounds[-1].cut)
    assert "stop" in cuts


def lookup(sampling: Sampling, gamma: int = 4, longest: int = 3) -> Decoder:
    target = Model(T, "T")
    generator = torch.Generator().manual_seed(1)
    proposer = PromptLookup(VOCAB, longest)
    return Decoder(target, proposer, sampling, FixedGamma(gamma), generator, PhaseClock(torch.device("cpu")))


@pytest.mark.parametrize("temperature", [0.0, 0.3])
def test_prompt_lookup(temperature: float) -> None:
    sampling = Sampling(temperature=temperature)
    prompt = [1, 2, 3, 4, 5, 1, 2]
    rounds = run(lookup(sampling), prompt, 60)
    assert rounds[0].candidates == (3, 4, 5, 1)
    for r in rounds:
        assert all(p.draft_prob == 1.0 and p.draft_entropy == 0.0 for p in r.positions[:-1])
    assert_contract(prompt, rounds, sampling.greedy, drafts_with_cache=False)


def test_nothing_found_is_an_empty_proposal() -> None:
    rounds = run(lookup(Sampling(temperature=0.0)), [1, 2, 3, 4], 4)
    assert rounds[0].proposed == 0
    assert rounds[0].draft_stop == "nothing found"
    assert rounds[0].correction_kind == "target"


def test_layer_skip_shares_the_weights() -> None:
    skipped = skip_layers(T, (0, 2))
    assert skipped.model.layers[1].mlp.up_proj.weight is T.model.layers[2].mlp.up_proj.weight
    rounds = run(decoder(T, skipped, SETTINGS[1]), PROMPT, 40)
    assert_contract(PROMPT, rounds, greedy=False)


def test_the_context_shrinks_the_last_proposals_and_then_ends_the_text() -> None:
    target = llama(max_position_embeddings=16)
    draft = first_layer_of(target)
    loop = decoder(target, draft, SETTINGS[0], gamma=4)
    rounds = run(loop, PROMPT, 100)
    assert_contract(PROMPT, rounds, greedy=True)
    assert loop.stop_reason == "length"
    assert rounds[-1].committed_after == 17  # sixteen positions scored, one token drawn from the last
    assert {r.draft_stop for r in rounds} == {None, "context"}
    assert all(r.gamma == 4 for r in rounds)


def test_a_confidence_below_the_minimum_ends_the_proposal() -> None:
    rounds = run(decoder(T, D, SETTINGS[1], gamma=6, min_prob=0.3), PROMPT, 60)
    assert_contract(PROMPT, rounds, greedy=False)
    stopped = [r for r in rounds if r.draft_stop == "min-prob"]
    assert stopped
    for r in stopped:
        *before, last = r.positions[: r.proposed]
        assert last.draft_prob < 0.3
        assert all(p.draft_prob >= 0.3 for p in before)


def test_greedy_of_equal_models_needs_no_fallback_and_a_forced_rejection_uses_it() -> None:
    rounds = run(decoder(T, T, SETTINGS[1]), PROMPT, 40)
    assert all(r.accepted == r.proposed for r in rounds if r.cut is None)
    assert not any(r.residual_fallback for r in rounds)


def test_minus_infinity_in_both_models() -> None:
    target, draft = tables()
    target[:, 2] = draft[:, 2] = float("-inf")
    draft[:, 3] = float("-inf")
    rounds = run(decoder(TableModel(target), TableModel(draft), SETTINGS[1]), [0], 200)
    assert_contract([0], rounds, greedy=False)
    assert 2 not in output(rounds)
    assert 3 in output(rounds)
    assert 3 not in {c for r in rounds for c in r.candidates}


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("side", ["target", "draft"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_no_distribution_end_the_run(bad: float, side: str, temperature: float) -> None:
    target, draft = tables()
    (target if side == "target" else draft)[4] = bad
    loop = decoder(TableModel(target), TableModel(draft), Sampling(temperature=temperature), seed=1)
    good: list[Round] = []
    with pytest.raises(NumericalError, match=f"The {side}'s logits"):
        good += run(loop, [4], 200)
    assert good == []


def test_nothing_but_minus_infinity_ends_the_run() -> None:
    target, draft = tables()
    target[:] = float("-inf")
    with pytest.raises(NumericalError, match="target"):
        run(decoder(TableModel(target), TableModel(draft), SETTINGS[1]), [0], 10)


def test_the_same_seed_repeats_a_run_and_another_does_not() -> None:
    def once(seed: int) -> list[tuple]:
        rounds = run(decoder(T, D, SETTINGS[1], seed=seed), PROMPT, 50)
        return [(r.committed, r.positions, r.correction_prob) for r in rounds]

    assert once(3) == once(3)
    assert once(3) != once(4)


def test_the_uniforms_are_distinct_and_uniform() -> None:
    from scipy import stats

    rounds = run(decoder(T, D, SETTINGS[1], seed=8), PROMPT, 200)
    drawn = [p.u for r in rounds for p in r.positions if p.u is not None]
    assert len(drawn) > 100
    assert len(set(drawn)) == len(drawn)
    assert stats.kstest(drawn, "uniform").pvalue > 0.001


def test_the_histogram_adds_up() -> None:
    rounds = run(decoder(T, D, SETTINGS[1]), PROMPT, 120)
    assert all(r.accepted <= r.proposed for r in rounds)
    histogram = [sum(r.accepted == k for r in rounds) for k in range(5)]
    assert sum(histogram) == len(rounds)
    assert sum(r.committed_after - r.committed_before for r in rounds) == 120
