"""What is measured on the device agrees with the definitions, computed here the long way."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")

from specview.vllm_plugin import compiled, drafts, measure  # noqa: E402
from specview.vllm_plugin.columns import INDEX, SCALARS  # noqa: E402
from specview.vllm_plugin.scored import Scored, Scratch  # noqa: E402

VOCAB = 50


@pytest.fixture(autouse=True, params=["one pass", "operations"])
def way(request, monkeypatch):
    """As on a processor, and as on any other device; plain Python where numba is not at hand."""
    if not compiled.COMPILED:
        monkeypatch.setattr(compiled, "_BLOCK", 16)
    monkeypatch.setattr(compiled, "COMPILED", request.param == "one pass")
    return request.param


def pack(scored, top, scratch):
    return measure.pack([scored], top, scratch)


def truncated(raw, temperature, k, p):
    """Logits under one row's settings: temperature, then top-k, then top-p of what is left."""
    scores = raw / (temperature or 1.0)
    if k < VOCAB:
        scores = scores.masked_fill(scores < scores.topk(k).values[-1], -torch.inf)
    probs, order = scores.softmax(-1).sort(descending=True)
    before = probs.cumsum(-1) - probs
    scores[order[before >= p]] = -torch.inf
    return scores


@pytest.fixture
def rows():
    torch.manual_seed(0)
    n = 8
    raw = torch.randn(n, VOCAB) * 1.5
    temperature = torch.tensor([1.0, 0.7, 1.3, 0.0, 1.0, 0.5, 2.0, 1.0])
    k = torch.tensor([50, 8, 50, 50, 5, 20, 3, 1], dtype=torch.int32)
    p = torch.tensor([1.0, 1.0, 0.9, 1.0, 0.8, 0.95, 0.5, 1.0])
    scores = torch.stack(
        [truncated(*one) for one in zip(raw, temperature.tolist(), k.tolist(), p.tolist(), strict=True)]
    )
    candidate = scores.argmax(-1)
    candidate[1] = scores[1].topk(3).indices[2]
    return Scored(
        scores, candidate, scores.argmin(-1), raw=raw, temperature=temperature, top_k=k, top_p=p, widest_k=20, judged=n,
        uniform=torch.rand(n, dtype=torch.float64), draft=torch.softmax(torch.randn(n, VOCAB), -1),
    )  # fmt: skip


def column(packed, name):
    return packed[:, INDEX[name]]


def replaced(scored, **changes):
    return Scored(**{name: getattr(scored, name) for name in scored.__slots__} | changes)


def test_each_column_is_what_its_name_says(rows):
    packed = pack(rows, 4, Scratch())
    p, q = rows.scores.softmax(-1), rows.draft
    each = torch.arange(len(p))
    assert torch.equal(column(packed, "candidate").long(), rows.candidate)
    assert torch.equal(column(packed, "u"), rows.uniform)
    assert torch.allclose(column(packed, "target_prob").float(), p[each, rows.candidate])
    assert torch.allclose(column(packed, "draft_prob").float(), q[each, rows.candidate])
    assert torch.allclose(column(packed, "token_target_prob").float(), p[each, rows.token])
    assert torch.allclose(column(packed, "overlap").float(), torch.minimum(p, q).sum(-1), atol=1e-6)
    assert torch.allclose(column(packed, "residual_mass").float(), (p - q).clamp(min=0).sum(-1), atol=1e-6)
    assert column(packed, "rank").tolist() == [1, 3, 1, 1, 1, 1, 1, 1]
    for name, x in (("target_entropy", p), ("draft_entropy", q)):
        assert torch.allclose(column(packed, name).float(), torch.special.entr(x).sum(-1), atol=1e-5)
    start = len(SCALARS)
    assert torch.allclose(packed[:, start + 4 : start + 8].float(), p.topk(4).values)
    assert torch.allclose(packed[:, start + 12 : start + 16].float(), q.topk(4).values)
    assert torch.allclose(p.gather(1, packed[:, start : start + 4].long()), p.topk(4).values)


def test_equal_scores_rank_by_id():
    scores = torch.tensor([[1.0, 2.0, 2.0, 2.0, 0.0]]).repeat(3, 1)
    packed = pack(Scored(scores, torch.tensor([1, 3, 0]), torch.tensor([1, 1, 1]), judged=3), 2, Scratch())
    assert column(packed, "rank").tolist() == [1, 3, 4]


