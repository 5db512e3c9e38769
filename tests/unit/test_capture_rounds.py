"""What capture records, against what the models themselves say."""

import math

import pytest
import torch

from specview.trace.reader import TraceReader
from tests.capture_pair import EOS, VOCAB, pair, prompt, word_tokenizer
from tests.capture_traces import MEMBERS, clauses, everything, record

torch.set_num_threads(1)


@torch.inference_mode()
def plain_logits(model, ids):
    """(len, V) float64 logits of a plain forward without a cache."""
    return model(torch.tensor([ids])).logits[0].double()


def test_each_probability_is_the_models_own(tmp_path):
    target, draft = pair()
    record(tmp_path / "t.db", target, (prompt(), {**MEMBERS, "assistant_model": draft}))
    ((run, _, rounds, tokens),) = everything(tmp_path / "t.db")
    ids = [t.token for t in tokens]
    assert run.info.source == "transformers"
    assert run.info.vocab_size == VOCAB
    assert len(rounds) > 3
    seen = set()
    for r in rounds:
        path = ids[: r.committed_before] + list(r.candidates)
        p = plain_logits(target, path)[r.committed_before - 1 :].softmax(-1)
        q = plain_logits(draft, path)[r.committed_before - 1 :].softmax(-1)
        assert len(r.positions) == r.proposed + 1 == p.shape[0]
        for i, position in enumerate(r.positions):
            assert position.target_entropy == pytest.approx(float(torch.special.entr(p[i]).sum()), abs=1e-4)
            best = sorted(range(VOCAB), key=lambda x, row=p[i]: -float(row[x]))[:5]
            assert [t for t, _ in position.target_top] == best
            assert position.target_deviation == 0
            if i == r.proposed:
                assert position.candidate is None
                continue
            y = path[r.committed_before + i]
            assert position.target_prob == pytest.approx(float(p[i, y]), abs=1e-5)
            assert position.draft_prob == pytest.approx(float(q[i, y]), abs=1e-5)
            assert position.overlap == pytest.approx(float(torch.minimum(p[i], q[i]).sum()), abs=1e-5)
            assert position.draft_entropy == pytest.approx(float(torch.special.entr(q[i]).sum()), abs=1e-4)
            assert position.rank == 1 + int((p[i] > p[i, y]).sum())
            assert position.draft_deviation == pytest.approx(0, abs=1e-6)
            assert position.u is None
            seen.add(position.fate)
        if r.correction_kind == "correction":
            residual = (p[r.accepted] - q[r.accepted]).clamp(min=0)
            assert r.residual_mass == pytest.approx(float(residual.sum()), abs=1e-5)
            assert r.correction_prob == pytest.approx(float(residual[r.correction_token] / residual.sum()), abs=1e-4)
        elif r.correction_kind == "bonus":
            assert r.correction_prob == pytest.approx(float(p[-1, r.correction_token]), abs=1e-5)
    assert {"accepted", "rejected", "discarded"} <= seen


def test_the_output_is_the_concatenation_of_what_the_rounds_committed(tmp_path):
    target, draft = pair()
    (output,) = record(tmp_path / "t.db", target, (prompt(), {**MEMBERS, "assistant_model": draft}))
    ((_, sequence, rounds, tokens),) = everything(tmp_path / "t.db")
    assert [t.token for t in tokens] == output[0].tolist()
    assert sequence.prompt_tokens == 9
    assert [token for r in rounds for token, _ in r.committed] == output[0, 9:].tolist()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_temperature_is_applied_twice_to_the_draft_and_check_says_so(tmp_path, dtype):
    target, draft = (model.to(dtype) for model in pair())
    record(tmp_path / "t.db", target, (prompt(), {**MEMBERS, "temperature": 0.5, "assistant_model": draft}))
    ((run, _, rounds, tokens),) = everything(tmp_path / "t.db")
    assert "applied twice to the draft" in run.message
    ids = [t.token for t in tokens]
    off = []
    for r in rounds:
        path = ids[: r.committed_before] + list(r.candidates)
        logits = plain_logits(draft, path)[r.committed_before - 1 :]
        for i, position in enumerate(r.positions[: r.proposed]):
            twice, once = (logits[i] / 0.25).softmax(-1), (logits[i] / 0.5).softmax(-1)
            tolerance = 1e-5 if dtype == torch.float32 else 0.1  # a plain forward rounds otherwise in bfloat16
            assert position.draft_prob == pytest.approx(float(twice[position.candidate]), abs=tolerance)
            assert position.draft_deviation == pytest.approx(float((twice - once).abs().max()), abs=tolerance)
            off.append(position.draft_deviation)
        assert all(p.target_deviation < 1e-6 for p in r.positions)
    found = clauses(tmp_path / "t.db")["C1"]
    assert len(found) == sum(x > 1e-3 for x in off) > 0
    assert all("draft distribution" in v.recorded and "under the settings asked for" in v.recorded for v in found)


