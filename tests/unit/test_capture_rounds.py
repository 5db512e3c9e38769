"""What capture records, against what the models themselves say."""

import math

import pytest
import torch
from transformers import T5Config, T5ForConditionalGeneration
from transformers.generation import candidate_generator

import specview
from specview.contract import check
from specview.trace.reader import TraceReader
from tests.capture_pair import EOS, VOCAB, pair, prompt, tiny, word_tokenizer

torch.set_num_threads(1)

MEMBERS = {"max_new_tokens": 40, "do_sample": True, "top_k": 0}


def record(path, model, *calls, **options):
    """Run the calls under capture; returns the outputs."""
    outputs = []
    with specview.capture(path, **options):
        for seed, (ids, arguments) in enumerate(calls):
            torch.manual_seed(seed)
            outputs.append(model.generate(ids, **arguments))
    return outputs


def everything(path):
    """[(run, sequence, rounds, tokens)] of a trace."""
    with TraceReader(path) as reader:
        return [
            (run, s, reader.rounds(s.id, 0, reader.round_count(s.id)), reader.tokens(s.id, 0, reader.token_count(s.id)))
            for run in reader.runs()
            for s in reader.sequences(run.id)
        ]


def clauses(path):
    """{clause: violations} of all runs, those of no violation left out."""
    with TraceReader(path) as reader:
        return {c.id: c.violations for report in check(reader) for c in report.clauses if c.broken}


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


@pytest.mark.parametrize(
    "arguments",
    [
        {"do_sample": True, "top_k": 0},
        {"do_sample": True, "temperature": 0.6, "top_p": 0.9},
        {"do_sample": False},
        {"do_sample": True, "prompt_lookup_num_tokens": 3},
        {"do_sample": False, "prompt_lookup_num_tokens": 3},
        {"do_sample": True, "assistant_early_exit": 1},
        {"do_sample": False, "assistant_early_exit": 1},
    ],
    ids=str,
)
def test_only_what_transformers_really_does_differently_breaks_the_contract(tmp_path, arguments):
    target, draft = pair()
    drafting = not any(key in arguments for key in ("prompt_lookup_num_tokens", "assistant_early_exit"))
    more = {"assistant_model": draft} if drafting else {}
    calls = [(prompt(seed=seed), {"max_new_tokens": 30, **arguments, **more}) for seed in range(3)]
    record(tmp_path / "t.db", target, *calls)
    found = clauses(tmp_path / "t.db")
    doubled = "temperature" in arguments and drafting
    assert set(found) - {"C10"} == ({"C1"} if doubled else set())
    # The draft gives up one position more than it must, each round that is not accepted whole.
    for violation in found.get("C10", ()):
        recorded, wanted = int(violation.recorded.split()[1]), int(violation.expected.split(":")[0])
        assert recorded == wanted - 1


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


@pytest.mark.parametrize("sample", [False, True])
def test_a_length_limit_inside_the_matches_of_prompt_lookup(tmp_path, sample):
    target = tiny(1)
    target.lm_head = torch.nn.Linear(32, VOCAB)  # it says 20, whatever it reads
    with torch.no_grad():
        target.lm_head.weight.zero_()
        target.lm_head.bias.fill_(0.0)[20] = 9.0
    ids = torch.tensor([[20] * 8])
    record(
        tmp_path / "t.db",
        target,
        (
            ids,
            {"max_new_tokens": 3, "do_sample": sample, "top_k": 1 if sample else None, "prompt_lookup_num_tokens": 6},
        ),
    )
    ((_, sequence, rounds, _),) = everything(tmp_path / "t.db")
    (only,) = rounds
    assert sequence.stop_reason == "length"
    assert only.cut == "length"
    assert len(only.committed) == 3
    assert only.proposed == 6
    fates = [p.fate for p in only.positions[:6]]
    if sample:
        # sampled prompt lookup never says how many more had matched
        assert (only.accepted, only.judged) == (3, None)
        assert fates == ["accepted"] * 3 + [None] * 3
    else:
        assert (only.accepted, only.judged) == (6, 6)
        assert fates == ["accepted"] * 3 + ["cut"] * 3
    assert clauses(tmp_path / "t.db") == {}