@pytest.mark.parametrize("values", [1000, 7])  # few values: many are equal
def test_ranks_and_alternatives_of_a_vocabulary_in_blocks(monkeypatch, values):
    monkeypatch.setattr(measure, "BLOCK", 4)
    torch.manual_seed(3)
    scores = torch.randint(values, (40, VOCAB)) / values
    candidate = torch.randint(VOCAB, (40,))
    packed = pack(Scored(scores, candidate, candidate, judged=40), 2, Scratch())
    ids = torch.arange(VOCAB)
    for row, token, rank in zip(scores, candidate.tolist(), column(packed, "rank").tolist(), strict=True):
        assert rank == 1 + int((row > row[token]).sum()) + int(((row == row[token]) & (ids < token)).sum())
    top = packed[:, len(SCALARS) : len(SCALARS) + 2].long()
    assert torch.equal(scores.gather(1, top), scores.topk(2).values)


def test_last_positions_beside_candidates_are_measured_alike(rows):
    torch.manual_seed(4)
    m = 3
    raw = torch.cat([rows.raw, torch.randn(m, VOCAB)])
    last = Scored(
        raw[-m:].clone(), torch.tensor([1, 2, 3]), torch.tensor([1, 5, 3]), raw=raw, raw_rows=torch.arange(m) + 8,
        temperature=torch.ones(m), top_k=torch.full((m,), VOCAB, dtype=torch.int32), top_p=torch.ones(m), widest_k=20,
    )  # fmt: skip
    candidates = replaced(rows, raw=raw, raw_rows=torch.arange(8))
    for first in (candidates, replaced(candidates, probs=rows.scores.softmax(-1))):
        together = measure.pack([first, last], 3, Scratch())
        apart = torch.cat([pack(first, 3, Scratch()), pack(last, 3, Scratch())])
        assert torch.allclose(together, apart, atol=1e-6, equal_nan=True)
        assert column(together, "rank")[8:].isnan().all()
        assert column(together, "target_deviation").max() < 1e-6


def test_what_only_one_side_has_keeps_them_apart(rows):
    last = Scored(rows.scores[:2].clone(), torch.tensor([1, 2]), torch.tensor([1, 2]))
    together = measure.pack([rows, last], 3, Scratch())
    assert torch.allclose(together[:8], pack(rows, 3, Scratch()), equal_nan=True)
    assert column(together, "target_deviation")[8:].isnan().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("one_hot", [True, False])
def test_both_ways_lead_to_the_same(rows, monkeypatch, dtype, one_hot):
    raw = rows.raw.to(dtype)
    own = rows.temperature.where(rows.temperature > 0, 1)[:, None]
    plain = replaced(
        rows, raw=raw, scores=raw.float() / own, top_k=None, top_p=None, draft=None if one_hot else rows.draft
    )
    for one in (rows, plain, replaced(plain, raw=None), replaced(plain, temperature=None)):
        found = []
        for flag in (True, False):
            monkeypatch.setattr(compiled, "COMPILED", flag)
            packed = pack(one, 3, Scratch())
            start = len(SCALARS)
            for ids in (start, start + 6):  # of what has no probability, any may be named
                packed[:, ids : ids + 3][packed[:, ids + 3 : ids + 6] == 0] = -1
            found.append(packed)
        assert torch.allclose(found[0], found[1], atol=2e-6, equal_nan=True)


def test_chunks_change_nothing(rows, monkeypatch):
    whole = pack(rows, 3, Scratch())
    monkeypatch.setattr(measure, "CHUNK_ELEMENTS", VOCAB * 3)
    assert torch.allclose(pack(rows, 3, Scratch()), whole, atol=1e-6, equal_nan=True)


def test_one_score_that_is_not_its_logit_deviates_in_its_row_alone(rows):
    scores = rows.raw / rows.temperature.where(rows.temperature > 0, 1)[:, None]
    plain = replaced(rows, scores=scores, top_k=None, top_p=None)
    assert column(pack(plain, 1, Scratch()), "target_deviation").max() < 1e-6
    scores[6, 3] += 0.5
    exact = (scores[6].softmax(-1) - (rows.raw[6] / rows.temperature[6]).softmax(-1)).abs().max()
    found = column(pack(plain, 1, Scratch()), "target_deviation")
    assert found[6].item() == pytest.approx(exact.item(), rel=1e-3)
    assert found[torch.arange(8) != 6].max() < 1e-6


