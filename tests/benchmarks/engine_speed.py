"""How close the engine comes to its forwards alone, and how it compares with transformers' assisted generation.

    python -m tests.benchmarks.engine_speed [--repeats 5] [--tokens 64] [--threads N]

All on the default target in bfloat16 with the draft that leaves out its four middle layers, in turns, as medians:

- floor: the very forwards that a run made, on the same models and caches, with nothing between them.
- recording: the same run with every round handed to a trace writer, against without one.
- assisted: `generate(assistant_model=…)` with the same two modules and γ (constant schedule, no confidence threshold).

Ratios of processor time are given beside those of wall time: they also mean something on a machine that is busy.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from engine.model import Model
from engine.round import Round, Sampling
from engine.session import Session, load_session
from specview.trace.writer import TraceWriter

PROMPT = "Explain how a rainbow forms, in a few sentences."
DRAFT = "self:0-12,17-29"
GAMMA = 4


@dataclass(frozen=True)
class Timed:
    wall: float
    """s."""
    cpu: float
    """s of processor time of the process."""
    tokens: int


def timed(call: Callable[[], int]) -> Timed:
    wall, cpu = time.perf_counter(), time.process_time()
    tokens = call()
    return Timed(time.perf_counter() - wall, time.process_time() - cpu, tokens)


def in_turns(calls: dict[str, Callable[[], int]], repeats: int) -> dict[str, list[Timed]]:
    """Every call once for warmth, then all of them in turns."""
    for call in calls.values():
        call()
    results: dict[str, list[Timed]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            results[name].append(timed(call))
    return results


def ratio(ours: list[Timed], theirs: list[Timed], per_token: bool, kind: str) -> float:
    """Median over the turns of ours ÷ theirs, per token where the outputs differ in length."""

    def cost(one: Timed) -> float:
        value: float = getattr(one, kind)
        return value / one.tokens if per_token else value

    return statistics.median(cost(a) / cost(b) for a, b in zip(ours, theirs, strict=True))


def decode(session: Session, ids: tuple[int, ...], index: int = 0) -> list[Round]:
    session.prefill(index, PROMPT, ids)
    return list(session.decode())


def output_length(rounds: list[Round]) -> int:
    return sum(len(r.committed) for r in rounds)


class Floor:
    """Repeats the forwards of recorded rounds: same sizes, same rollbacks, same caches; nothing else."""

    def __init__(self, target: Model, draft: Model, ids: tuple[int, ...], rounds: list[Round]) -> None:
        self.target, self.draft, self.rounds = target, draft, rounds
        self.ids = torch.tensor(ids)
        self.block = torch.arange(64)

    @torch.inference_mode()
    def run(self) -> int:
        target, draft = self.target, self.draft
        for model in (target, draft):
            model.begin(len(self.ids) + 512)
            model.prefill(self.ids[:-1])
        for r in self.rounds:
            first = r.committed_before - draft.length()
            for step in range(r.proposed):
                draft.forward(self.block[: first if step == 0 else 1], 1)
            target.forward(self.block[: r.proposed + 1], r.proposed + 1)
            target.roll_back(r.committed_after - 1)
            draft.roll_back(r.committed_after - 1)
        return output_length(self.rounds)


def assisted(session: Session, ids: tuple[int, ...], sampling: Sampling, tokens: int) -> Callable[[], int]:
    target, draft = session.pair.target.module, session.pair.draft_model.module
    draft.generation_config.num_assistant_tokens = GAMMA
    draft.generation_config.num_assistant_tokens_schedule = "constant"
    draft.generation_config.assistant_confidence_threshold = 0.0
    prompt = torch.tensor([ids], device=target.device)
    options = {"do_sample": False} if sampling.greedy else {"do_sample": True, "temperature": 1.0, "top_k": 0}

    def run() -> int:
        torch.manual_seed(1)
        with torch.inference_mode():
            out = target.generate(
                prompt,
                attention_mask=torch.ones_like(prompt),
                assistant_model=draft,
                max_new_tokens=tokens,
                pad_token_id=0,
                **options,
            )
        return out.shape[1] - len(ids)

    return run


def one_setting(temperature: float, repeats: int, tokens: int, folder: Path) -> dict[str, float]:
    sampling = Sampling(temperature=temperature)
    session = load_session(DRAFT, None, sampling=sampling, gamma=GAMMA, max_new_tokens=tokens, seed=1, dtype="bfloat16")
    ids = session.encode(PROMPT)
    rounds = decode(session, ids)
    floor = Floor(session.pair.target, session.pair.draft_model, ids, rounds)
    written = 0

    def recorded() -> int:
        nonlocal written
        written += 1
        writer = TraceWriter(folder / f"{temperature}-{written}.db", force=True)
        writer.begin_run(replace(session.info, uuid=f"{session.info.uuid}-{written}"))
        handle = writer.begin_sequence(session.prefill(0, PROMPT, ids))
        count = 0
        for finished in session.decode():
            writer.add_round(handle, finished)
            count += len(finished.committed)
        writer.end_sequence(handle, session.stop_reason)
        writer.close("finished")
        return count

    calls = {
        "floor": floor.run,
        "engine": lambda: output_length(decode(session, ids)),
        "recorded": recorded,
        "assisted": assisted(session, ids, sampling, tokens),
    }
    times = in_turns(calls, repeats)
    result = {"tokens_per_round": output_length(rounds) / len(rounds)}
    for kind in ("wall", "cpu"):
        result[f"engine_over_floor_{kind}"] = ratio(times["engine"], times["floor"], False, kind)
        result[f"recorded_over_floor_{kind}"] = ratio(times["recorded"], times["floor"], False, kind)
        result[f"recorded_over_engine_{kind}"] = ratio(times["recorded"], times["engine"], False, kind)
        result[f"assisted_over_recorded_{kind}"] = ratio(times["assisted"], times["recorded"], True, kind)
    result["tokens_per_second"] = statistics.median(t.tokens / t.wall for t in times["recorded"])
    return result


Measurement = Callable[[float, int, int, Path], dict[str, float]]
"""(temperature, repetitions, tokens, a folder to write to) → figures by name."""


def both_settings(title: str, measure: Measurement, repeats: int, tokens: int) -> dict[str, dict[str, float]]:
    """Measure greedy and sampled, print a table, and return the numbers."""
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, temperature in (("greedy", 0.0), ("sampled", 1.0)):
            results[name] = measure(temperature, repeats, tokens, Path(folder))
    print(f"{title:32}" + "".join(f"{name:>10}" for name in results))
    for row in results["greedy"]:
        print(f"{row:32}" + "".join(f"{result[row]:>10.3f}" for result in results.values()))
    return results


def main(run: Callable[[int, int], dict[str, dict[str, float]]]) -> None:
    """The command line of a benchmark with greedy and sampled figures; prints them as JSON too."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=0)
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    print(json.dumps(run(arguments.repeats, arguments.tokens), indent=1))


def run(repeats: int = 5, tokens: int = 64) -> dict[str, dict[str, float]]:
    """Greedy and sampled, as a table and as numbers."""
    return both_settings("engine_speed", one_setting, repeats, tokens)


if __name__ == "__main__":
    main(run)
