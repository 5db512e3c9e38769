"""Distillation on a tiny random target: the parts against their definitions, and the whole recipe."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.distill.data import collate, epochs, frequent_tokens
from engine.distill.generate import GenerateSettings, chat_ids
from engine.distill.loss import DistributionLoss
from engine.distill.pipeline import DistillSettings, distill
from engine.distill.prompts import HELD_OUT, training_prompts
from engine.distill.sampler import PACKED_ATTENTION, sample
from engine.distill.store import load_all, load_shard, save_shard
from engine.distill.target import check_target
from engine.distill.train import TrainSettings
from engine.errors import PairError
from engine.head.cache import HeadCache, HeadConfig
from engine.head.folder import load_head
from engine.head.network import DraftHead
from tests.unit.tiny_target import tiny_target, tiny_tokenizer


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def target() -> Any:
    model = tiny_target()
    model.set_attn_implementation(PACKED_ATTENTION)
    return model


SMALL = DistillSettings(
    scored_tokens=200,
    generate=GenerateSettings(tokens=600, prompts=48, invented_share=0.3, max_new_tokens=16, batch=16),
    train=TrainSettings(steps=40, batch_tokens=512, unroll=2, warmup=5, learning_rate=5e-3, checkpoint_every=20),
    depth=3,
)


def test_unrolled_states_are_those_of_drafting_step_by_step() -> None:
    torch.manual_seed(0)
    config = HeadConfig(32, 4, 2, 8, 64, 10000.0, 1e-5, 100, 50, layers=2, taps=(1, 3))
    head = DraftHead(config).eval()
    length = 9
    features, embedded = torch.randn(1, length, 96), torch.randn(1, length, 32)
    first, second, third = head(features, embedded, 3)
    for last in range(length - 2):
        # Room for four positions only, so that the caches have to grow on the way.
        caches = [HeadCache(config, torch.float32, torch.device("cpu"), room=4) for _ in head.stack]
        state = head.step(head.enter(features[0, : last + 1], embedded[0, : last + 1]), caches, 0)
        torch.testing.assert_close(state, first[0, : last + 1])
        state = head.step(head.enter_own(state[-1:], embedded[0, last + 1 : last + 2]), caches, last + 1)
        torch.testing.assert_close(state[0], second[0, last + 1])
        state = head.step(head.enter_own(state, embedded[0, last + 2 : last + 3]), caches, last + 2)
        torch.testing.assert_close(state[0], third[0, last + 2])
        assert [cache.length for cache in caches] == [last + 3] * 2


def test_a_cache_refuses_a_position_behind_a_gap() -> None:
    config = HeadConfig(32, 4, 2, 8, 64, 10000.0, 1e-5, 100, 50)
    head = DraftHead(config)
    caches = [HeadCache(config, torch.float32, torch.device("cpu"))]
    with pytest.raises(ValueError, match="holds 0 positions"):
        head.step(torch.zeros(1, 32), caches, 2)


@pytest.mark.parametrize("weight", [0.0, 0.7])
def test_loss_and_gradient_are_those_of_autograd(weight: float) -> None:
    torch.manual_seed(0)
    logits = torch.randn(5, 20, requires_grad=True)
    p = torch.randn(5, 25).softmax(-1)[:, :20].contiguous()
    loss, overlap = DistributionLoss.apply(logits, p, weight)
    loss.backward()
    gradient, logits.grad = logits.grad, None
    q = logits.softmax(-1)
    expected = -(p * q.log()).sum() - weight * torch.minimum(p, q).sum()
    expected.backward()
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(overlap, torch.minimum(p, q).sum().detach())
    torch.testing.assert_close(gradient, logits.grad, atol=4e-3, rtol=1e-2)  # kept in bfloat16


def test_sampling_many_at_once_is_sampling_each_alone(target: Any) -> None:
    prompts = [[5, 6, 7], [9, 8, 7, 6, 5, 4, 3], [40, 41, 42, 43]]
    together = sample(
        target, prompts, taps=(1,), max_new_tokens=10, temperatures=[0.0] * 3, end_tokens=frozenset({2}),
        generator=torch.Generator().manual_seed(1),
    )  # fmt: skip
    for prompt, got in zip(prompts, together, strict=True):
        ids = list(prompt)
        while len(ids) < len(prompt) + 10:
            with torch.inference_mode():
                logits = target(torch.tensor([ids])).logits[0, -1].float()
            ids.append(int(logits.argmax()))
            if ids[-1] == 2:
                break
        assert got.ids.tolist() == ids
        assert got.ended == (ids[-1] == 2)
        with torch.inference_mode():
            body = target.model(torch.tensor([ids[:-1]]), output_hidden_states=True)
            states, tapped = body.last_hidden_state[0], body.hidden_states[1][0]
            norms = target.lm_head(states).logsumexp(-1)
        torch.testing.assert_close(got.states, torch.cat([tapped, states], dim=-1), atol=1e-5, rtol=1e-4)
        assert got.log_normalizer[: len(prompt) - 1].isnan().all()
        torch.testing.assert_close(got.log_normalizer[len(prompt) - 1 :], norms[len(prompt) - 1 :])


def test_drawn_tokens_follow_the_target(target: Any) -> None:
    """χ² of 2,000 first tokens against the target's own distribution, its rare tokens pooled."""
    from scipy.stats import chisquare

    prompt = [5, 6, 7]
    drawn = sample(
        target, [prompt] * 2000, taps=(), max_new_tokens=1, temperatures=[1.0] * 2000, end_tokens=frozenset({2}),
        generator=torch.Generator().manual_seed(1),
    )  # fmt: skip
    counts = torch.stack([s.ids[-1] for s in drawn]).bincount(minlength=target.config.vocab_size)
    with torch.inference_mode():
        p = target(torch.tensor([prompt])).logits[0, -1].softmax(-1)
    common = p * 2000 > 10
    observed = [*counts[common].tolist(), int(counts[~common].sum())]
    expected = [*(p[common] * 2000).tolist(), float(p[~common].sum() * 2000)]
    scale = sum(observed) / sum(expected)
    assert chisquare(observed, [e * scale for e in expected]).pvalue > 1e-3


