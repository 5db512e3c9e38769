"""`specview record`, with tiny pairs saved as real model folders."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from specview.trace.reader import TraceReader
from specview.trace.writer import TraceWriter


def tokens(path: Path) -> list[int]:
    with TraceReader(path) as reader:
        (run,) = reader.runs()
        return [
            t.token
            for sequence in reader.sequences(run.id)
            for t in reader.tokens(sequence.id, sequence.prompt_tokens, reader.token_count(sequence.id))
        ]


def one_sentence(text: str) -> bool:
    return text.startswith("specview: ") and text.count("\n") == 1 and "Traceback" not in text


@pytest.mark.parametrize("sampling", [["--temperature", "0"], ["--temperature", "0.8", "--top-p", "0.9"]])
def test_a_recorded_run_holds_the_contract(specview, tiny_pair, tmp_path, sampling):
    out = tmp_path / "run.db"
    options = [*tiny_pair.options(), *sampling, "--prompt", "Why?", "--max-new-tokens", 40, "--seed", 1]
    result = specview("record", *options, "-o", out)
    assert result.code == 0
    assert result.out == f"{out}\n"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run.db"]
    checked = specview("check", out, "--json")
    assert checked.code == 0, checked.out
    with TraceReader(out) as reader:
        (run,) = reader.runs()
        assert run.status == "finished"
        assert run.info.chat is True
        assert run.baseline_tokens == 16
        assert [c.positions for c in reader.costs(run.id)] == [1, 2, 3, 5, 9, 13]


def test_a_greedy_run_that_leaves_plain_decoding_says_so_last(specview, tiny_pair, tmp_path, monkeypatch):
    options = ["record", *tiny_pair.options(), "--temperature", 0, "--prompt", "Why?", "--max-new-tokens", 24, "-o"]
    agreeing = specview(*options, tmp_path / "agreeing.db")
    assert "plain greedy decoding" not in agreeing.err
    measured = TraceWriter.set_baseline

    def rounded_otherwise(self, ms_per_token, count, ids, sequence=None):
        measured(self, ms_per_token, count, (*ids[:3], ids[3] ^ 1, *ids[4:]), sequence)

    monkeypatch.setattr(TraceWriter, "set_baseline", rounded_otherwise)
    parting = specview(*options, tmp_path / "parting.db")
    assert (parting.code, parting.out) == (0, f"{tmp_path / 'parting.db'}\n")
    last = parting.err.splitlines()[-1]
    assert last.startswith("specview: the run leaves plain greedy decoding at output token 4; top-2 margin there 0.")


def test_the_same_seed_gives_the_same_tokens_and_another_seed_others(specview, tiny_pair, tmp_path):
    outputs = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        out = tmp_path / f"{name}.db"
        options = [*tiny_pair.options(), "--raw", "--prompt", "Hello", "--max-new-tokens", 30, "--baseline-tokens", 0]
        assert specview("record", *options, "--seed", seed, "-o", out).code == 0
        outputs.append(tokens(out))
    assert outputs[0] == outputs[1]
    assert outputs[0] != outputs[2]


def test_the_baseline_leaves_the_output_as_it_is(specview, tiny_pair, tmp_path):
    outputs = []
    for count in (0, 8):
        out = tmp_path / f"{count}.db"
        options = [*tiny_pair.options(), "--prompt", "Hello", "--max-new-tokens", 20, "--seed", 3]
        assert specview("record", *options, "--baseline-tokens", count, "-o", out).code == 0
        outputs.append(tokens(out))
    assert outputs[0] == outputs[1]


BAD = {
    "no such model": (["--target", "{tmp}/nowhere"], "nowhere"),
    "different tokenizers": (["--draft", "{stranger}"], "different tokenizers"),
    "gamma": (["--gamma=-1"], "gamma must be between 0"),
    "temperature": (["--temperature=-0.1"], "temperature must be 0"),
    "temperature is no number": (["--temperature=nan"], "temperature must be 0"),
    "top-p": (["--top-p=0"], "top-p must be above 0"),
    "min-p": (["--min-p=1.5"], "min-p must be between 0 and 1"),
    "empty prompt": (["--prompt="], "prompt is empty"),
    "blank prompt": (["--prompt=  "], "prompt is empty"),
    "prompt too long": (["--prompt=" + "x" * 3000], "shorten it"),
    "prompt file": (["--prompt-file={tmp}/nothing.txt"], "does not exist"),
    "unknown option": (["--gama=3"], "No such option '--gama'; did you mean --gamma?"),
    "option cut short": (["--temp=3"], "No such option '--temp'; did you mean --temperature?"),
    "unknown device": (["--device=tpu"], "tpu"),
    "stop text": (["--stop="], "stop text must not be empty"),
    "layers of itself": (["--draft=self:0-99"], "99"),
    "bias of no token": (["--logit-bias=-1=5"], "an id from 0 on"),
    "bias beyond the vocabulary": (["--logit-bias=260=5"], "0 … 259"),
    "bias that is no number": (["--logit-bias=5=nan"], "a number or -inf"),
    "lookup length": (["--draft=prompt-lookup:0"], "between 1 and 10"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_gets_one_sentence_and_writes_nothing(specview, tiny_pair, tmp_path, case):
    words, complaint = BAD[case]
    words = [word.format(tmp=tmp_path, stranger=tiny_pair.stranger) for word in words]
    result = specview("record", *tiny_pair.options(), *words, "-o", tmp_path / "new" / "run.db")
    assert result.code == 2
    sentence = result.err.splitlines(keepends=True)[-1]  # progress lines may stand before it
    assert one_sentence(sentence)
    assert complaint in sentence
    assert result.out == ""
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


def test_an_existing_file_is_kept_unless_forced(specview, tiny_pair, tmp_path):
    out = tmp_path / "run.db"
    out.write_bytes(b"precious")
    options = [*tiny_pair.options(), "--prompt", "a", "--max-new-tokens", 4, "--baseline-tokens", 0, "-o", out]
    refused = specview("record", *options)
    assert refused.code == 2
    assert one_sentence(refused.err)
    assert "already exists" in refused.err
    assert out.read_bytes() == b"precious"
    assert specview("record", *options, "--force", "--draft", tmp_path / "nowhere").code == 2
    assert out.read_bytes() == b"precious"  # forced, but nothing came of it
    assert specview("record", *options, "--force").code == 0
    assert specview("record", *options, "--append").code == 0
    with TraceReader(out) as reader:
        assert [run.status for run in reader.runs()] == ["finished", "finished"]
    assert specview("check", out).code == 0


def test_only_the_embedded_draft_has_its_own_gamma(specview, tiny_pair, tmp_path):
    target = ["--target", tiny_pair.target, "--dtype", "float32", "--device", "cpu"]
    options = ["--prompt", "a", "--max-new-tokens", 4, "--baseline-tokens", 0, "-o", tmp_path / "run.db"]
    assert specview("record", *target, *options).code == 0
    with TraceReader(tmp_path / "run.db") as reader:
        (run,) = reader.runs()
    assert (run.info.proposer, run.info.gamma) == ("self", 4)


def test_live_without_a_terminal_says_where_the_trace_is(specview, tiny_pair, tmp_path):
    out = tmp_path / "run.db"
    words = ["--prompt", "a", "--max-new-tokens", 4, "--baseline-tokens", 0, "-o", out]
    result = specview("live", *tiny_pair.options(), *words)
    assert result.code == 0
    assert "num_rounds" in result.out
    assert result.err.endswith(f"specview: the trace is in {out}; see it again with `specview replay {out}`.\n")


def test_a_token_can_be_banned(specview, tiny_pair, tmp_path):
    out = tmp_path / "run.db"
    options = [*tiny_pair.options(), "--raw", "--prompt", "a", "--max-new-tokens", 30, "--baseline-tokens", 0]
    assert specview("record", *options, "-o", out).code == 0
    banned = tokens(out)[0]
    assert specview("record", *options, f"--logit-bias={banned}=-inf", "-o", out, "--force").code == 0
    assert banned not in tokens(out)


def test_of_several_ranks_one_records(specview, tiny_pair, tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    out = tmp_path / "run.db"
    options = [*tiny_pair.options(), "--prompt", "a", "--max-new-tokens", 4, "--baseline-tokens", 0, "-o", out]
    result = specview("record", *options)
    assert (result.code, result.out, result.err) == (0, "", "")
    assert not out.exists()
    monkeypatch.setenv("WORLD_SIZE", "2")
    refused = specview("record", *options, "--gamma", "auto")
    assert refused.code == 2
    assert "give --gamma a number" in refused.err


def test_many_prompts_become_sequences_in_order(specview, tiny_pair, tmp_path):
    prompts = tmp_path / "prompts.jsonl"
    lines = [
        {"prompt": "first", "id": "a"},
        {"messages": [{"role": "user", "content": "second"}]},
        {"prompt": "x" * 900},
    ]
    prompts.write_text("".join(json.dumps(line) + "\n" for line in lines))
    out = tmp_path / "run.db"
    options = [*tiny_pair.options(), "--prompt-file", prompts, "--max-new-tokens", 6, "-o", out]
    result = specview("record", *options)
    assert result.code == 1  # one prompt did not fit, and the run says so
    assert "shorten it" in result.err
    assert "Reading prompt 1 of 3 …\nReading prompt 2 of 3 …\n" in result.err
    with TraceReader(out) as reader:
        (run,) = reader.runs()
        found = reader.sequences(run.id)
        assert [(s.request_id, s.prompt) for s in found] == [("a", "first"), (None, "user: second")]
        assert {s.stop_reason for s in found} <= {"length", "eos"}
    assert specview("check", out).code == 0


def test_resume_goes_on_at_the_first_unfinished_prompt(specview, tiny_pair, tmp_path):
    out, prompts = tmp_path / "run.db", tmp_path / "prompts.jsonl"
    process = start_recording(tiny_pair, out, prompts)
    wait_for_rounds(out, process, 300)
    process.kill()
    process.communicate()
    with TraceReader(out) as reader:
        done = [s.index for s in reader.sequences(reader.runs()[0].id) if s.stop_reason]
        assert reader.runs()[0].status == "interrupted"
    assert done
    prompts.write_text('{"prompt": "go on and on"}\n' * (len(done) + 3))
    options = [*tiny_pair.options(), "--raw", "--prompt-file", prompts, "--baseline-tokens", 0, "-o", out]
    assert specview("record", *options, "--resume", "--max-new-tokens", 5).code == 0
    with TraceReader(out) as reader:
        _, second = reader.runs()
        assert [s.index for s in reader.sequences(second.id)] == [len(done), len(done) + 1, len(done) + 2]
    assert specview("check", out).code == 0
    assert specview("record", *options, "--resume").code == 2  # nothing is left to do, and it says so


def start_recording(pair, out: Path, prompts: Path) -> subprocess.Popen:
    prompts.write_text('{"prompt": "go on and on"}\n' * 5000)  # more than any machine decodes before the signal comes
    words = ["record", *pair.options(), "--raw", "--prompt-file", prompts, "--baseline-tokens", 0, "-o", out]
    command = [sys.executable, "-P", "-m", "specview", *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_rounds(out: Path, process: subprocess.Popen, count: int) -> None:
    while process.poll() is None:
        if out.exists():
            with sqlite3.connect(f"file:{out}?mode=ro", uri=True) as connection:
                (found,) = connection.execute("SELECT count(*) FROM rounds").fetchone()
            connection.close()
            if found >= count:
                return
        time.sleep(0.02)
    raise AssertionError(process.communicate()[1])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_run_between_two_rounds(tiny_pair, tmp_path, specview, number):
    out = tmp_path / "run.db"
    process = start_recording(tiny_pair, out, tmp_path / "prompts.jsonl")
    wait_for_rounds(out, process, 5)
    os.kill(process.pid, number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert f"`--resume -o {out}` goes on at the first unfinished prompt" in err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["prompts.jsonl", "run.db"]
    with TraceReader(out) as reader:
        (run,) = reader.runs()
        assert run.status == "interrupted"
        assert all(sequence.stop_reason for sequence in reader.sequences(run.id))
    assert specview("check", out).code == 0


def test_a_stranger_with_our_package_names_is_not_imported(tiny_pair, tmp_path):
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine" / "__init__.py").write_text("raise SystemExit('a stranger was imported')")
    words = [*tiny_pair.options(), "--prompt", "a", "--max-new-tokens", "2", "--baseline-tokens", "0", "-o", "run.db"]
    done = subprocess.run(
        [sys.executable, "-m", "specview", "record", *words], cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "run.db\n"), done.stderr


def test_a_prompt_that_cannot_be_run_is_named_once(specview, tiny_pair, tmp_path):
    out = tmp_path / "t.db"
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "\\ud800"}\n' * 2)
    single = specview("record", *tiny_pair.options(), "--prompt", "\udcff", "-o", out)
    several = specview("record", *tiny_pair.options(), "--prompt-file", file, "-o", out)
    assert (single.code, several.code) == (2, 2)
    assert single.err.count("specview: ") == single.err.count("not valid Unicode") == 1
    assert several.err.count("not valid Unicode") == 2
    assert several.err.endswith("specview: No prompt could be run, so nothing was recorded; mend them and try again.\n")
    assert not out.exists()
