"""Rounds analysed together are what each of them is alone, by whichever way they are measured."""

import dataclasses

import pytest
import torch
from transformers.generation import logits_process as lp

from specview.capturing import few
from specview.capturing.analysis import to_rounds
from specview.capturing.measured import Judged
from specview.capturing.scratch import Scratch
from specview.capturing.settings import Asked
from specview.capturing.verdict import Context
from tests.unit.test_capture_settings import observation

torch.set_num_threads(1)

SETTINGS = {
    "nothing": [],
    "temperature": [lp.TemperatureLogitsWarper(0.7)],
    "top-p": [lp.TopPLogitsWarper(0.8)],
    "top-k": [lp.TemperatureLogitsWarper(0.7), lp.TopKLogitsWarper(20)],
    "top-k and top-p": [lp.TopKLogitsWarper(20), lp.TopPLogitsWarper(0.8)],
    "top-k and min-p": [lp.TopKLogitsWarper(20), lp.MinPLogitsWarper(0.1)],
}


def without_draft(seen, **changes):
    """The same round by a proposer that has no distribution."""
    return dataclasses.replace(seen, draft_scores=None, draft_logits=None, **changes)


def rounds(processors):
    """Of all kinds: longer and shorter, nothing proposed, without a distribution, without raw logits, twice applied."""
    some = [observation(seed, n=n, processors=processors, twice=True) for seed, n in enumerate((5, 3, 1, 4))]
    empty = dataclasses.replace(
        without_draft(some[0], matches=0, draft_calls=0),
        sequence=some[0].sequence[:4],
        output=some[0].output[-1:],
        target_scores=some[0].target_scores[:1],
        target_logits=some[0].target_logits[:1],
    )
    unseen = dataclasses.replace(some[3], target_logits=None, draft_logits=None)
    several = [*some, empty, without_draft(some[1], point_mass=True), without_draft(some[2]), unseen]
    return [dataclasses.replace(seen, index=i) for i, seen in enumerate(several)]


@pytest.mark.parametrize("greedy", [False, True])
@pytest.mark.parametrize("name", SETTINGS)
def test_a_bunch_is_what_its_rounds_are_one_by_one(name, greedy):
    context = Context(Asked.of(SETTINGS[name]), greedy)
    seen = rounds(SETTINGS[name])
    together = to_rounds(seen, context, Scratch())
    scratch = Scratch()  # kept from round to round, as in a capture
    assert together == [one for each in seen for one in to_rounds([each], context, scratch)]
    assert [one.index for one in together] == list(range(len(seen)))


@pytest.mark.parametrize("name", SETTINGS)
@torch.inference_mode()
def test_each_number_is_that_of_a_plain_softmax_in_double_precision(name):
    context = Context(Asked.of(SETTINGS[name]), greedy=False)
    seen = rounds(SETTINGS[name])
    for one, found in zip(seen, to_rounds(seen, context, Scratch()), strict=True):
        p = one.target_scores.double().softmax(-1)
        q = None if one.draft_scores is None else one.draft_scores.double().softmax(-1)
        for i, position in enumerate(found.positions):
            assert position.target_entropy == pytest.approx(float(torch.special.entr(p[i]).sum()), abs=2e-5)
            assert [x for _, x in position.target_top] == pytest.approx(
                [x for x in p[i].topk(5).values.tolist() if x], abs=1e-6
            )
            assert all(x == pytest.approx(float(p[i, token]), abs=1e-6) for token, x in position.target_top)
            y = position.candidate
            if y is None:
                continue
            assert position.target_prob == pytest.approx(float(p[i, y]), abs=1e-6)
            scores = one.target_scores[i]
            before = (scores > scores[y]) | ((scores == scores[y]) & (torch.arange(len(scores)) < y))
            assert position.rank == 1 + int(before.sum())
            if q is not None:
                assert position.draft_prob == pytest.approx(float(q[i, y]), abs=1e-6)
                assert position.draft_entropy == pytest.approx(float(torch.special.entr(q[i]).sum()), abs=2e-5)
                assert position.overlap == pytest.approx(float(torch.minimum(p[i], q[i]).sum()), abs=1e-6)
        if found.correction_kind == "correction" and (q is not None or one.point_mass):
            against = torch.zeros_like(p[0])
            against[one.sequence[4 + found.accepted]] = 1.0
            residual = (p[found.accepted] - (against if q is None else q[found.accepted])).clamp(min=0)
            assert found.residual_mass == pytest.approx(float(residual.sum()), abs=1e-6)
            expected = float(residual[found.correction_token] / residual.sum())
            assert found.correction_prob == pytest.approx(expected, abs=1e-5)


def test_a_bunch_is_measured_on_few_columns_only_where_top_k_leaves_few():
    for name, processors in SETTINGS.items():
        context = Context(Asked.of(processors), greedy=False)
        judged = [Judged.of(seen, context) for seen in rounds(processors)]
        found = few.gathered(judged, context.asked, Scratch())
        assert (found is not None) == ("top-k" in name)


def test_more_ties_than_expected_are_measured_on_all_columns():
    context = Context(Asked.of(SETTINGS["top-k"]), greedy=False)
    seen = rounds(SETTINGS["top-k"])
    level = seen[1].target_logits.topk(20).values[:, -1:]
    tied = torch.where((torch.arange(400) < 200) & (seen[1].target_logits < level), level, seen[1].target_logits)
    scores = torch.where(tied < level, -torch.inf, tied / 0.7)
    seen[1] = dataclasses.replace(seen[1], target_logits=tied, target_scores=scores)
    found = to_rounds(seen, context, Scratch())
    assert max(p.target_deviation for p in found[1].positions) < 1e-6
    assert found[1].positions[0].target_entropy == pytest.approx(
        float(torch.special.entr(scores[0].double().softmax(-1)).sum()), abs=1e-5
    )
    rest = [one for i, one in enumerate(found) if i != 1]
    alone = to_rounds([one for i, one in enumerate(seen) if i != 1], context, Scratch())
    for a, b in zip(rest, alone, strict=True):
        assert [p.rank for p in a.positions] == [p.rank for p in b.positions]
        assert [p.target_prob for p in a.positions] == pytest.approx([p.target_prob for p in b.positions], abs=1e-6)
