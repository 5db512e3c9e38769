"""The settings that a call asked for, applied once more to raw logits, against transformers itself."""

import dataclasses

import pytest
import torch
from transformers import GenerationConfig
from transformers.generation import logits_process as lp

from engine.round import PhaseTimes
from specview.capturing import deviation, few, passes
from specview.capturing.analysis import to_rounds
from specview.capturing.measured import Judged
from specview.capturing.observation import KeyValues, Observation
from specview.capturing.scratch import Scratch
from specview.capturing.settings import Asked, asked_sampling, unsaid
from specview.capturing.verdict import Context
from tests.capture_pair import VOCAB, prompt, tiny

torch.set_num_threads(1)


def prepared(**settings):
    """The processors that generate would prepare."""
    model = tiny(1, layers=1)
    config = model._prepare_generation_config(None, do_sample=True, **settings)[0]
    return model._get_logits_processor(config, input_ids_seq_length=9, model_kwargs={})


def applied_by_transformers(processors, logits, sequence, committed):
    rows = [processors(sequence[None, : committed + i], logits[i : i + 1].clone()) for i in range(logits.shape[0])]
    return torch.cat(rows).softmax(-1)


@pytest.mark.parametrize(
    "settings",
    [
        {"top_k": 0},
        {"top_k": 0, "temperature": 0.3},
        {"temperature": 1.7, "top_k": 11},
        {"top_k": 0, "top_p": 0.8},
        {"top_k": 30, "top_p": 0.6, "temperature": 0.7},
        {"top_k": 0, "min_p": 0.1},
        {"top_k": 25, "top_p": 0.95, "min_p": 0.05, "temperature": 1.3},
        {"top_k": 0, "repetition_penalty": 1.4, "temperature": 0.8},
        {"top_k": 0, "no_repeat_ngram_size": 2, "top_p": 0.9},
        {"top_k": 0, "typical_p": 0.8},
        {"top_k": 20, "epsilon_cutoff": 0.01, "temperature": 0.8},
        {"top_k": 0, "eta_cutoff": 0.02},
        {"top_k": 0, "top_h": 0.5},
        {"top_k": 0, "sequence_bias": [[[14], 2.5]], "renormalize_logits": True},
        {"top_k": 0, "suppress_tokens": [11, 12], "temperature": 0.5},
    ],
    ids=str,
)
def test_applied_once_is_what_transformers_makes_of_the_logits(settings):
    processors = prepared(**settings)
    asked = Asked.of(processors)
    assert asked is not None
    sequence = prompt(12)[0]
    for seed in range(5):
        logits = torch.randn(4, VOCAB, generator=torch.Generator().manual_seed(seed)) * 3
        expected = applied_by_transformers(processors, logits, sequence, 9)
        kept = logits.clone()
        found = asked.apply(logits, sequence, 9).softmax(-1)
        assert torch.equal(logits, kept)  # the generation's own tensors are not written into
        assert float((found - expected).abs().max()) < 1e-6


def test_the_usual_settings_are_columns_and_others_are_named():
    config = GenerationConfig(
        do_sample=True, temperature=0.7, top_k=40, top_p=0.9, min_p=0.05, repetition_penalty=1.1,
        sequence_bias=[[[5], 2.0], [[6, 7], 1.0]], typical_p=0.9,
    )  # fmt: skip
    found = asked_sampling(config)
    assert (found.temperature, found.top_k, found.top_p, found.min_p) == (0.7, 40, 0.9, 0.05)
    assert (found.repetition_penalty, dict(found.logit_bias)) == (1.1, {5: 2.0})
    assert unsaid(config, []) == "Settings without a column: typical_p=0.9."
    assert unsaid(GenerationConfig(do_sample=True, temperature=0.5), prepared(temperature=0.5)) is None


def test_greedy_has_no_warpers():
    assert asked_sampling(GenerationConfig(do_sample=False, temperature=0.7, top_p=0.5)).greedy
    assert asked_sampling(GenerationConfig(do_sample=False, temperature=0.7, top_p=0.5)).top_p == 1.0


@pytest.mark.parametrize(
    "processors",
    [
        [lp.TemperatureLogitsWarper(0.5), type("Own", (lp.LogitsProcessor,), {})()],
        [lp.PrefixConstrainedLogitsProcessor(lambda batch, ids: [1], 1)],
    ],
)
def test_a_processor_that_may_notice_is_never_called_again(processors):
    assert Asked.of(processors) is None


