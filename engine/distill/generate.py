"""Step one: prompts, and the target's own answers to them with its hidden states.

Up to two fifths of the prompts are user turns that the target invents (it continues an open user turn of its chat
template), the rest come from `prompts`. Most answers are sampled at temperature 1, some greedily, as the program is
used.
"""

from __future__ import annotations

import json
import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from engine.distill.prompts import HELD_OUT, OPENINGS, training_prompts
from engine.distill.sampler import sample
from engine.distill.store import save_shard

Report = Callable[[str], None]
Pause = Callable[[], None]


@dataclass(frozen=True)
class GenerateSettings:
    """How much to sample, and how."""

    tokens: int = 630_000
    """Stop after the batch that reaches this many answer tokens."""
    prompts: int = 9000
    invented_share: float = 0.4
    greedy_share: float = 0.2
    max_new_tokens: int = 192
    taps: tuple[int, ...] = ()
    """After how many decoder layers hidden states are kept besides the final ones."""
    batch: int = 112
    seed: int = 1


def end_tokens(model: Any, tokenizer: Any) -> frozenset[int]:
    """Every id that ends a text, from the generation settings and the tokenizer."""
    found: set[int] = set()
    for value in (getattr(model.generation_config, "eos_token_id", None), tokenizer.eos_token_id):
        found.update([value] if isinstance(value, int) else value or ())
    return frozenset(found)


def chat_ids(tokenizer: Any, prompt: str) -> list[int]:
    """The prompt as one user turn of the chat template, the answer's turn opened; plain text without a template."""
    if tokenizer.chat_template:
        turns = [{"role": "user", "content": prompt}]
        text = tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
        return list(tokenizer(text, add_special_tokens=False).input_ids)
    return list(tokenizer(prompt).input_ids)


def invent(model: Any, tokenizer: Any, count: int, batch: int, seed: int, report: Report, pause: Pause) -> list[str]:
    """User turns that the target writes itself, by continuing an open user turn; without a template, none.

    Returns at most `count` distinct ones of 3 to 60 tokens.
    """
    if not tokenizer.chat_template or count <= 0:
        return []
    mark = "\x00"
    whole = tokenizer.apply_chat_template([{"role": "user", "content": mark}], tokenize=False)
    head = whole.partition(mark)[0]
    ends = end_tokens(model, tokenizer)
    generator = torch.Generator().manual_seed(seed)
    found: dict[str, None] = {}
    rounds = 0
    while len(found) < count and rounds * batch < 2 * count + batch:
        openings = [OPENINGS[i % len(OPENINGS)] for i in range(batch)]
        prefixes = [tokenizer(head + opening, add_special_tokens=False).input_ids for opening in openings]
        sequences = sample(
            model, prefixes, taps=(), max_new_tokens=64, temperatures=[0.9] * batch, end_tokens=ends,
            generator=generator, each_step=lambda _rows: pause(),
        )  # fmt: skip
        for opening, sequence in zip(openings, sequences, strict=True):
            body = sequence.ids[sequence.prompt_length : -1]
            text = (opening + tokenizer.decode(body, skip_special_tokens=True)).strip()
            if sequence.ended and len(body) >= 3:
                found[text] = None
        rounds += 1
        report(f"prompts invented: {len(found)} of {count}")
    return list(found)[:count]


def generate(
    model: Any, tokenizer: Any, folder: Path, settings: GenerateSettings, report: Report, pause: Pause = lambda: None
) -> None:
    """Fill `folder`/train and `folder`/held-out with shards; what is there already is kept.

    Writes prompts.json beside them, so that a rerun with the same settings continues the same list.
    """
    held_out = [chat_ids(tokenizer, prompt) for prompt in HELD_OUT]
    path = folder / "held-out" / "00000.safetensors"
    if not path.exists():
        report("held-out prompts: answering")
        _answer(model, tokenizer, path, held_out, 0.25, settings, seed=10_000_019 + settings.seed, pause=pause)
    batches = _batches(_prompt_ids(model, tokenizer, folder, settings, report, pause), settings)

    def shard(index: int) -> int:
        """The number of answer tokens in shard `index`, which is made when it is not there yet."""
        path = folder / "train" / f"{index:05d}.safetensors"
        count_path = path.with_suffix(".count")
        if not path.exists() or not count_path.exists():
            seed = settings.seed * 1_000_003 + index
            count = _answer(
                model, tokenizer, path, batches[index], settings.greedy_share, settings, seed=seed, pause=pause
            )
            count_path.write_text(str(count))
        return int(count_path.read_text())

    # One batch a thread, each computing on one core: cores that other programs share then never wait for one another.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    done, started, waiting = 0, time.monotonic(), list(range(len(batches)))
    try:
        with ThreadPoolExecutor(threads) as pool:
            running = deque(pool.submit(shard, waiting.pop(0)) for _ in range(min(threads, len(waiting))))
            while running:
                done += running.popleft().result()
                report(f"answers: {done:,} of {settings.tokens:,} tokens, {done / (time.monotonic() - started):.0f}/s")
                if done < settings.tokens and waiting:
                    running.append(pool.submit(shard, waiting.pop(0)))
    finally:
        torch.set_num_threads(threads)


def _prompt_ids(
    model: Any, tokenizer: Any, folder: Path, settings: GenerateSettings, report: Report, pause: Pause
) -> list[list[int]]:
    path = folder / "prompts.json"
    if path.exists():
        texts = json.loads(path.read_text(encoding="utf-8"))
    else:
        invented = invent(
            model,
            tokenizer,
            round(settings.prompts * settings.invented_share),
            settings.batch,
            settings.seed,
            report,
            pause,
        )
        fresh = [prompt for prompt in invented if prompt not in HELD_OUT]
        texts = training_prompts(settings.prompts - len(fresh), settings.seed) + fresh
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(texts), encoding="utf-8")
    return [chat_ids(tokenizer, text) for text in texts]


def _batches(prompts: Sequence[list[int]], settings: GenerateSettings) -> list[list[list[int]]]:
    """Prompts of similar length together (the sampler feeds the longer ones while the shorter sample), shuffled."""
    rng = random.Random(settings.seed)
    ordered = sorted(prompts, key=lambda ids: (len(ids), rng.random()))
    batches = [ordered[i : i + settings.batch] for i in range(0, len(ordered), settings.batch)]
    rng.shuffle(batches)
    return batches


def _answer(
    model: Any, tokenizer: Any, path: Path, prompts: Sequence[list[int]], greedy_share: float,
    settings: GenerateSettings, *, seed: int, pause: Pause,
) -> int:  # fmt: skip
    """Sample the answers of one batch into one shard. Returns the number of answer tokens."""
    rng = random.Random(seed)
    sequences = sample(
        model,
        prompts,
        taps=settings.taps,
        max_new_tokens=settings.max_new_tokens,
        temperatures=[0.0 if rng.random() < greedy_share else 1.0 for _ in prompts],
        end_tokens=end_tokens(model, tokenizer),
        generator=torch.Generator().manual_seed(seed),
        each_step=lambda _rows: pause(),
    )
    save_shard(path, sequences)
    return sum(len(s.ids) - s.prompt_length for s in sequences)