def test_inputs_stay_as_they_are(rows):
    before = {name: getattr(rows, name).clone() for name in ("scores", "raw", "draft", "temperature", "candidate")}
    pack(rows, 3, Scratch())
    assert all(torch.equal(getattr(rows, name), tensor) for name, tensor in before.items())


def test_right_settings_deviate_by_rounding_only(rows):
    assert column(pack(rows, 1, Scratch()), "target_deviation").max() < 1e-6


@pytest.mark.parametrize(
    ("row", "temperature", "k", "p"),
    [(0, 0.9, 50, 1.0), (1, 0.7, 9, 1.0), (1, 0.7, 7, 1.0), (2, 1.3, 50, 0.97), (2, 1.3, 50, 0.8), (4, 1.0, 6, 0.99)],
)
def test_other_settings_deviate_by_at_least_the_token_that_differs(rows, row, temperature, k, p):
    wrong = truncated(rows.raw[row].clone(), temperature, k, p)
    scores = rows.scores.clone()
    exact = (wrong.softmax(-1) - scores[row].softmax(-1)).abs().max().item()
    assert exact > 1e-3  # the settings do make a difference
    scores[row] = wrong
    found = column(pack(replaced(rows, scores=scores), 1, Scratch()), "target_deviation")
    assert found[row].item() > 1e-3
    assert found[row].item() <= exact + 1e-6
    assert found[torch.arange(len(found)) != row].max() < 1e-6


def test_a_kept_set_that_is_not_the_upper_end_is_found(rows):
    scores = rows.scores.clone()
    best, worst = scores[1].argmax(), rows.raw[1].argmin()
    scores[1, worst], scores[1, best] = scores[1, best].clone(), -torch.inf
    found = column(pack(replaced(rows, scores=scores), 1, Scratch()), "target_deviation")
    assert found[1] > 0.1


def test_no_distribution_is_never_a_blank(rows):
    scores = rows.scores.clone()
    scores[2] = torch.nan
    packed = pack(replaced(rows, scores=scores), 2, Scratch())
    for name in ("target_prob", "target_deviation", "overlap", "target_entropy"):
        assert math.isnan(column(packed, name)[2])
        assert not column(packed, name)[torch.arange(8) != 2].isnan().any()


def test_selected_rows_are_measured_alike(rows):
    wanted = torch.tensor([1, 4, 7])
    some, all_ = pack(rows.select(wanted), 2, Scratch()), pack(rows, 2, Scratch())
    assert torch.allclose(some, all_[wanted], equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("temperature", [1.0, 0.7, 0.0])
def test_a_drafts_distribution_is_its_logits_or_deviates_by_the_difference(rows, dtype, temperature):
    raw = rows.raw.to(dtype)
    own = torch.full((8,), temperature)
    scores = raw.clone().div_(own.where(own > 0, 1)[:, None])
    probs = scores.softmax(-1, dtype=torch.float32)
    drawn = probs.argmax(-1)
    deviation, entropy = drafts.draft_facts(raw, own, scores, probs, drawn, Scratch())
    assert deviation.max() < 1e-6
    assert torch.allclose(entropy, torch.special.entr(probs).sum(-1), atol=1e-5)
    other = (scores * 1.25).softmax(-1, dtype=torch.float32)
    deviation, _ = drafts.draft_facts(raw, own, scores * 1.25, other, drawn, Scratch())
    assert torch.allclose(deviation, (other - probs).abs().amax(-1), atol=1e-6)
    wrong = probs.clone()
    wrong[3, drawn[3]] *= 1.5
    wrong[5] = torch.nan
    deviation, entropy = drafts.draft_facts(raw, own, scores, wrong, drawn, Scratch())
    assert deviation[3] > 0.01
    assert math.isnan(deviation[5])
    assert math.isnan(entropy[5])
    assert deviation[[0, 1, 2, 4, 6, 7]].max() < 1e-6


def test_infinite_scores_keep_their_order(rows):
    scores = torch.tensor([[-torch.inf, 2.0, -torch.inf, 1.0]])
    token = torch.tensor([2])
    packed = pack(Scored(scores, token, token, judged=1), 4, Scratch())
    assert column(packed, "target_prob").item() == 0
    assert column(packed, "target_entropy").item() == pytest.approx(torch.special.entr(scores.softmax(-1)).sum().item())
    assert packed[0, len(SCALARS) : len(SCALARS) + 2].tolist() == [1, 3]