def test_prompt_lookup_proposes_with_certainty(tmp_path):
    target, _ = pair()
    ids = torch.tensor([[20, 21, 22, 23, 20, 21, 22, 23, 20, 21]])
    record(tmp_path / "t.db", target, (ids, {**MEMBERS, "prompt_lookup_num_tokens": 3}))
    ((run, _, rounds, _),) = everything(tmp_path / "t.db")
    assert (run.info.proposer, run.info.draft, run.info.gamma) == ("prompt-lookup", "prompt-lookup", 3)
    drafted = [r for r in rounds if r.proposed]
    assert drafted
    for r in drafted:
        for p in r.positions[: r.proposed]:
            assert (p.draft_prob, p.draft_entropy, p.draft_deviation) == (1.0, 0.0, None)
            assert p.overlap == p.target_prob
        if r.correction_kind == "correction":
            rejected = r.positions[r.accepted].target_prob
            assert r.residual_mass == pytest.approx(1 - rejected, abs=1e-5)
            assert r.correction_prob == pytest.approx(r.correction_target_prob / (1 - rejected), rel=1e-3)
    nothing = [r for r in rounds if not r.proposed]
    assert all((r.draft_stop, r.correction_kind) == ("nothing found", "target") for r in nothing)
    assert rounds[0].draft_kv_before is None


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


def translated(folder, **arguments):
    """(target, draft, arguments) of universal assisted decoding: the draft's vocabulary is the target's and 7 more."""
    target, draft = tiny(1), tiny(1, vocab=VOCAB + 7)
    tokenizers = {
        "tokenizer": word_tokenizer(folder / "a"),
        "assistant_tokenizer": word_tokenizer(folder / "b", vocab=VOCAB + 7),
    }
    return target, draft, {"assistant_model": draft, "max_new_tokens": 40, "top_k": 0, **tokenizers, **arguments}


@pytest.mark.parametrize("sample", [False, True])
def test_drafts_in_another_vocabulary(tmp_path, sample):
    """Greedy, the candidates are text encoded anew, without a q; sampled, q is translated."""
    target, _, arguments = translated(tmp_path, do_sample=sample)
    vocab = arguments["assistant_tokenizer"].get_vocab()
    arguments["assistant_tokenizer"].get_vocab = lambda: dict(sorted(vocab.items(), key=lambda pair: pair[1]))
    (output,) = record(tmp_path / "t.db", target, (prompt(), arguments))
    ((run, sequence, rounds, tokens),) = everything(tmp_path / "t.db")
    assert [t.token for t in tokens] == output[0].tolist()
    assert run.info.proposer == "draft-model"
    assert sequence.prompt == arguments["tokenizer"].decode(prompt()[0].tolist())
    candidates = [p for r in rounds for p in r.positions[: r.proposed]]
    assert candidates
    assert all((p.draft_prob is not None) == sample and p.target_prob is not None for p in candidates)
    assert all(p.draft_deviation is None for p in candidates)
    assert all(r.gamma is None and r.draft_kv_after is None for r in rounds)
    assert clauses(tmp_path / "t.db") == {}


def test_check_finds_a_q_that_the_candidates_were_not_drawn_from(tmp_path):
    """transformers 5.24 lays the translated logits out by ascending id, but drew by the order of the vocabulary's
    dict: unless that happens to be the same, tokens get the q of other tokens, and acceptance betrays it (C12)."""
    target, _, arguments = translated(tmp_path, do_sample=True, eos_token_id=None)
    vocab = arguments["assistant_tokenizer"].get_vocab()
    arguments["assistant_tokenizer"].get_vocab = lambda: dict(sorted(vocab.items(), key=lambda pair: -pair[1]))
    record(tmp_path / "t.db", target, *[(prompt(seed=seed), arguments) for seed in range(4)])
    judged = [
        p for _, _, rounds, _ in everything(tmp_path / "t.db") for r in rounds for p in r.positions
        if p.fate in ("accepted", "rejected", "cut")
    ]  # fmt: skip
    unlikely = sum(p.draft_prob < 1e-3 for p in judged)
    # Of draws from q, those of a probability below 0.001 are fewer than 104 tokens × 0.001: one in ten.
    mixed_up = unlikely > 0.3 * len(judged)
    assert len(judged) > 60
    assert ("C12" in clauses(tmp_path / "t.db")) == mixed_up