def test_a_shard_gives_back_what_was_saved(target: Any, tmp_path: Path) -> None:
    saved = sample(
        target, [[5, 6, 7], [8, 9, 10, 11]], taps=(1, 2), max_new_tokens=4, temperatures=[1.0, 0.0],
        end_tokens=frozenset({2}), generator=torch.Generator().manual_seed(1),
    )  # fmt: skip
    save_shard(tmp_path / "a.safetensors", saved)
    for before, after in zip(saved, load_shard(tmp_path / "a.safetensors"), strict=True):
        assert after.ids.tolist() == before.ids.tolist()
        assert (after.prompt_length, after.ended) == (before.prompt_length, before.ended)
        torch.testing.assert_close(after.states, before.states)
        torch.testing.assert_close(after.log_normalizer, before.log_normalizer, equal_nan=True)
        assert before.states.shape[1] == 3 * target.config.hidden_size


def test_batches_cover_every_sequence_once_an_epoch_and_resume_in_place(target: Any) -> None:
    prompts = [[5, 6, 7 + i] for i in range(20)]
    sequences = sample(
        target, prompts, taps=(), max_new_tokens=6, temperatures=[1.0] * 20, end_tokens=frozenset({2}),
        generator=torch.Generator().manual_seed(1),
    )  # fmt: skip
    batches = epochs(sequences, batch_tokens=32, seed=3)
    seen: list[int] = []
    count = 0
    while len(seen) < 20:
        batch = next(batches)
        seen += batch.ids[:, 2].tolist()
        count += 1
    assert sorted(seen) == [7 + i for i in range(20)]
    following = next(batches)
    resumed = next(epochs(sequences, batch_tokens=32, seed=3, skip=count))
    assert resumed.ids.tolist() == following.ids.tolist()


