"""The losslessness experiment: many short runs, counted, against the target's exact distribution."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from scipy import stats
from torch import Tensor

from engine.decode import Decoder
from engine.round import Sampling
from engine.sampling import distribution
from tests.unit.engine_models import output, run

RUNS = 20_000
LENGTH = 3
SIGNIFICANCE = 0.001


WORKERS = 2


def count(loop: Decoder, prompt: list[int], runs: int = RUNS) -> Counter[tuple[int, ...]]:
    """How often each sequence of the first three tokens came out; half of the runs in each of two processes.

    The workers are forked, so that they have the loop as the test prepared it; each has seeds of its own.
    """
    context = multiprocessing.get_context("fork")
    results: Any = context.SimpleQueue()
    seed = loop._generator.initial_seed()
    workers = [
        context.Process(target=_count_into, args=(results, loop, prompt, runs // WORKERS, 1000 * seed + worker))
        for worker in range(WORKERS)
    ]
    for worker in workers:
        worker.start()
    total: Counter[tuple[int, ...]] = Counter()
    answers = [results.get() for _ in workers]
    for worker in workers:
        worker.join()
    for answer in answers:
        assert isinstance(answer, Counter), answer
        total += answer
    return total


def _count_into(results: Any, loop: Decoder, prompt: list[int], runs: int, seed: int) -> None:
    try:
        loop._generator.manual_seed(seed)
        results.put(Counter(tuple(output(run(loop, prompt, LENGTH))) for _ in range(runs)))
    except BaseException as error:
        results.put(f"a worker failed: {error!r}")
        raise


def exact(
    next_logits: Callable[[list[int]], Tensor], prompt: list[int], sampling: Sampling
) -> dict[tuple[int, ...], float]:
    """The target's own joint distribution of the first three tokens, by enumeration."""
    joint: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(LENGTH):
        longer: dict[tuple[int, ...], float] = {}
        for prefix, mass in joint.items():
            row = distribution(next_logits([*prompt, *prefix])[None], sampling)[0].double()
            for token, share in enumerate((row / row.sum()).tolist()):
                if share > 0:
                    longer[(*prefix, token)] = mass * share
        joint = longer
    return joint


def table_logits(table: Tensor) -> Callable[[list[int]], Tensor]:
    return lambda ids: table[ids[-1]]


def module_logits(module: torch.nn.Module) -> Callable[[list[int]], Tensor]:
    @torch.inference_mode()
    def logits(ids: list[int]) -> Tensor:
        return module(input_ids=torch.tensor([ids])).logits[0, -1]

    return logits


def p_value(counts: Counter[tuple[int, ...]], expected: dict[tuple[int, ...], float]) -> float:
    """Chi-square goodness of fit; 0 when something came out that the target cannot say. Rare cells are pooled."""
    if any(sequence not in expected for sequence in counts):
        return 0.0
    runs = sum(counts.values())
    observed_cells, expected_cells = [], []
    pooled_observed = pooled_expected = 0.0
    for sequence, share in expected.items():
        if share * runs < 8:
            pooled_observed += counts[sequence]
            pooled_expected += share * runs
        else:
            observed_cells.append(float(counts[sequence]))
            expected_cells.append(share * runs)
    if pooled_expected > 0:
        observed_cells.append(pooled_observed)
        expected_cells.append(pooled_expected)
    scale = sum(observed_cells) / sum(expected_cells)
    return float(stats.chisquare(observed_cells, [cell * scale for cell in expected_cells]).pvalue)


def tables(vocab: int = 6) -> tuple[Tensor, Tensor]:
    """(target, draft): two random tables that differ a lot."""
    generator = torch.Generator().manual_seed(7)
    return 1.5 * torch.randn(vocab, vocab, generator=generator), 1.5 * torch.randn(vocab, vocab, generator=generator)
