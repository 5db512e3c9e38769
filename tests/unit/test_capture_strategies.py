"""Each way in which transformers proposes: what is recorded of it, and what `check` finds there."""

import pytest
import torch
from transformers import GenerationMixin, T5Config, T5ForConditionalGeneration
from transformers.generation import candidate_generator

from tests.capture_pair import VOCAB, pair, prompt, tiny, word_tokenizer
from tests.capture_traces import MEMBERS, clauses, everything, notes, record

torch.set_num_threads(1)


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
    assert set(found) == ({"C1"} if doubled else set())
    if drafting:
        # The draft gives up one position more than it must, each round that is not accepted whole, and feeds it again.
        assert "gave up" in notes(tmp_path / "t.db")["C10"]


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
    assert clauses(tmp_path / "t.db") == {}


class Heads(candidate_generator.MTPCandidateGenerator):
    """Proposes as heads on the target do: with the target's outputs at hand, and so not before its first forward."""

    def __init__(self, heads):
        self.mtp_model = heads

    def get_candidates(self, input_ids, model_outputs, is_first_iteration, n_last_matches, **_):
        if is_first_iteration:
            return input_ids, None
        assert model_outputs.hidden_states
        logits = self.mtp_model(input_ids, use_cache=False).logits[:, -1:]
        return torch.cat([input_ids, logits.argmax(-1)], dim=1), logits


def test_heads_that_need_the_targets_outputs(tmp_path, monkeypatch):
    target, heads = pair()
    heads.to(torch.bfloat16)  # their logits are handed over in their own type
    arguments = {"max_new_tokens": 20, "do_sample": False, "prompt_lookup_num_tokens": 1, "eos_token_id": None}
    plain = target.generate(prompt(), max_new_tokens=20, do_sample=False, eos_token_id=None)
    monkeypatch.setattr(GenerationMixin, "_get_candidate_generator", lambda *_, **__: Heads(heads))
    (output,) = record(tmp_path / "t.db", target, (prompt(), arguments))
    assert output.tolist() == plain.tolist()
    ((_, _, rounds, _),) = everything(tmp_path / "t.db")
    first, *others = rounds
    assert (first.proposed, first.correction_kind, first.draft_calls) == (0, "target", 0)
    assert all((r.proposed, r.draft_calls, r.target_calls) == (1, 1, 1) for r in others)
    assert all(r.draft_kv_before is None and r.positions[0].draft_prob > 0 for r in others)
    assert clauses(tmp_path / "t.db") == {}