@pytest.mark.parametrize("top_k", [0, 20])
def test_top_p_is_applied_twice_to_the_draft_and_once_to_the_target(tmp_path, top_k):
    target, draft = pair()
    record(tmp_path / "t.db", target, (prompt(), {**MEMBERS, "top_k": top_k, "top_p": 0.7, "assistant_model": draft}))
    ((run, _, rounds, _),) = everything(tmp_path / "t.db")
    assert max(p.draft_deviation for r in rounds for p in r.positions[: r.proposed]) > 0.05
    assert max(p.target_deviation for r in rounds for p in r.positions) < 1e-5
    assert "applied twice to the draft" in run.message
    assert "C1" in clauses(tmp_path / "t.db")


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": 1.0},
        {"top_k": 12},
        {"min_p": 0.05, "top_k": 12},
        {"do_sample": False},
        {"do_sample": False, "repetition_penalty": 1.3},
        {"typical_p": 0.999999},
    ],
    ids=str,
)
def test_settings_that_survive_being_applied_twice_are_no_finding(tmp_path, settings):
    target, draft = pair()
    record(tmp_path / "t.db", target, (prompt(), {**MEMBERS, **settings, "assistant_model": draft}))
    ((run, _, rounds, _),) = everything(tmp_path / "t.db")
    assert max(p.draft_deviation for r in rounds for p in r.positions[: r.proposed]) < 1e-5
    assert max(p.target_deviation for r in rounds for p in r.positions) < 1e-5
    assert "applied twice" not in run.message
    assert "C1" not in clauses(tmp_path / "t.db")


def test_cache_lengths_are_read_from_the_caches(tmp_path):
    target, draft = pair()
    record(tmp_path / "t.db", target, (prompt(), {**MEMBERS, "assistant_model": draft}))
    ((_, sequence, rounds, _),) = everything(tmp_path / "t.db")
    assert sequence.target_prefill_calls == 0
    assert rounds[0].target_kv_before == rounds[0].draft_kv_before == 0
    for before, r in zip([None, *rounds], rounds, strict=False):
        assert r.target_kv_before + r.target_kv_written == r.committed_before + r.proposed
        assert r.target_kv_after == r.committed_after - 1
        assert r.draft_kv_before + r.draft_kv_written == r.committed_before + r.proposed - 1
        assert r.target_calls == 1
        assert r.draft_calls == r.proposed
        if before is not None:
            assert r.target_kv_before == before.target_kv_after
            assert r.draft_kv_before == before.draft_kv_after
    assert rounds[-1].draft_kv_after is None  # nobody rolls it back any more


def test_clocks_add_up(tmp_path):
    target, draft = pair()
    record(tmp_path / "t.db", target, (prompt(), {**MEMBERS, "assistant_model": draft}))
    ((_, _, rounds, _),) = everything(tmp_path / "t.db")
    for r in rounds:
        t = r.times
        phases = (t.propose_ns, t.score_ns, t.accept_ns, t.rollback_ns, t.record_ns)
        assert all(phase > 0 for phase in phases)
        assert t.round_ns >= sum(phases)
    starts = [r.times.start_ns for r in rounds]
    assert starts == sorted(starts)


def eos_inside(target, draft, arguments):
    """A target whose third output token of a greedy run is called end of text."""
    plain = target.generate(prompt(), max_new_tokens=12, do_sample=False)[0, 9:].tolist()
    return next(t for i, t in enumerate(plain) if i >= 2 and t not in plain[:i])


def test_matches_before_and_after_end_of_text(tmp_path):
    target, _ = pair()
    eos = eos_inside(target, target, {})
    target.generation_config.num_assistant_tokens = 8
    target.generation_config.num_assistant_tokens_schedule = "constant"
    target.generation_config.assistant_confidence_threshold = 0.0
    # The draft is the target, but knows nothing of the end: it drafts on behind it, and all of that matches.
    twin = pair()[0]
    for name in ("num_assistant_tokens", "num_assistant_tokens_schedule", "assistant_confidence_threshold"):
        setattr(twin.generation_config, name, getattr(target.generation_config, name))
    record(
        tmp_path / "t.db",
        target,
        (prompt(), {"max_new_tokens": 20, "do_sample": False, "eos_token_id": eos, "assistant_model": twin}),
    )
    ((_, sequence, rounds, _),) = everything(tmp_path / "t.db")
    last = rounds[-1]
    assert sequence.stop_reason == "eos"
    assert last.committed[-1] == (eos, "accepted")
    assert last.cut == "eos"
    assert last.draft_stop == "end of text"
    assert last.accepted == last.proposed == len(last.committed)
    assert last.correction_token is None
    assert last.target_kv_after == last.committed_after - 1
    assert "C8" not in clauses(tmp_path / "t.db")


