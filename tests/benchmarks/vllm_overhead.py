"""What recording costs vLLM: the same seeded batch with the instrument on and off, by turns, in one engine.

Run with the interpreter that has vLLM:  .venv-vllm/bin/python -m tests.benchmarks.vllm_overhead TARGET [--draft DRAFT]
Without a draft, vLLM's n-gram proposer drafts.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

PROMPTS = (
    "The sky looks blue because",
    "A good recipe for bread starts with flour, water and",
    "def fibonacci(n):\n    if n <",
    "Once upon a time, in a village by the sea,",
    "The three laws of motion say that",
    "To sort a list of numbers quickly, one",
    "In the year 1969, astronauts",
    "Dear Sir or Madam, I am writing to",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target")
    parser.add_argument("--draft")
    parser.add_argument("--gamma", type=int, default=3)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--top-p", type=float, default=1.0)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = measure(options, Path(folder) / "run.db")
    text = json.dumps(result, indent=2)
    print(text)
    if options.output:
        options.output.write_text(text + "\n", "utf-8")


def measure(options: argparse.Namespace, trace: Path) -> dict[str, Any]:
    """Wall and processor seconds of each turn, and the medians of their ratios, on ÷ off."""
    os.environ |= {
        "SPECVIEW_TRACE": str(trace),
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": "1",
    }
    import torch
    from vllm import LLM, SamplingParams

    from specview.trace.reader import TraceReader
    from specview.vllm_plugin import plugin
    from tests.vllm.drive import expand_correctly

    expand_correctly()
    if options.draft:
        speculative = {"method": "draft_model", "model": options.draft, "draft_sample_method": "probabilistic"}
    else:
        speculative = {"method": "ngram", "prompt_lookup_max": 3, "prompt_lookup_min": 1}
    llm = LLM(
        model=options.target,
        dtype=options.dtype,
        enforce_eager=True,
        max_model_len=512,
        max_num_seqs=options.batch,
        enable_prefix_caching=False,
        speculative_config=speculative | {"num_speculative_tokens": options.gamma},
        seed=0,
    )
    prompts = [PROMPTS[i % len(PROMPTS)] for i in range(options.batch)]
    settings = [
        SamplingParams(temperature=1.0, top_p=options.top_p, max_tokens=options.tokens, seed=i, ignore_eos=True)
        for i in range(options.batch)
    ]
    (switch,) = plugin._installed

    def turn(on: bool) -> tuple[float, float, list[list[int]]]:
        switch.on = on
        torch.manual_seed(0)  # vLLM's draft draws from the global generator
        wall, cpu = time.perf_counter(), time.process_time()
        outputs = llm.generate(prompts, settings, use_tqdm=False)
        return time.perf_counter() - wall, time.process_time() - cpu, [list(o.outputs[0].token_ids) for o in outputs]

    turn(True)
    turn(False)
    pairs: list[dict[str, tuple[float, float]]] = []
    same = True
    for number in range(options.pairs):
        # Who goes first changes, so that a drift of the machine favours neither.
        order = (True, False) if number % 2 else (False, True)
        results = {on: turn(on) for on in order}
        same &= results[True][2] == results[False][2]
        pairs.append({"on": results[True][:2], "off": results[False][:2]})
    switch.on = True
    llm.llm_engine.engine_core.shutdown()
    with TraceReader(trace) as reader:
        rounds = sum(reader.totals(run.id).num_rounds for run in reader.runs())
    ratios = [[pair["on"][i] / pair["off"][i] for pair in pairs] for i in (0, 1)]
    tokens = options.batch * options.tokens
    return {
        "target": Path(options.target).name,
        "draft": Path(options.draft).name if options.draft else "n-gram",
        "gamma": options.gamma,
        "batch": options.batch,
        "tokens_per_turn": tokens,
        "dtype": options.dtype,
        "top_p": options.top_p,
        "rounds_recorded": rounds,
        "same_tokens": same,
        "tokens_per_second_off": tokens / statistics.median(p["off"][0] for p in pairs),
        "tokens_per_second_on": tokens / statistics.median(p["on"][0] for p in pairs),
        "overhead_wall": statistics.median(ratios[0]) - 1,
        "overhead_processor": statistics.median(ratios[1]) - 1,
        "pairs": pairs,
    }


if __name__ == "__main__":
    main()