def test_padding_is_never_learned_from(target: Any) -> None:
    sequences = sample(
        target, [[5, 6, 7], [8, 9, 10, 11, 12, 13]], taps=(), max_new_tokens=4, temperatures=[1.0] * 2,
        end_tokens=frozenset(), generator=torch.Generator().manual_seed(1),
    )  # fmt: skip
    batch = collate(sequences)
    assert batch.learned.sum(1).tolist() == [4, 4]
    assert not batch.learned[0, 6:].any()
    assert (batch.before[:, 0] == 0).all()


def test_frequent_tokens_hold_the_share_they_claim(target: Any) -> None:
    sequences = sample(
        target, [[5, 6, 7]] * 8, taps=(1,), max_new_tokens=8, temperatures=[1.0] * 8, end_tokens=frozenset(),
        generator=torch.Generator().manual_seed(1),
    )  # fmt: skip
    everything, whole = frequent_tokens(target, sequences, target.config.vocab_size)
    assert everything.tolist() == list(range(target.config.vocab_size))
    assert whole == pytest.approx(1.0, abs=1e-3)
    few, share = frequent_tokens(target, sequences, 20)
    assert len(few) == 20
    assert 20 / target.config.vocab_size < share < 1


def test_held_out_prompts_are_not_trained_on() -> None:
    prompts = training_prompts(100_000, seed=1)
    assert len(prompts) == len(set(prompts)) > 2000
    assert not set(prompts) & set(HELD_OUT)
    assert training_prompts(50, seed=1) == training_prompts(50, seed=1) != training_prompts(50, seed=2)


def test_a_head_learns_its_target_and_a_rerun_adds_nothing(tmp_path: Path) -> None:
    target, tokenizer = tiny_target(), tiny_tokenizer()
    target.set_attn_implementation(PACKED_ATTENTION)
    said: list[str] = []
    untrained = replace(SMALL, train=replace(SMALL.train, steps=0))
    before = distill(target, tokenizer, "tiny", tmp_path / "none", tmp_path / "work", untrained, said.append)
    after = distill(target, tokenizer, "tiny", tmp_path / "head", tmp_path / "work", SMALL, said.append)
    assert after.positions == before.positions > 100
    assert after.alpha[0] > before.alpha[0] + 0.02
    assert after.expected_length(after.alpha, 3) > before.expected_length(before.alpha, 3)
    head, scored = load_head(tmp_path / "head")
    assert len(scored) == 200
    assert scored.tolist() == sorted(set(scored.tolist()))
    said.clear()
    again = distill(target, tokenizer, "tiny", tmp_path / "again", tmp_path / "work", SMALL, said.append)
    assert again == after
    assert any("going on at step 40" in sentence for sentence in said)
    assert (tmp_path / "again" / "head.safetensors").read_bytes() == (
        tmp_path / "head" / "head.safetensors"
    ).read_bytes()
    assert sum(p.numel() for p in head.parameters()) < sum(p.numel() for p in target.parameters())


def test_killed_training_ends_where_an_unbroken_one_does(tmp_path: Path) -> None:
    target, tokenizer = tiny_target(), tiny_tokenizer()
    distill(target, tokenizer, "tiny", tmp_path / "whole", tmp_path / "work", SMALL, lambda _: None)
    steps = 0

    def killed() -> None:
        nonlocal steps
        steps += 1
        if steps == 30:
            raise KeyboardInterrupt

    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "samples").symlink_to(tmp_path / "work" / "samples")
    with pytest.raises(KeyboardInterrupt):
        distill(target, tokenizer, "tiny", tmp_path / "out", tmp_path / "other", SMALL, lambda _: None, killed)
    distill(target, tokenizer, "tiny", tmp_path / "out", tmp_path / "other", SMALL, lambda _: None)
    whole, _ = load_head(tmp_path / "whole", torch.float32)
    resumed, _ = load_head(tmp_path / "out", torch.float32)
    for (name, a), (_, b) in zip(whole.named_parameters(), resumed.named_parameters(), strict=True):
        torch.testing.assert_close(a, b, msg=name)