def test_acceptance_follows_the_overlap(tmp_path):
    target, draft = pair()
    calls = [(prompt(seed=s), {**MEMBERS, "assistant_model": draft, "eos_token_id": None}) for s in range(12)]
    record(tmp_path / "t.db", target, *calls)
    judged = [
        p for _, _, rounds, _ in everything(tmp_path / "t.db") for r in rounds for p in r.positions if p.fate in
        ("accepted", "rejected", "cut")
    ]  # fmt: skip
    expected = sum(p.overlap for p in judged)
    spread = math.sqrt(sum(p.overlap * (1 - p.overlap) for p in judged))
    assert len(judged) > 200
    assert abs(sum(p.fate != "rejected" for p in judged) - expected) < 5 * spread


def test_calls_of_one_configuration_share_a_run_and_others_get_their_own(tmp_path):
    target, draft = pair()
    hot, cold = ({**MEMBERS, "temperature": t, "assistant_model": draft} for t in (1.0, 0.5))
    record(tmp_path / "t.db", target, (prompt(), hot), (prompt(seed=6), cold), (prompt(seed=7), hot))
    found = everything(tmp_path / "t.db")
    assert [(run.id, s.index) for run, s, _, _ in found] == [(1, 0), (1, 1), (2, 0)]
    assert [run.info.sampling.temperature for run, *_ in found] == [1.0, 1.0, 0.5]
    assert {run.status for run, *_ in found} == {"finished"}


def test_text_comes_from_the_tokenizer_that_is_at_hand(tmp_path):
    target, draft = pair()
    tokenizer = word_tokenizer(tmp_path / "model")
    call = (prompt(), {**MEMBERS, "assistant_model": draft})
    record(tmp_path / "given.db", target, call, tokenizer=tokenizer)
    target.name_or_path = str(tmp_path / "model")
    record(tmp_path / "found.db", target, call)
    target.name_or_path = "nobody/has-this-model"
    record(tmp_path / "none.db", target, call)
    for name in ("given", "found"):
        ((run, sequence, rounds, _),) = everything(tmp_path / f"{name}.db")
        token = rounds[0].committed[0][0]
        with TraceReader(tmp_path / f"{name}.db") as reader:
            assert reader.vocab(run.id, [token])[token].data == f"w{token}".encode()
        assert sequence.prompt.split()[0].startswith("w")
    ((run, sequence, _, _),) = everything(tmp_path / "none.db")
    assert sequence.prompt is None
    assert "No tokenizer was found locally for nobody/has-this-model" in run.message


def test_a_processor_of_the_users_own_is_called_no_oftener_than_without_capture(tmp_path):
    target, draft = pair()
    calls = []

    class Bias(torch.nn.Module):
        def forward(self, input_ids, scores):
            calls.append(1)
            return scores + 0.1 * torch.arange(VOCAB)

    call = (prompt(), {**MEMBERS, "assistant_model": draft, "logits_processor": [Bias()]})
    torch.manual_seed(0)
    plain = target.generate(call[0], **call[1])
    without = len(calls)
    (output,) = record(tmp_path / "t.db", target, call)
    assert output.tolist() == plain.tolist()
    assert len(calls) == 2 * without
    ((run, _, rounds, _),) = everything(tmp_path / "t.db")
    assert all(p.target_deviation is None and p.draft_deviation is None for r in rounds for p in r.positions)
    assert "Bias" in run.message


def test_end_of_text_as_the_correction_is_no_cut(tmp_path):
    target, draft = pair()
    found = []
    for seed in range(40):
        record(tmp_path / f"{seed}.db", target, (prompt(seed=seed), {**MEMBERS, "assistant_model": draft}))
        ((_, sequence, rounds, _),) = everything(tmp_path / f"{seed}.db")
        last = rounds[-1]
        if sequence.stop_reason == "eos" and last.committed[-1][1] != "accepted":
            assert last.cut is None
            assert last.correction_token == EOS
            found.append(last.correction_kind)
        if found:
            break
    assert found
