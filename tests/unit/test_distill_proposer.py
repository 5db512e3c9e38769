"""The head as a proposer: lossless, its cache on the true path, its states the target's."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.decode import Decoder
from engine.distill.start import config_for, start_from_target
from engine.errors import PairError
from engine.gamma import FixedGamma
from engine.head.folder import load_head, save_head
from engine.head.network import DraftHead
from engine.model import Model
from engine.proposers.feature_head import FeatureHead, find_head, load_feature_head
from engine.round import Sampling
from engine.session import load_session
from engine.stopping import Stopping
from engine.timing import PhaseClock
from tests.unit.engine_models import llama, output
from tests.unit.lossless import SIGNIFICANCE, exact, module_logits, p_value
from tests.unit.tiny_target import tiny_target, tiny_tokenizer


def small_head(module: Any, scored: int, layers: int = 1, seed: int = 5) -> tuple[DraftHead, torch.Tensor]:
    """An untrained head that scores every third token or so."""
    torch.manual_seed(seed)
    head = DraftHead(config_for(module, scored, layers, taps=tuple(range(1, module.config.num_hidden_layers))))
    start_from_target(head, module)
    vocab = module.config.vocab_size
    return head.eval().requires_grad_(False), torch.randperm(vocab)[:scored].sort().values


def loop_with_head(module: Any, sampling: Sampling, gamma: int, scored: int, seed: int = 0, layers: int = 1) -> Decoder:
    target = Model(module, "target")
    proposer = FeatureHead(*small_head(module, scored, layers), target, sampling)
    target.catch_hidden(proposer.taps)
    generator = torch.Generator().manual_seed(seed)
    return Decoder(target, proposer, sampling, FixedGamma(gamma), generator, PhaseClock(torch.device("cpu")))


def run(loop: Decoder, prompt: list[int], tokens: int, blocks: int = 1) -> list[Any]:
    """Decode one prompt, its states observed in `blocks` parts."""
    with torch.inference_mode():
        ids = torch.tensor(prompt)
        loop.target.begin(len(prompt) + tokens + 16)
        loop.proposer.begin(ids, len(prompt) + tokens + 16)
        hidden = torch.cat(loop.target.prefill(ids[:-1])) if len(prompt) > 1 else torch.empty(0)
    for part in hidden.tensor_split(blocks):
        if len(part):
            loop.proposer.observe(part)
    loop.begin(prompt, Stopping(frozenset(), tokens, (), lambda token: bytes([token])))
    return list(loop.rounds())


@pytest.mark.parametrize(("gamma", "layers"), [(1, 1), (3, 1), (4, 2)])
def test_greedy_output_is_the_targets_own(gamma: int, layers: int) -> None:
    module = llama(seed=2)
    rounds = run(loop_with_head(module, Sampling(temperature=0.0), gamma, 40, layers=layers), [3, 1, 4, 1, 5], 40)
    ids = [3, 1, 4, 1, 5]
    with torch.inference_mode():
        for _ in range(40):
            ids.append(int(module(torch.tensor([ids])).logits[0, -1].argmax()))
    assert output(rounds) == ids[5:]


def test_the_output_follows_the_target_though_q_lacks_most_tokens() -> None:
    module = llama(
        1, vocab=6, seed=3, hidden_size=16, intermediate_size=16, num_attention_heads=1, num_key_value_heads=1
    )
    sampling = Sampling(temperature=8.0)
    loop = loop_with_head(module, sampling, gamma=2, scored=3, seed=5)
    counts = Counter(tuple(output(run(loop, [1], 2))) for _ in range(700))
    expected: dict[tuple[int, ...], float] = {}
    for sequence, share in exact(module_logits(module), [1], sampling).items():
        expected[sequence[:2]] = expected.get(sequence[:2], 0.0) + share
    assert p_value(counts, expected) > SIGNIFICANCE


def test_q_is_zero_outside_the_trimmed_vocabulary() -> None:
    module = llama(seed=2)
    loop = loop_with_head(module, Sampling(), 4, 20)
    _, scored = small_head(module, 20)
    allowed = set(scored.tolist())
    for finished in run(loop, [3, 1, 4], 40):
        for position in finished.positions[: finished.proposed]:
            assert position.candidate in allowed
            assert position.draft_prob > 0
            assert {token for token, _ in position.draft_top} <= allowed


@pytest.mark.parametrize("gamma", [1, 4])
def test_the_cache_holds_what_was_fed_on_the_true_path(gamma: int) -> None:
    rounds = run(loop_with_head(llama(seed=2), Sampling(temperature=0.6), gamma, 60, seed=4), [3, 1, 4], 60)
    assert {finished.accepted for finished in rounds} >= {0, 1}
    assert rounds[0].draft_kv_before == 2
    for finished in rounds:
        fed = finished.draft_kv_before + finished.draft_kv_written
        assert fed == finished.committed_before + finished.proposed - 1
        assert finished.draft_kv_after == min(finished.committed_after - 1, fed)
        assert finished.draft_calls == finished.proposed


def test_drafts_rest_on_the_targets_states_alone() -> None:
    """After any rounds, the next proposal is that of a head which reads the whole prefix afresh."""
    module = llama(seed=2)
    loop = loop_with_head(module, Sampling(temperature=0.6), 3, 60, seed=4)
    prompt = [3, 1, 4, 1]
    rounds = run(loop, prompt, 24)
    later = next(i for i, finished in enumerate(rounds) if finished.accepted and i > 1) + 1
    prefix = prompt + output(rounds[:later])
    recorded = rounds[later].positions[0]
    head, scored = small_head(module, 60)
    with torch.inference_mode():
        body = module.model(torch.tensor([prefix[:-1]]), output_hidden_states=True)
        states = torch.cat(body.hidden_states[1:], dim=-1)[0]
        before = torch.cat([torch.zeros(1, states.shape[1]), states])
        state = head(before[None], module.model.embed_tokens(torch.tensor([prefix])), 1)[0][0, -1]
        q = (state @ module.lm_head.weight[scored].T / 0.6).softmax(-1)
    place = scored.tolist().index(recorded.candidate)
    assert float(q[place]) == pytest.approx(recorded.draft_prob, abs=1e-5)


def test_a_long_prompt_may_come_in_blocks() -> None:
    module = llama(seed=2)
    prompt = [(7 * i) % 64 for i in range(50)]
    whole = run(loop_with_head(module, Sampling(), 3, 40, seed=9), prompt, 20)
    parts = run(loop_with_head(module, Sampling(), 3, 40, seed=9), prompt, 20, blocks=4)
    assert output(whole) == output(parts)
    assert whole[0].draft_kv_before == parts[0].draft_kv_before == 49


def test_a_head_is_read_as_it_was_written(tmp_path: Path) -> None:
    module = llama(seed=2)
    head, scored = small_head(module, 20)
    save_head(tmp_path, head, scored, {"target": "tiny"})
    assert find_head(str(tmp_path)) == tmp_path
    assert find_head("some/hub-id") is None
    again, same = load_head(tmp_path)
    assert same.tolist() == scored.tolist()
    for name, value in head.state_dict().items():
        torch.testing.assert_close(again.state_dict()[name], value.bfloat16())
    proposer = load_feature_head(tmp_path, Model(module, "target"), Sampling())
    assert proposer.kind == "eagle"


def test_a_head_of_another_target_is_refused(tmp_path: Path) -> None:
    head, scored = small_head(llama(seed=2), 20)
    save_head(tmp_path, head, scored, {})
    with pytest.raises(PairError, match="width 32 with 64 tokens, but bigger has width 32 and 80"):
        load_feature_head(tmp_path, Model(llama(vocab=80), "bigger"), Sampling())
    with pytest.raises(PairError, match=r"after layers \(1, 2\), but shallow has 1"):
        load_feature_head(tmp_path, Model(llama(1, seed=2), "shallow"), Sampling())
    (tmp_path / "head.safetensors").write_bytes(b"not a file of tensors")
    with pytest.raises(PairError, match="cannot be read"):
        load_feature_head(tmp_path, Model(llama(seed=2), "target"), Sampling())


def test_a_session_loads_a_head_by_its_folder_and_times_it(tmp_path: Path) -> None:
    module = tiny_target()
    module.save_pretrained(tmp_path / "target")
    tiny_tokenizer().save_pretrained(tmp_path / "target")
    save_head(tmp_path / "head", *small_head(module, 100), {})
    session = load_session(
        str(tmp_path / "head"), str(tmp_path / "target"), sampling=Sampling(temperature=0.0), gamma=3,
        max_new_tokens=12, device="cpu", dtype="float32",
    )  # fmt: skip
    ids = session.encode("hello there")
    plain = session.baseline(ids, tokens=12)
    costs = session.costs(ids, (1, 2, 3))
    assert all(cost.draft_ns and cost.draft_ns > 0 for cost in costs)
    sequence = session.prefill(0, "hello there", ids)
    assert sequence.draft_prefill_ns is not None
    rounds = list(session.decode())
    assert output(rounds) == list(plain.ids)
    assert rounds[0].draft_kv_before == len(ids) - 1
    assert session.info.proposer == "eagle"
    assert session.info.draft == str(tmp_path / "head")


def test_a_head_has_no_device_of_its_own(tmp_path: Path) -> None:
    module = tiny_target()
    module.save_pretrained(tmp_path / "target")
    tiny_tokenizer().save_pretrained(tmp_path / "target")
    save_head(tmp_path / "head", *small_head(module, 100), {})
    with pytest.raises(PairError, match="cannot have a device of its own"):
        load_session(
            str(tmp_path / "head"), str(tmp_path / "target"), sampling=Sampling(), device="cpu", draft_device="cpu"
        )


@pytest.mark.parametrize(
    "sampling",
    [Sampling(temperature=0.7, top_k=5), Sampling(top_p=0.8), Sampling(min_p=0.1), Sampling(temperature=0.0)],
)
def test_drafting_in_the_trimmed_vocabulary_is_drafting_in_the_whole_one(sampling: Sampling) -> None:
    """A bias on no token takes the whole vocabulary's way; it must come out the same."""
    module = llama(seed=2)
    loops = [loop_with_head(module, s, 3, 40, seed=9) for s in (sampling, replace(sampling, logit_bias={0: 0.0}))]
    trimmed, whole = (run(loop, [3, 1, 4], 30) for loop in loops)
    assert output(trimmed) == output(whole)
    for a, b in zip(trimmed, whole, strict=True):
        for x, y in zip(a.positions, b.positions, strict=True):
            assert x.candidate == y.candidate
            assert x.draft_prob == pytest.approx(y.draft_prob)
            assert x.draft_entropy == pytest.approx(y.draft_entropy, abs=1e-5)