def test_a_plain_draft_is_a_standard_folder_that_transformers_takes(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    target, tokenizer = tiny_target(), tiny_tokenizer()
    settings = replace(SMALL, kind="plain", layers=2)
    untrained = replace(settings, train=replace(settings.train, steps=0))
    before = distill(target, tokenizer, "tiny", tmp_path / "none", tmp_path / "work", untrained, lambda _: None)
    after = distill(target, tokenizer, "tiny", tmp_path / "plain", tmp_path / "work", settings, lambda _: None)
    assert after.alpha[0] > before.alpha[0]
    draft = AutoModelForCausalLM.from_pretrained(tmp_path / "plain", dtype=torch.float32)
    assert draft.config.num_hidden_layers == 2
    assert AutoTokenizer.from_pretrained(tmp_path / "plain").get_vocab() == tokenizer.get_vocab()
    ids = torch.tensor([[5, 6, 7]])
    plain = target.generate(ids, max_new_tokens=12, do_sample=False)
    assisted = target.generate(ids, max_new_tokens=12, do_sample=False, assistant_model=draft)
    assert assisted.tolist() == plain.tolist()


def test_prompts_go_through_the_chat_template() -> None:
    tokenizer = tiny_tokenizer()
    assert tokenizer.decode(chat_ids(tokenizer, "hi")) == "<user>hi<end><bot>"


def test_a_target_that_caps_its_logits_is_refused() -> None:
    target = tiny_target()
    forward = target.forward

    def capped(*args: Any, **kwargs: Any) -> Any:
        output = forward(*args, **kwargs)
        output.logits = output.logits * 2
        return output

    target.forward = capped
    with pytest.raises(PairError, match="scales or caps"):
        check_target(target, "tiny")


def test_samples_are_kept_across_reruns(tmp_path: Path) -> None:
    target, tokenizer = tiny_target(), tiny_tokenizer()
    no_training = replace(SMALL, train=replace(SMALL.train, steps=0))
    distill(target, tokenizer, "tiny", tmp_path / "out", tmp_path / "work", no_training, lambda _: None)
    folder = tmp_path / "work" / "samples" / "train"
    times = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    distill(target, tokenizer, "tiny", tmp_path / "out", tmp_path / "work", no_training, lambda _: None)
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == times
    assert sum(len(s.ids) - s.prompt_length for s in load_all(folder)) >= SMALL.generate.tokens


def test_training_goes_on_from_a_head(tmp_path: Path) -> None:
    target, tokenizer = tiny_target(), tiny_tokenizer()
    first = distill(target, tokenizer, "tiny", tmp_path / "head", tmp_path / "work", SMALL, lambda _: None)
    unchanged = replace(SMALL, start=tmp_path / "head", train=replace(SMALL.train, steps=0))
    again = distill(target, tokenizer, "tiny", tmp_path / "same", tmp_path / "work2", unchanged, lambda _: None)
    assert again.alpha == pytest.approx(first.alpha, abs=0.02)  # through bfloat16 and back
    assert load_head(tmp_path / "same")[1].tolist() == load_head(tmp_path / "head")[1].tolist()


def test_taps_that_the_target_or_the_samples_lack_are_refused(tmp_path: Path) -> None:
    target, tokenizer = tiny_target(), tiny_tokenizer()
    no_training = replace(SMALL, train=replace(SMALL.train, steps=0))

    def make(taps: tuple[int, ...]) -> None:
        settings = replace(no_training, taps=taps)
        distill(target, tokenizer, "tiny", tmp_path / "out", tmp_path / "work", settings, lambda _: None)

    with pytest.raises(PairError, match="no state after layer 99"):
        make((1, 99))
    make((1,))
    assert load_head(tmp_path / "out")[0].config.taps == (1,)
    with pytest.raises(PairError, match="other taps"):
        make((1, 2))
