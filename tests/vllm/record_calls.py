"""Writes the recordings that the suite without vLLM replays: `python -m tests.vllm.record_calls`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.unit.vllm_calls import FOLDER, to_json

RECORDINGS: dict[str, dict[str, Any]] = {
    "vllm_mixed": {"method": "drawn", "expand_correctly": True},
    "vllm_broken": {"method": "greedy", "expand_correctly": False},
}


def requests(broken: bool) -> list[dict[str, Any]]:
    def prompt(number: int) -> list[int]:
        return [(7 * number + j * j) % 94 for j in range(8 + number)] * 2

    if broken:
        params = {"temperature": 1.0, "max_tokens": 6, "ignore_eos": True}
        return [{"id": f"r{i}", "prompt_ids": prompt(i), "params": params} for i in range(2)]
    settings: list[dict[str, Any]] = [
        {"temperature": 1.0, "max_tokens": 10, "seed": 1, "ignore_eos": True},
        {"temperature": 0.0, "max_tokens": 10, "stop_token_ids": list(range(0, 300, 7))},
        {"temperature": 0.8, "top_p": 0.9, "top_k": 30, "max_tokens": 9, "seed": 2},
    ]
    found = [{"id": f"r{i}", "prompt_ids": prompt(i), "params": p, "at_step": i} for i, p in enumerate(settings)]
    gone = {"temperature": 1.0, "max_tokens": 60, "seed": 3, "ignore_eos": True}
    return [*found, {"id": "gone", "prompt_ids": prompt(3), "params": gone, "abort_after": 5}]


def record(name: str) -> None:
    from specview.vllm_plugin.recorder import Recorder
    from tests.vllm.conftest import ENGINE
    from tests.vllm.drive import run
    from tests.vllm.models import make_pair

    recording = RECORDINGS[name]
    steps = []
    put = Recorder.put

    def keep(self: Recorder, step: Any) -> None:
        if step.requests or step.aborted:
            steps.append(to_json(step))
        put(self, step)

    Recorder.put = keep  # type: ignore[method-assign]
    target, draft = make_pair(Path(os.environ["SPECVIEW_TRACE"]).parent)
    how = {"draft_sample_method": "probabilistic"} if recording["method"] == "drawn" else {}
    speculative = {"method": "draft_model", "model": str(draft), "num_speculative_tokens": 3} | how
    broken = not recording["expand_correctly"]
    engine = ENGINE | {"model": str(target), "speculative_config": speculative}
    run({"engine": engine, "requests": requests(broken), "expand_correctly": not broken})
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.json").write_text(json.dumps(steps, separators=(",", ":")) + "\n", "utf-8")


def main() -> None:
    """Each recording in a process of its own: a plugin installs itself once."""
    if sys.argv[1:]:
        record(sys.argv[1])
        return
    for name in RECORDINGS:
        with tempfile.TemporaryDirectory() as folder:
            environment = {
                "SPECVIEW_TRACE": f"{folder}/run.db",
                "SPECVIEW_TOP": "2",
                "VLLM_CPU_KVCACHE_SPACE": "1",
                "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            }
            subprocess.run([sys.executable, "-m", __spec__.name, name], check=True, env=os.environ | environment)


if __name__ == "__main__":
    main()
