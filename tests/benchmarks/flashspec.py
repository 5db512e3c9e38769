"""This engine, recording everything, against flashspec (PyPI) with the same modules, γ, sampling and prompt.

    python -m tests.benchmarks.flashspec [--repeats 5] [--tokens 64] [--threads N]

flashspec runs its eager path with a model drafter and a fixed γ (`drafter_strategy="bandit"` with one arm: its default
would mix in prompt lookup). The default target in bfloat16 with the draft that leaves out its four middle layers, in
turns, medians per output token; prefill is part of both. flashspec is no dependency of ours: `pip install flashspec`
into an environment of its own that sees this one's packages.
"""

from __future__ import annotations

import importlib.util
import logging
import statistics
from collections.abc import Callable
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from engine.round import Sampling
from engine.session import Session, load_session
from specview.trace.writer import TraceWriter
from tests.benchmarks.engine_speed import DRAFT, GAMMA, PROMPT, both_settings, in_turns, main, ratio

SKIPPED = "flashspec is not installed here; nothing was compared (pip install flashspec)."


def theirs(session: Session, ids: tuple[int, ...], temperature: float, tokens: int) -> Callable[[], int]:
    """flashspec on the session's own two modules, compiled on a GPU, where that is how it is meant to run."""
    import flashspec
    from flashspec.engine.hf_drafter import HuggingFaceDrafter
    from flashspec.engine.verifier import TargetModel

    logging.getLogger("flashspec").setLevel(logging.ERROR)
    draft, target = session.pair.draft_model, session.pair.target
    assert draft is not None
    device = target.device
    config = flashspec.FlashSpecConfig(
        device=str(device),
        dtype="bfloat16",
        compile=device.type == "cuda",
        drafter_strategy="bandit",
        eos_token_ids=tuple(session.pair.eos),
        max_new_tokens=tokens,
        bandit=flashspec.BanditConfig(n_arms=1),
        sampling=flashspec.SamplingConfig(gamma=GAMMA, temperature=temperature, seed=1),
    )
    drafter = HuggingFaceDrafter("draft", device, torch.bfloat16, temperature, model=draft.module)
    verifier = TargetModel("target", device, torch.bfloat16, model=target.module)
    engine: Any = flashspec.SpeculativeEngine(config, [drafter], verifier)
    prompt = torch.tensor([ids], device=device)

    def run() -> int:
        with torch.inference_mode():
            return int(engine.generate(prompt, max_new_tokens=tokens).output_ids.shape[1])

    return run


def ours(session: Session, ids: tuple[int, ...], folder: Path) -> Callable[[], int]:
    """A whole recorded run into a trace of its own."""
    count = 0

    def run() -> int:
        nonlocal count
        count += 1
        writer = TraceWriter(folder / f"{session.info.uuid}-{count}.db")
        writer.begin_run(replace(session.info, uuid=f"{session.info.uuid}-{count}"))
        handle = writer.begin_sequence(session.prefill(0, PROMPT, ids))
        produced = 0
        for finished in session.decode():
            writer.add_round(handle, finished)
            produced += len(finished.committed)
        writer.end_sequence(handle, session.stop_reason or "length")
        writer.close("finished")
        return produced

    return run


def installed() -> bool:
    """Whether there is a flashspec to compare with."""
    return importlib.util.find_spec("flashspec") is not None


def one_setting(temperature: float, repeats: int, tokens: int, folder: Path) -> dict[str, float]:
    sampling = Sampling(temperature=temperature)
    session = load_session(DRAFT, None, sampling=sampling, gamma=GAMMA, max_new_tokens=tokens, seed=1, dtype="bfloat16")
    ids = session.encode(PROMPT)
    calls = {"flashspec": theirs(session, ids, temperature, tokens), "recorded": ours(session, ids, folder)}
    times = in_turns(calls, repeats)
    result = {
        f"flashspec_over_recorded_{kind}": ratio(times["flashspec"], times["recorded"], True, kind)
        for kind in ("wall", "cpu")
    }
    for name, timed in times.items():
        result[f"{name}_tokens"] = statistics.median(t.tokens for t in timed)
        result[f"{name}_tokens_per_second"] = statistics.median(t.tokens / t.wall for t in timed)
    return result


def run(repeats: int = 5, tokens: int = 64) -> dict[str, dict[str, float]]:
    """Measure greedy and sampled, print a table, and return the numbers; nothing where flashspec is not installed."""
    if not installed():
        print(SKIPPED)
        return {}
    return both_settings(f"flashspec {metadata.version('flashspec')}", one_setting, repeats, tokens)


if __name__ == "__main__":
    main(run)
