"""A session: loading, encoding, running, and everything that is refused in one sentence."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.errors import EngineError, NumericalError, PairError, PromptError
from engine.round import Sampling
from engine.session import Session, load_session
from tests.unit.contract_rules import assert_contract
from tests.unit.engine_folders import EOS, byte_tokenizer, save_model
from tests.unit.engine_models import llama

PLAIN = Sampling(temperature=1.0)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    root = tmp_path_factory.mktemp("models")
    return {
        "target": save_model(root / "target", layers=3),
        "draft": save_model(root / "draft", layers=1, seed=1),
        "padded": save_model(root / "padded", layers=1, vocab=272, seed=2),
        "wide-target": save_model(root / "wide", layers=2, vocab=300, seed=3),
        "raw": save_model(root / "raw", tokenizer=byte_tokenizer(chat=False)),
        "swapped": save_model(root / "swapped", tokenizer=byte_tokenizer(swap=True)),
        "bare": save_model(root / "bare", tokenizer=None),
        "bare-small": save_model(root / "bare-small", vocab=64, tokenizer=None),
        "short": save_model(root / "short", layers=1, max_position_embeddings=24),
    }


def session(folders: dict[str, str], draft: str = "draft", target: str = "target", **options: Any) -> Session:
    settings = {"sampling": PLAIN, "max_new_tokens": 20, "device": "cpu", "dtype": "float32", **options}
    return load_session(folders.get(draft, draft), folders.get(target, target), **settings)


def decoded(run: Session, prompt: str = "hello hello") -> tuple[tuple[int, ...], list[Any]]:
    ids = run.encode(prompt, chat=False)
    run.prefill(0, prompt, ids)
    return ids, list(run.decode())


@pytest.mark.parametrize(
    "draft", ["draft", "padded", "prompt-lookup", "prompt-lookup:2", "self:0-1", "self:0,2", "bare"]
)
def test_every_kind_of_draft_runs(folders: dict[str, str], draft: str) -> None:
    run = session(folders, draft)
    ids, rounds = decoded(run)
    assert_contract(list(ids), rounds, greedy=False, drafts_with_cache=not draft.startswith("prompt"))
    committed = [token for r in rounds for token, _ in r.committed]
    assert run.stop_reason == ("eos" if committed[-1] == 256 else "length")
    assert len(committed) == 20 or committed[-1] == 256
    assert run.info.proposer == (draft.partition(":")[0] if draft not in folders else "draft-model")


def test_a_padded_target_takes_no_padding_from_its_draft(folders: dict[str, str]) -> None:
    _, rounds = decoded(session(folders, "draft", "wide-target", max_new_tokens=60))
    assert all(candidate < 257 for r in rounds for candidate in r.candidates)


def test_the_draft_being_the_target_shares_its_weights(folders: dict[str, str]) -> None:
    run = session(folders, "target")
    _, rounds = decoded(run)
    assert all(r.accepted == r.proposed for r in rounds)
    shared = {p.data_ptr() for p in run.pair.target.module.parameters()}
    assert {p.data_ptr() for p in run.pair.draft_model.module.parameters()} == shared


def test_the_facts_of_a_run(folders: dict[str, str]) -> None:
    run = session(folders, gamma=3, seed=7, stop=("x",))
    info = run.info
    assert (info.draft, info.target) == (folders["draft"], folders["target"])
    assert (info.gamma, info.seed, info.stop, info.vocab_size) == (3, 7, ("x",), 257)
    assert (info.target_dtype, info.draft_dtype, info.device) == ("float32", "float32", "cpu")
    assert info.sampling == PLAIN
    assert {"torch", "transformers"} <= set(info.versions)
    assert info.chat is None
    run.encode("hi")
    assert run.info.chat is True
    assert run.info == replace(info, chat=True)


def test_prompts(folders: dict[str, str]) -> None:
    run = session(folders)
    text = "".join(e.data.decode() for e in (run.vocab([i])[0] for i in run.encode("hi")))
    assert text == "[user]hi[bot]"
    messages = [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}]
    text = "".join(run.vocab([i])[0].data.decode() for i in run.encode(messages))
    assert text == "[system]S[user]U[bot]"
    assert len(run.encode("hi", chat=False)) == 2
    assert len(session(folders, "raw", "raw").encode("hi")) == 2


@pytest.mark.parametrize("prompt", ["", []])
def test_an_empty_prompt(folders: dict[str, str], prompt: Any) -> None:
    with pytest.raises(PromptError, match="empty"):
        session(folders).encode(prompt)


@pytest.mark.parametrize(
    ("prompt", "chat", "why"),
    [
        ("x" * 300, False, "holds 256"),
        ("\ud800", False, "Unicode"),
        ("\ud800", True, "Unicode"),
        ([{"content": "x"}], None, "role and a content"),
    ],
)
def test_prompts_that_cannot_be_used(folders: dict[str, str], prompt: Any, chat: bool | None, why: str) -> None:
    with pytest.raises(PromptError, match=why):
        session(folders).encode(prompt, chat=chat)


def test_a_prompt_that_only_the_draft_cannot_hold(folders: dict[str, str]) -> None:
    run = session(folders, "short")
    assert run.encode("x" * 24, chat=False)
    with pytest.raises(PromptError, match="short holds 24"):
        run.encode("x" * 25, chat=False)


def test_a_draft_with_a_short_context_stops_drafting(folders: dict[str, str]) -> None:
    ids, rounds = decoded(session(folders, "short", max_new_tokens=40), "x" * 10)
    assert_contract(list(ids), rounds, greedy=False)
    assert rounds[-1].proposed == 0
    assert rounds[-1].draft_stop == "context"


def test_chat_without_a_template(folders: dict[str, str]) -> None:
    with pytest.raises(PromptError, match="no chat template"):
        session(folders, "raw", "raw").encode("hi", chat=True)


REFUSED = [
    ("nowhere/at/all", "target", "no folder nowhere/at/all"),
    ("./missing", "target", r"no folder \./missing"),
    ("missing.gguf", "target", "no file missing.gguf"),
    ("draft", "bare", "has no tokenizer"),
    ("swapped", "target", "different tokenizers"),
    ("bare-small", "target", "64 ids and the target"),
    ("self:9", "target", "layers 0 to 2"),
    ("prompt-lookup:0", "target", "between 1 and 10"),
]


@pytest.mark.parametrize(("draft", "target", "why"), REFUSED)
def test_pairs_that_cannot_work(folders: dict[str, str], draft: str, target: str, why: str) -> None:
    with pytest.raises(PairError, match=why) as caught:
        session(folders, draft, target)
    assert "\n" not in str(caught.value)


def test_folders_that_hold_no_model(tmp_path: Path, folders: dict[str, str]) -> None:
    with pytest.raises(PairError, match=r"no config\.json"):
        session(folders, "draft", str(tmp_path))
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(PairError) as caught:
        session(folders, "draft", str(tmp_path))
    assert "\n" not in str(caught.value)
    (tmp_path / "config.json").write_text('{"model_type": "bert", "hidden_size": 8}')
    with pytest.raises(PairError):
        session(folders, "draft", str(tmp_path))


def test_damaged_weights(tmp_path: Path, folders: dict[str, str]) -> None:
    damaged = save_model(tmp_path / "damaged")
    (tmp_path / "damaged" / "model.safetensors").write_bytes(b"\x00" * 100)
    with pytest.raises(EngineError) as caught:
        session(folders, "draft", damaged)
    assert "damaged" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_baseline_and_costs_leave_the_run_as_it_was(folders: dict[str, str]) -> None:
    plain, measured = session(folders), session(folders)
    ids, rounds = decoded(plain)
    baseline = measured.baseline(ids, 6)
    costs = measured.costs(ids)
    assert len(baseline.ids) == 6
    assert baseline.ms_per_token > 0
    assert [c.positions for c in costs] == [1, 2, 3, 5, 9, 13]
    assert all(c.target_ns > 0 and c.draft_ns > 0 and c.context == len(ids) - 1 for c in costs)
    sequence = measured.prefill(0, "hello hello", ids)
    assert sequence.target_prefill_calls == 1
    again = list(measured.decode())
    assert [r.committed for r in again] == [r.committed for r in rounds]
    assert [r.positions for r in again] == [r.positions for r in rounds]


def test_a_greedy_baseline_is_the_greedy_output(folders: dict[str, str]) -> None:
    run = session(folders, sampling=Sampling(temperature=0.0))
    ids, rounds = decoded(run)
    assert run.baseline(ids, 12).ids == tuple(token for r in rounds for token, _ in r.committed)[:12]


def test_many_prompts_in_one_session_do_not_touch_each_other(folders: dict[str, str]) -> None:
    run = session(folders, sampling=Sampling(temperature=0.0))
    alone = [decoded(session(folders, sampling=Sampling(temperature=0.0)), text)[1] for text in ("abc", "xyzzy")]
    together = [decoded(run, text)[1] for text in ("abc", "xyzzy")]
    for one, other in zip(alone, together, strict=True):
        assert [r.committed for r in one] == [r.committed for r in other]


def test_a_resumed_run_draws_what_it_would_have_drawn(folders: dict[str, str]) -> None:
    whole, resumed = session(folders), session(folders)
    ids = whole.encode("abc", chat=False)
    runs = []
    for run, indices in ((whole, (0, 1, 2)), (resumed, (2,))):
        for index in indices:
            run.prefill(index, "abc", ids)
            runs.append([r.committed for r in run.decode()])
    assert runs[3] == runs[2]
    assert runs[0] != runs[1] != runs[2]


def test_end_of_text_from_the_tokenizer_where_the_config_names_none(folders: dict[str, str]) -> None:
    run = session(folders)
    assert run.pair.eos == frozenset({256})
    entry = run.vocab([256])[0]
    assert (entry.data, entry.special) == (EOS.encode(), True)


def test_stop_strings_cut_text_and_ids_together(folders: dict[str, str]) -> None:
    greedy = Sampling(temperature=0.0)
    _, rounds = decoded(session(folders, sampling=greedy))
    tokens = [token for r in rounds for token, _ in r.committed]
    run = session(folders, sampling=greedy)
    text = b"".join(run.vocab([token])[0].data for token in tokens).decode("latin-1")
    ascii_at = next(i for i in range(4, 18) if text[i].isascii())
    stop = text[ascii_at]
    run = session(folders, sampling=greedy, stop=(stop,))
    _, cut = decoded(run)
    shorter = [token for r in cut for token, _ in r.committed]
    assert shorter == tokens[: len(shorter)]
    assert run.vocab(shorter[-1:])[0].data.decode() == stop
    assert run.stop_reason == "stop"


def test_an_auto_gamma_starts_from_the_measured_costs(folders: dict[str, str]) -> None:
    run = session(folders, "target", gamma=2, gamma_schedule="auto", max_new_tokens=60)
    ids = run.encode("hi", chat=False)
    run.costs(ids)
    run.prefill(0, "hi", ids)
    rounds = list(run.decode())
    assert_contract(list(ids), rounds, greedy=False)
    assert run.info.gamma_schedule == "auto"
    assert rounds[0].gamma == 2


@pytest.mark.parametrize("options", [{"device_map": "auto"}, {"draft_device": "cpu"}, {"draft_min_prob": 0.5}])
def test_other_ways_to_load(folders: dict[str, str], options: dict[str, Any]) -> None:
    ids, rounds = decoded(session(folders, **options))
    assert_contract(list(ids), rounds, greedy=False)


def test_loading_says_what_it_does(folders: dict[str, str]) -> None:
    said: list[str] = []
    session(folders, progress=lambda sentence, _share: said.append(sentence))
    assert any("target" in sentence for sentence in said)
    assert any("draft" in sentence for sentence in said)


def test_loading_prints_nothing(folders: dict[str, str], capfd: pytest.CaptureFixture[str]) -> None:
    decoded(session(folders))
    assert capfd.readouterr() == ("", "")


def test_weights_that_are_no_numbers_end_the_run_and_not_the_loading(tmp_path: Path, folders: dict[str, str]) -> None:
    module = llama(1, 257)
    with torch.no_grad():
        module.model.layers[0].mlp.down_proj.weight.fill_(float("nan"))
    module.save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(NumericalError, match="The target's logits at position 1"):
        decoded(session({**folders, "broken": str(tmp_path)}, "draft", "broken"))


def test_half_precision_runs(folders: dict[str, str]) -> None:
    run = session(folders, dtype="bfloat16")
    ids, rounds = decoded(run)
    assert run.info.target_dtype == "bfloat16"
    assert_contract(list(ids), rounds, greedy=False)