def test_warpers_in_an_order_of_the_users_own_are_applied_in_that_order():
    processors = lp.LogitsProcessorList([lp.TopPLogitsWarper(0.7), lp.TemperatureLogitsWarper(0.3)])
    asked = Asked.of(processors)
    logits = torch.randn(3, VOCAB, generator=torch.Generator().manual_seed(0)) * 3
    expected = applied_by_transformers(processors, logits, prompt(12)[0], 9)
    assert float((asked.apply(logits, prompt(12)[0], 9).softmax(-1) - expected).abs().max()) < 1e-6


def test_ties_at_the_edge_of_the_nucleus_are_no_deviation():
    logits = torch.full((1, 12), -torch.inf)
    logits[0, :6] = torch.tensor([4.0, 3.0, 2.0, 2.0, 2.0, 2.0])
    first, other = logits.clone(), logits.clone()
    first[0, 4:6] = -torch.inf  # the one sort kept 2 and 3
    other[0, 2:4] = -torch.inf  # the other one 4 and 5
    assert deviation.largest(first.softmax(-1), other.softmax(-1), ties=False)[0] > 0.05
    assert deviation.largest(first.softmax(-1), other.softmax(-1), ties=True)[0] < 1e-6
    wrong = first.clone()
    wrong[0, 1] = -torch.inf
    assert deviation.largest(wrong.softmax(-1), other.softmax(-1), ties=True)[0] > 0.05
    one_more = first.clone()
    one_more[0, 4] = 2.0
    assert deviation.largest(one_more.softmax(-1), other.softmax(-1), ties=True)[0] > 0.04


def to_round(seen, context, scratch):
    (found,) = to_rounds([seen], context, scratch)
    return found


def few_columns(seen, context, scratch):
    return few.gathered([Judged.of(seen, context)], context.asked, scratch)


def observation(seed=0, vocab=400, n=3, processors=(), draft_vocab=None, twice=False):
    random = torch.Generator().manual_seed(seed)
    raw_p = torch.randn(n + 1, vocab, generator=random) * 3
    raw_q = torch.randn(n, draft_vocab or vocab, generator=random) * 3
    run = lp.LogitsProcessorList(processors)
    ids = torch.zeros(1, 4, dtype=torch.int64)
    p, q = run(ids, raw_p.clone()), run(ids, raw_q.clone())
    if twice:
        q = run(ids, q)
    candidates = torch.multinomial(q.softmax(-1), 1, generator=random)[:, 0]
    correction = torch.multinomial(p[1:2].softmax(-1), 1, generator=random)[0]
    return Observation(
        index=0,
        gamma=n,
        sequence=torch.cat([torch.arange(4), candidates]),
        committed_before=4,
        output=torch.cat([candidates[:1], correction]),
        target_scores=p,
        draft_scores=q,
        target_logits=raw_p,
        draft_logits=tuple(raw_q),
        matches=1,
        point_mass=False,
        draft_stop=None,
        kv=KeyValues(),
        times=PhaseTimes(),
        target_calls=1,
        draft_calls=n,
    )


@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("top_p", [1.0, 0.7])
@torch.inference_mode()
def test_the_columns_that_matter_give_what_all_columns_give(monkeypatch, twice, top_p):
    processors = [lp.TemperatureLogitsWarper(0.7), lp.TopKLogitsWarper(30)]
    if top_p < 1:
        processors.append(lp.TopPLogitsWarper(top_p))
    context = Context(Asked.of(processors), greedy=False)
    scratch = Scratch()  # kept from round to round, as in a capture
    for seed in range(20):
        seen = observation(seed, processors=processors, twice=twice)
        short = to_round(seen, context, scratch)
        assert few_columns(seen, context, scratch) is not None
        monkeypatch.setattr(few, "_LARGEST_TOP_K", 0)
        assert few_columns(seen, context, scratch) is None
        all_ = to_round(seen, context, scratch)
        monkeypatch.undo()
        for a, b in zip(short.positions, all_.positions, strict=True):
            assert (a.candidate, a.fate, a.position) == (b.candidate, b.fate, b.position)
            assert [t for t, _ in a.target_top] == [t for t, _ in b.target_top]
            assert [t for t, _ in a.draft_top] == [t for t, _ in b.draft_top]
            for name in ("draft_prob", "target_prob", "overlap", "draft_entropy", "target_entropy",
                         "draft_deviation", "target_deviation"):  # fmt: skip
                assert getattr(a, name) == pytest.approx(getattr(b, name), abs=2e-5), name
            assert a.rank == b.rank
        plain = dataclasses.replace(short, positions=(), correction_prob=None, residual_mass=None,
                                    correction_target_prob=None, correction_draft_prob=None)  # fmt: skip
        assert plain == dataclasses.replace(all_, positions=(), correction_prob=None, residual_mass=None,
                                            correction_target_prob=None, correction_draft_prob=None)  # fmt: skip
        assert short.correction_prob == pytest.approx(all_.correction_prob, abs=1e-5)


