"""Real servers, in processes of their own: however they end, what they recorded can be read, and is right."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from specview.contract import check
from specview.trace.reader import TraceReader

LOOKUP = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3, "prompt_lookup_min": 1}
START_SECONDS = 400
STOP_SECONDS = 120


class Server:
    """`vllm serve` of the target, drafting with n-grams."""

    def __init__(self, target: Path, trace: Path, *options: str) -> None:
        self.target = str(target)
        self.log = trace.with_suffix(".log")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable, str(Path(__file__).with_name("serve.py")), "serve", self.target,
                    "--dtype", "float32", "--enforce-eager", "--max-model-len", "512", "--max-num-seqs", "4",
                    "--host", "127.0.0.1", "--port", str(self.port), "--speculative-config", json.dumps(LOOKUP),
                    *options,
                ],
                env={k: v for k, v in os.environ.items() if not k.startswith("SPECVIEW_")}
                | {"VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "1", "SPECVIEW_TRACE": str(trace)},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            assert self.process.poll() is None, self.log.read_text("utf-8", "replace")[-4000:]
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health"):
                    return
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.5)
        pytest.fail("the server did not come up: " + self.log.read_text("utf-8", "replace")[-4000:])

    def complete(self, prompt: str, tokens: int, temperature: float = 0.0) -> str:
        body: dict[str, Any] = {"model": self.target, "prompt": prompt, "max_tokens": tokens, "ignore_eos": True}
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/v1/completions",
            json.dumps(body | {"temperature": temperature}).encode(),
            {"content-type": "application/json"},
        )
        with urllib.request.urlopen(request) as answer:
            text: str = json.load(answer)["choices"][0]["text"]
            return text

    def complete_in_background(self, prompt: str, tokens: int) -> None:
        def ask() -> None:
            # A server that goes down answers first, or does not: each test says what its trace then holds.
            with suppress(OSError):
                self.complete(prompt, tokens)

        threading.Thread(target=ask, daemon=True).start()

    def kill(self) -> None:
        """SIGKILL to each of its processes at once."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@contextmanager
def serving(target: Path, trace: Path, *options: str) -> Iterator[Server]:
    server = Server(target, trace, *options)
    try:
        server.wait_until_ready()
        yield server
    finally:
        if server.process.poll() is None:
            server.kill()


def wait_for_rounds(trace: Path, count: int) -> None:
    """Until a trace that is being written shows a request in the middle of its output."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with TraceReader(trace) as reader:
            if sum(reader.totals(run.id).num_rounds for run in reader.runs()) >= count:
                return
        time.sleep(0.02)
    pytest.fail("the trace does not grow")


def wait_until_interrupted(trace: Path) -> None:
    """Until the system has cleared away the engine's process, which is not the server's own."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with TraceReader(trace) as reader:
            (run,) = reader.runs()
        if run.status == "interrupted":
            return
        time.sleep(0.1)
    pytest.fail(f"the run of a server that was killed reads as {run.status}")


def violations(trace: Path) -> set[str]:
    with TraceReader(trace) as reader:
        return {clause.id for report in check(reader) for clause in report.clauses if clause.violations}


def texts(trace: Path) -> dict[str, str | None]:
    """Prompt → its end, of every sequence."""
    with TraceReader(trace) as reader:
        return {s.prompt: s.stop_reason for run in reader.runs() for s in reader.sequences(run.id)}


def side_files(trace: Path) -> list[str]:
    return sorted(p.name for p in trace.parent.iterdir() if p.name.startswith(f"{trace.name}-"))


def test_a_server_that_is_told_to_stop_closes_its_trace(pair: tuple[Path, Path], tmp_path: Path) -> None:
    trace = tmp_path / "run.db"
    with serving(pair[0], trace, "--shutdown-timeout", "60") as server:
        server.complete("abcabcabcabc", 20)
        server.complete_in_background("xyxyxyxyxyxy", 480)
        wait_for_rounds(trace, 30)
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(STOP_SECONDS)
    assert side_files(trace) == []
    assert not violations(trace)
    with TraceReader(trace) as reader:
        (run,) = reader.runs()
        rounds = reader.totals(run.id).num_rounds
    ends = texts(trace)
    assert ends["abcabcabcabc"] == "length"
    # vLLM lets a request that is under way come to its end, or aborts it where the client is gone before.
    assert ends["xyxyxyxyxyxy"] in ("length", "interrupted")
    assert run.status == ("finished" if ends["xyxyxyxyxyxy"] == "length" else run.status)
    assert run.status in ("finished", "interrupted")
    assert rounds >= 30


def test_a_server_that_is_killed_leaves_a_trace_that_says_so(pair: tuple[Path, Path], tmp_path: Path) -> None:
    trace = tmp_path / "run.db"
    with serving(pair[0], trace) as server:
        server.complete("abcabcabcabc", 20)
        server.complete_in_background("xyxyxyxyxyxy", 480)
        wait_for_rounds(trace, 30)
        server.kill()
    wait_until_interrupted(trace)
    with TraceReader(trace) as reader:
        (run,) = reader.runs()
        assert reader.totals(run.id).num_rounds >= 30
    assert not violations(trace)


def test_two_engines_behind_two_servers_write_a_file_each(pair: tuple[Path, Path], tmp_path: Path) -> None:
    trace = tmp_path / "run.db"
    options = ("--data-parallel-size", "2", "--api-server-count", "2", "--shutdown-timeout", "60")
    prompts = [f"{letter}{letter.upper()}" * 8 for letter in "abcdefgh"]
    with serving(pair[0], trace, *options) as server:
        answers = {prompt: server.complete(prompt, 16) for prompt in prompts}
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(STOP_SECONDS)
    files = sorted(p.name for p in tmp_path.iterdir() if p.suffix == ".db")
    assert files == ["run.db", "run.dp1.db"]
    recorded: list[str] = []
    for name in files:
        assert not violations(tmp_path / name)
        recorded += texts(tmp_path / name)
        assert side_files(tmp_path / name) == []
    assert sorted(recorded) == sorted(answers)  # each request in one file, and only there