def test_the_ensemble_is_named_in_the_trace(tmp_path):
    target, draft = pair(noise=1.0)
    record(
        tmp_path / "t.db", target, (prompt(), {**MEMBERS, "assistant_model": draft, "assistant_ensemble_weight": 0.5})
    )
    ((run, _, _, _),) = everything(tmp_path / "t.db")
    assert "assistant_ensemble_weight=0.5" in run.message


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


def test_check_finds_the_prompt_that_is_fed_twice_to_a_given_cache(tmp_path):
    """transformers 5.24 feeds the whole prompt again to a cache that holds it: C9, and another output."""
    target, draft = pair()
    greedy = {"do_sample": False, "eos_token_id": None}
    first = target.generate(prompt(), max_new_tokens=4, return_dict_in_generate=True, **greedy)
    held = first.cache.get_seq_length()
    assert held == first.sequences.shape[1] - 1
    arguments = {**greedy, "max_new_tokens": 8, "cache": first.cache, "assistant_model": draft}
    record(tmp_path / "t.db", target, (first.sequences, arguments))
    assert "crop" not in vars(first.cache)
    ((_, _, rounds, _),) = everything(tmp_path / "t.db")
    assert rounds[0].target_kv_before == held
    fed_twice = rounds[0].target_kv_written - (rounds[0].proposed + 1)
    assert fed_twice in (0, held)
    found = clauses(tmp_path / "t.db").get("C9", [])
    assert bool(found) == bool(fed_twice)


def test_every_candidate_generator_is_either_known_or_left_alone():
    """A new kind of proposer in transformers must be looked at before its cache lengths are recorded."""
    kinds = {
        name for name, kind in vars(candidate_generator).items()
        if isinstance(kind, type) and issubclass(kind, candidate_generator.CandidateGenerator)
    }  # fmt: skip
    assert kinds == {
        "CandidateGenerator",
        "AssistedCandidateGenerator",
        "AssistedCandidateGeneratorDifferentTokenizers",
        "UniversalSpeculativeDecodingGenerator",
        "PromptLookupCandidateGenerator",
        "EarlyExitCandidateGenerator",
        "SinglePositionMultiTokenCandidateGenerator",
        "MTPCandidateGenerator",
        "DFlashTokenCandidateGenerator",
    }


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


def test_an_encoder_decoder_pair(tmp_path):
    def t5(seed, layers):
        torch.manual_seed(seed)
        config = T5Config(
            vocab_size=VOCAB, d_model=32, d_kv=8, d_ff=64, num_layers=layers, num_heads=4, decoder_start_token_id=0,
            eos_token_id=1, pad_token_id=0,
        )  # fmt: skip
        return T5ForConditionalGeneration(config).eval()

    target, draft = t5(0, 2), t5(1, 1)
    arguments = {"max_new_tokens": 12, "assistant_model": draft, "do_sample": True, "top_k": 0}
    torch.manual_seed(0)
    plain = target.generate(prompt(), **arguments)
    with torch.inference_mode():
        (captured,) = record(tmp_path / "t.db", target, (prompt(), arguments))
    assert captured.tolist() == plain.tolist()
    ((_, sequence, rounds, _),) = everything(tmp_path / "t.db")
    assert sequence.prompt_tokens == 1  # the decoder's
    assert all(r.target_kv_after == r.committed_after - 1 for r in rounds)
    assert set(clauses(tmp_path / "t.db")) <= {"C10"}
