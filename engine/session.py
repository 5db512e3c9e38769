"""A loaded pair, ready to decode one prompt after the other: what recorders and tests use."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from importlib import metadata
from platform import python_version
from typing import Any, Literal

import torch
from torch import Tensor

from engine.baseline import Baseline, Forwards, cost_curve, plain_decode, synchronise
from engine.decode import Decoder
from engine.device import device_name
from engine.errors import PairError, PromptError
from engine.gamma import AutoGamma, FixedGamma, GammaSchedule
from engine.graphs import Graphs, on_cuda
from engine.memory import keep_freed_memory
from engine.pair import Pair, PairOptions, load_pair
from engine.proposers.feature_head import FeatureHead
from engine.round import Cost, Round, RunInfo, Sampling, Sequence, StopReason, VocabEntry
from engine.stopping import Stopping
from engine.timing import PhaseClock
from engine.vocabulary import Vocabulary

Schedule = Literal["fixed", "auto"]
PACKAGES = ("specview", "torch", "transformers")


def no_progress(_sentence: str, _share: float | None) -> None:
    """Report to nobody."""


def load_session(
    draft: str | None,
    target: str | None,
    *,
    sampling: Sampling,
    gamma: int = 4,
    gamma_schedule: Schedule = "fixed",
    max_new_tokens: int = 256,
    seed: int = 0,
    device: str = "auto",
    dtype: str = "auto",
    stop: tuple[str, ...] = (),
    top: int = 5,
    draft_device: str | None = None,
    device_map: str | None = None,
    draft_min_prob: float = 0.0,
    progress: Callable[[str, float | None], None] = no_progress,
) -> Session:
    """Load a pair (see `engine.pair.load_pair` for what `draft` and `target` may be) and prepare to decode.

    Args:
        gamma: candidates a round, ≥ 0; the first γ when the schedule is auto.
        top: alternatives recorded a distribution.
        draft_device: another device than the target's for the draft.
        device_map: spread the target over several devices ("auto"); needs accelerate.
        draft_min_prob: stop drafting after a candidate whose q is below this.
        progress: gets a sentence and a share from 0 to 1, or None where the share is not known.

    Raises:
        PairError: a model is missing, or the two cannot work together.
    """
    options = PairOptions(device, dtype, draft_device, device_map, draft_min_prob)
    pair = load_pair(draft, target, sampling, options, progress)
    unknown = [token for token in sampling.logit_bias if token >= pair.target.vocab_size]
    if unknown:
        raise PairError(
            f"--logit-bias names token {unknown[0]}, but the ids of {pair.target_name} are 0 … "
            f"{pair.target.vocab_size - 1}."
        )
    return Session(
        pair,
        sampling=sampling,
        gamma=gamma,
        gamma_schedule=gamma_schedule,
        max_new_tokens=max_new_tokens,
        seed=seed,
        stop=stop,
        top=top,
    )


class Session:
    """One run: one pair, one configuration, one random generator.

    Attributes:
        info: the facts of the run; `chat` is known once a prompt has been encoded.
        stop_reason: why the last sequence ended; None while it grows.
    """

    def __init__(
        self,
        pair: Pair,
        *,
        sampling: Sampling,
        gamma: int = 4,
        gamma_schedule: Schedule = "fixed",
        max_new_tokens: int = 256,
        seed: int = 0,
        stop: tuple[str, ...] = (),
        top: int = 5,
        graphs: bool = True,
    ) -> None:
        """`graphs`: on a GPU, replay steps as CUDA graphs where that can be done."""
        self.pair = pair
        self._sampling = sampling
        self._gamma = gamma
        self._schedule_name = gamma_schedule
        self._max_new_tokens = max_new_tokens
        self._stop = stop
        if pair.choice.device.type == "cpu":
            keep_freed_memory()
        self._vocabulary = Vocabulary(pair.tokenizer)
        self._costs: tuple[Cost, ...] = ()
        self._prefilled: tuple[tuple[int, ...], int, int] | None = None
        self._prompt_hidden: list[Tensor] = []
        device = pair.target.output_device
        self._seed = seed
        self._generator = torch.Generator(device).manual_seed(seed)
        self._baseline_generator = torch.Generator(device).manual_seed(seed)
        self._clock = PhaseClock(device, time.perf_counter_ns())
        if pair.proposer.taps is not None:
            pair.target.catch_hidden(pair.proposer.taps)
        if device.type == "cuda" and graphs:
            self._capture_steps()
        self._decoder = Decoder(
            pair.target, pair.proposer, sampling, self._schedule(), self._generator, self._clock, top
        )
        self.info = RunInfo(
            uuid=str(uuid.uuid4()),
            draft=pair.draft_name,
            target=pair.target_name,
            proposer=pair.proposer.kind,
            vocab_size=pair.target.vocab_size,
            device=str(pair.choice.device),
            device_name=device_name(pair.choice.device),
            target_dtype=_dtype_name(pair.target.dtype),
            draft_dtype=_dtype_name(pair.draft_model.dtype) if pair.draft_model else None,
            gamma=gamma,
            gamma_schedule=gamma_schedule,
            sampling=sampling,
            stop=stop,
            max_new_tokens=max_new_tokens,
            seed=seed,
            versions={"python": python_version(), **_versions()},
        )

    @property
    def stop_reason(self) -> StopReason | None:
        return self._decoder.stop_reason

    @property
    def uncaptured(self) -> str | None:
        """Why steps on a GPU are called one kernel at a time; None where they are replayed as CUDA graphs."""
        target = self.pair.target
        if target.output_device.type != "cuda":
            return None
        if target.graphs is None:
            return f"{target.name} runs through its own module: its forwards are called, not replayed as CUDA graphs."
        if target.graphs.failure is not None:
            return f"CUDA graphs are not used, every kernel is launched anew: {target.graphs.failure.rstrip('.')}."
        return None

    def _capture_steps(self) -> None:
        """Let a target on one GPU, and a draft beside it, replay their steps as CUDA graphs."""
        graphs = Graphs(on_cuda(self.pair.target.output_device))
        target, draft = self.pair.target, self.pair.draft_model
        if target.use_graphs(graphs) and draft is not None and draft.device == target.device:
            draft.use_graphs(graphs)

    def encode(self, prompt: str | list[dict[str, Any]], *, chat: bool | None = None) -> tuple[int, ...]:
        """The token ids of a prompt.

        Args:
            prompt: text, or chat messages with `role` and `content`.
            chat: wrap the prompt in the tokenizer's chat template; None does so where there is one.

        Raises:
            PromptError: the prompt is empty, does not fit into the models' context, or has no template to go through.
        """
        tokenizer = self.pair.tokenizer
        templated = bool(getattr(tokenizer, "chat_template", None)) if chat is None else chat
        if isinstance(prompt, list):
            templated = True
        if not prompt:
            raise PromptError("The prompt is empty; give some text to continue.")
        ids = self._chat_ids(prompt) if templated else self._raw_ids(str(prompt))
        self.check_length(len(ids))
        self.info = replace(self.info, chat=templated)
        return ids

    def _raw_ids(self, prompt: str) -> tuple[int, ...]:
        try:
            return tuple(self.pair.tokenizer(prompt)["input_ids"])
        except (UnicodeError, TypeError) as error:
            raise PromptError("The prompt is not valid Unicode text.") from error

    def _chat_ids(self, prompt: str | list[dict[str, Any]]) -> tuple[int, ...]:
        tokenizer = self.pair.tokenizer
        if not getattr(tokenizer, "chat_template", None):
            raise PromptError(f"The tokenizer of {self.pair.target_name} has no chat template; use --raw.")
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        if not all(isinstance(message, dict) and {"role", "content"} <= message.keys() for message in messages):
            raise PromptError("Each chat message must be an object with a role and a content.")
        try:
            text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
            return tuple(tokenizer(text, add_special_tokens=False)["input_ids"])
        except (UnicodeError, TypeError) as error:
            raise PromptError("The prompt is not valid Unicode text.") from error
        except Exception as error:  # a template is a program of its own, and raises what it likes
            raise PromptError(
                f"The chat template of {self.pair.target_name} refuses these messages: {error}"
            ) from error

    def check_length(self, tokens: int) -> None:
        """Refuse a prompt of this many tokens when it is empty or leaves no room for one new token (PromptError)."""
        if tokens == 0:
            raise PromptError("The prompt is empty; give some text to continue.")
        for name, limit in (
            (self.pair.target_name, self.pair.target.context_length),
            (self.pair.draft_name, self.pair.proposer.context_length),
        ):
            if limit is not None and tokens > limit:
                raise PromptError(f"The prompt has {tokens} tokens, but {name} holds {limit}; shorten it.")

    def baseline(self, ids: tuple[int, ...], tokens: int = 16) -> Baseline:
        """Decode up to `tokens` ≥ 1 tokens of the prompt plainly, with a random generator of its own."""
        self._prefill_target(ids)
        tape = torch.tensor(ids, device=self.pair.target.device)
        return plain_decode(self.pair.target, tape, tokens, self._sampling, self.pair.eos, self._baseline_generator)

    def costs(self, ids: tuple[int, ...], sizes: tuple[int, ...] = (1, 2, 3, 5, 9, 13)) -> tuple[Cost, ...]:
        """Median forward times behind the prompt; an auto γ starts from them."""
        self._prefill_target(ids)
        draft = self._measured_draft()
        if draft is not None:
            self._prefill_draft(ids)
        self._costs = cost_curve(self.pair.target, draft, sizes)
        self._decoder.schedule = self._schedule()
        return self._costs

    def prefill(self, index: int, prompt: str | None, ids: tuple[int, ...]) -> Sequence:
        """Feed all but the last prompt token to both models; `decode` then continues this prompt."""
        target_ns, target_calls = self._prefill_target(ids)
        draft_ns = self._prefill_draft(ids)
        self._prefilled = None
        self._prompt_hidden = []
        # Each sequence starts the generator anew: what it draws depends on its index, not on what ran before it, so a
        # run that is resumed at its first unfinished prompt continues as if it had never stopped.
        self._generator.manual_seed(sequence_seed(self._seed, index))
        stopping = Stopping(self.pair.eos, self._max_new_tokens, self._stop, self._vocabulary.token_bytes)
        self._decoder.begin(list(ids), stopping)
        return Sequence(
            index=index,
            prompt=prompt,
            prompt_ids=ids,
            target_prefill_ns=target_ns,
            draft_prefill_ns=None if self._measured_draft() is None else draft_ns,
            target_prefill_calls=target_calls,
        )

    def decode(self) -> Iterator[Round]:
        """The rounds of the prefilled sequence; raises NumericalError when a model breaks down."""
        return self._decoder.rounds()

    def vocab(self, ids: Iterable[int]) -> list[VocabEntry]:
        """What token ids stand for, each once."""
        return self._vocabulary.entries(ids)

    def _measured_draft(self) -> Forwards | None:
        """What the draft's own forwards are timed on; None for a proposer without a network."""
        proposer = self.pair.proposer
        return proposer if isinstance(proposer, FeatureHead) else self.pair.draft_model

    def _schedule(self) -> GammaSchedule:
        if self._schedule_name == "auto":
            return AutoGamma(self._gamma, costs=self._costs)
        return FixedGamma(self._gamma)

    @torch.inference_mode()
    def _prefill_target(self, ids: tuple[int, ...]) -> tuple[int, int]:
        """(ns, forwards) of the target over ids[:-1]; done once for the same ids, and never for an empty prefix."""
        if self._prefilled is not None and self._prefilled[0] == ids:
            return self._prefilled[1:]
        target = self.pair.target
        tape = torch.tensor(ids, device=target.device)
        target.begin(len(ids) + self._max_new_tokens + self._decoder.schedule.largest + 1)
        begin = time.perf_counter_ns()
        self._prompt_hidden = target.prefill(tape[:-1])
        synchronise(target.output_device)
        spent = time.perf_counter_ns() - begin
        self._prefilled = (ids, spent, target.calls)
        return spent, target.calls

    @torch.inference_mode()
    def _prefill_draft(self, ids: tuple[int, ...]) -> int:
        proposer = self.pair.proposer
        tape = torch.tensor(ids, device=self.pair.target.device)
        begin = time.perf_counter_ns()
        proposer.begin(tape, len(ids) + self._max_new_tokens + self._decoder.schedule.largest + 1)
        for hidden in self._prompt_hidden:
            proposer.observe(hidden)
        measured = self._measured_draft()
        if measured is not None:
            synchronise(measured.output_device)
        return time.perf_counter_ns() - begin


def sequence_seed(seed: int, index: int) -> int:
    """The seed of one sequence of a run: the run's own for the first, distinct in its low 32 bits for the others.

    torch's CPU generator reads no more than 32 bits; an odd factor keeps 2³² indices apart.
    """
    return (seed + index * 0x9E3779B1) % 2**63


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:  # run from a source tree that was never installed
            continue
    return found