def test_scores_that_are_alive_outside_top_k_are_not_overlooked():
    """A draft that ignores the settings keeps its whole vocabulary: its distribution must be taken whole, too."""
    processors = [lp.TopKLogitsWarper(30)]
    seen = observation(processors=processors)
    seen = dataclasses.replace(seen, draft_scores=torch.stack(seen.draft_logits))
    found = to_round(seen, Context(Asked.of(processors), greedy=False), Scratch())
    wanted = torch.stack(seen.draft_logits).softmax(-1)
    for i, position in enumerate(found.positions[:3]):
        assert position.draft_prob == pytest.approx(float(wanted[i, position.candidate]), abs=1e-6)
        assert position.draft_deviation > 1e-3


def test_a_draft_that_keeps_fewer_than_asked_is_measured_against_all_that_were_asked():
    seen = observation(processors=[lp.TopKLogitsWarper(30)])
    few = lp.TopKLogitsWarper(5)(torch.zeros(1, 4, dtype=torch.int64), torch.stack(seen.draft_logits))
    seen = dataclasses.replace(seen, draft_scores=few)
    found = to_round(seen, Context(Asked.of([lp.TopKLogitsWarper(30)]), greedy=False), Scratch())
    raw = torch.stack(seen.draft_logits)
    wanted = raw.masked_fill(raw < raw.topk(30).values[:, -1:], -torch.inf).softmax(-1)
    expected = (few.softmax(-1) - wanted).abs().amax(-1).tolist()
    assert [p.draft_deviation for p in found.positions[:3]] == pytest.approx(expected, abs=1e-6)
    assert min(expected) > 0.01


@pytest.mark.parametrize("draft_vocab", [390, 410])
def test_vocabularies_that_are_padded_differently(draft_vocab):
    seen = observation(draft_vocab=draft_vocab)
    seen = dataclasses.replace(seen, sequence=seen.sequence.clamp(max=389), output=seen.output.clamp(max=389))
    found = to_round(seen, Context(Asked.of([]), greedy=False), Scratch())
    assert all(0 <= p.overlap <= 1 for p in found.positions[:3])
    assert all(p.draft_prob is not None for p in found.positions[:3])


def test_a_tie_is_ranked_by_id():
    seen = observation()
    target = seen.target_scores.clone()
    y = int(seen.sequence[4])
    best = target[0].argmax()
    target[0, y] = target[0, best]
    found = to_round(dataclasses.replace(seen, target_scores=target), Context(Asked.of([]), greedy=False), Scratch())
    assert found.positions[0].rank == (1 if y <= best else 2)


@pytest.mark.parametrize("width", [60, 4096, 5000, 49_152])
@pytest.mark.parametrize("k", [1, 5, 58])
def test_the_largest_are_those_of_topk(width, k):
    random = torch.Generator().manual_seed(width + k)
    for scores in (
        torch.randn(4, width, generator=random),
        torch.randint(0, 30, (4, width), generator=random).float(),  # ties everywhere
        torch.full((4, width), -torch.inf).index_fill_(1, torch.tensor([3, width - 1]), 1.0),
    ):
        values, found = passes.largest(scores, k)
        assert torch.equal(values, scores.topk(k).values)
        assert torch.equal(scores.gather(1, found), values)
        assert all(len(set(row)) == k for row in found.tolist())


@pytest.mark.parametrize("width", [60, 97, 4096, 50_257])
@pytest.mark.parametrize("k", [1, 30, 50])
def test_the_floor_leaves_the_largest_with_all_their_ties_and_few_others(width, k):
    random = torch.Generator().manual_seed(width + k)
    for scores in (torch.randn(width, generator=random), torch.randint(0, 5000, (width,), generator=random).float()):
        kept = scores >= passes.floors(scores[None].numpy(), k).item()
        assert bool(kept[scores >= scores.topk(k).values[-1]].all())
        assert int(kept.sum()) < 2 * k + 20
