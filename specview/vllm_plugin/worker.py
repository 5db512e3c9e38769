"""Wraps the places where vLLM samples. Each wrapper calls the original with what it was given and returns what it
returned; in between it keeps references, and after the draw it measures."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np
import torch

from specview.vllm_plugin import host
from specview.vllm_plugin.drafts import draft_facts
from specview.vllm_plugin.log import Switch
from specview.vllm_plugin.settings import Settings
from specview.vllm_plugin.tap import Instrument, StepTap, processed, small_enough

ATTRIBUTE = "_specview"
"""Where an instrument hangs on its model runner, and a capture on its step's output."""

_active: list[StepTap] = []
"""The tap of the step that is being sampled; empty outside of a recorded step (warm-up, profiling)."""
_proposing: list[Instrument] = []
"""The instrument of the runner whose draft is at work."""


def _replace(owner: Any, name: str, make: Any) -> None:
    original = getattr(owner, name)
    setattr(owner, name, functools.wraps(original)(make(original)))


def wrap_sampler(module: ModuleType, switch: Switch) -> None:
    """Keep the scores from which the last position's token is drawn."""

    def sample(original: Any) -> Any:
        def wrapper(self: Any, logits: Any, sampling_metadata: Any, *args: Any, **kwargs: Any) -> Any:
            if _active:
                with switch.guard("reading the sampler's input"):
                    tap = _active[0]
                    tap.last_scores = logits
                    if tap.copy_last and small_enough(logits):
                        tap.raw_last = logits.clone()
            result = original(self, logits, sampling_metadata, *args, **kwargs)
            if _active:
                _active[0].last_tokens = result[0]
            return result

        return wrapper

    _replace(module.Sampler, "sample", sample)


def wrap_top_k_top_p(module: ModuleType, switch: Switch) -> None:
    """Keep the scores after truncation: the native samplers truncate in place, the fused ones keep it to themselves."""
    truncate = module.apply_top_k_top_p
    sampler = module.TopKTopPSampler
    in_place = {sampler.forward_native, getattr(sampler, "forward_cpu", None)}

    def call(original: Any) -> Any:
        def wrapper(self: Any, logits: Any, generators: Any, k: Any, p: Any) -> Any:
            result = original(self, logits, generators, k, p)
            if _active:
                with switch.guard("reading the top-k and top-p sampler"):
                    tap = _active[0]
                    tap.last_top = (k, p)
                    tap.last_scores = logits
                    used = getattr(self.forward, "__func__", None)
                    if not (k is None and p is None) and used not in in_place and not generators:
                        tap.last_scores = truncate(logits.clone(), k, p)
            return result

        return wrapper

    _replace(sampler, "__call__", call)


def wrap_rejection(module: ModuleType, switch: Switch) -> None:
    """Keep the uniforms, the target's distributions, and what was put out."""

    def constraints(original: Any) -> Any:
        def wrapper(logits: Any, cu_num_draft_tokens: Any, sampling_metadata: Any) -> Any:
            if _active:
                with switch.guard("reading the processed logits"):
                    if processed(sampling_metadata) and small_enough(logits):
                        _active[0].processed = logits.clone()
            return original(logits, cu_num_draft_tokens, sampling_metadata)

        return wrapper

    def uniforms(original: Any) -> Any:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            drawn = original(*args, **kwargs)
            if _active:
                _active[0].uniform = drawn
            return drawn

        return wrapper

    def recovered(original: Any) -> Any:
        def wrapper(
            max_spec_len: Any, num_draft_tokens: Any, cu: Any, ids: Any, draft_probs: Any, target_probs: Any,
            *args: Any, **kwargs: Any,
        ) -> Any:  # fmt: skip
            if _active:
                _active[0].target_probs = target_probs
            return original(max_spec_len, num_draft_tokens, cu, ids, draft_probs, target_probs, *args, **kwargs)

        return wrapper

    def rejection(original: Any) -> Any:
        def wrapper(
            ids: Any, counts: Any, max_spec_len: Any, cu: Any, draft_probs: Any, target_logits: Any, *args: Any,
            **kwargs: Any,
        ) -> Any:  # fmt: skip
            output = original(ids, counts, max_spec_len, cu, draft_probs, target_logits, *args, **kwargs)
            if _active:
                _active[0].target_scores = target_logits
                _active[0].output = output
            return output

        return wrapper

    _replace(module, "apply_sampling_constraints", constraints)
    _replace(module, "generate_uniform_probs", uniforms)
    _replace(module, "sample_recovered_tokens", recovered)
    _replace(module, "rejection_sample", rejection)


def wrap_proposer(module: ModuleType, switch: Switch) -> None:
    """Compare the draft's distribution with its own logits: vLLM gives a draft the temperature and nothing else."""

    def sample(original: Any) -> Any:
        def wrapper(self: Any, logits: Any, sampling_metadata: Any) -> Any:
            raw: Any = None
            own: Any = None
            if switch.on and _proposing and not sampling_metadata.all_greedy:
                with switch.guard("reading the draft's logits"):
                    own = sampling_metadata.temperature
                    if own is not None and own.shape[0] == logits.shape[0] and small_enough(logits):
                        raw = _proposing[0].scratch.get("draft", logits, logits.dtype).copy_(logits)
            tokens, probs = original(self, logits, sampling_metadata)
            if raw is not None and probs is not None:
                with switch.guard("comparing the draft's distribution"):
                    instrument = _proposing[0]
                    instrument.draft_facts.append(draft_facts(raw, own, logits, probs, tokens, instrument.scratch))
            return tokens, probs

        return wrapper

    _replace(module.SpecDecodeBaseProposer, "_sample_from_logits", sample)


def wrap_runner(module: ModuleType, switch: Switch, settings: Settings) -> None:
    """Name the rows of the batch, time the phases, and let the capture ride on the step's output."""
    runner_class = module.GPUModelRunner

    def instrument_of(runner: Any) -> Instrument | None:
        if not switch.on or runner.speculative_config is None:
            return None
        found: Instrument | None = getattr(runner, ATTRIBUTE, None)
        if found is None and not hasattr(runner, ATTRIBUTE):
            # Every tensor-parallel rank draws the same tokens; the one whose output the scheduler reads tells of them.
            first = module.get_tp_group().rank_in_group == 0
            found = Instrument(runner.device, settings.top) if first else None
            setattr(runner, ATTRIBUTE, found)
        return found

    def init(original: Any) -> Any:
        def wrapper(self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            if (
                switch.on
                and self.speculative_config is not None
                and host.measurable(torch.empty(0, device=self.device))
            ):
                with switch.guard("compiling"):
                    host.compile_for(self.dtype)

        return wrapper

    def execute_model(original: Any) -> Any:
        def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
            with switch.guard("starting the clock"):
                instrument = instrument_of(self)
                if instrument is not None:
                    instrument.begin_step()
            return original(self, *args, **kwargs)

        return wrapper

    def sample(original: Any) -> Any:
        def wrapper(self: Any, logits: Any, spec_decode_metadata: Any) -> Any:
            tap = None
            with switch.guard("preparing a step"):
                instrument = instrument_of(self)
                if instrument is not None and logits is not None:
                    instrument.clock.mark("sampling begins")
                    tap = _open(self, instrument, logits, spec_decode_metadata, settings)
            if tap is None:
                return original(self, logits, spec_decode_metadata)
            _active.append(tap)
            try:
                output = original(self, logits, spec_decode_metadata)
            finally:
                _active.clear()
            with switch.guard("measuring a step"):
                assert instrument is not None
                instrument.clock.mark("sampling ends")
                instrument.capture = instrument.finish(
                    tap, spec_decode_metadata, self.input_batch.sampling_metadata, logits, tap.draft_probs
                )
            return output

        return wrapper

    def draft_probs(original: Any) -> Any:
        def wrapper(self: Any, spec_decode_metadata: Any) -> Any:
            probs = original(self, spec_decode_metadata)
            if _active and probs is not None:
                with switch.guard("matching draft distributions to requests"):
                    _active[0].draft_probs = probs
                    facts = getattr(self, ATTRIBUTE).draft_facts
                    if len(facts) >= max(spec_decode_metadata.num_draft_tokens):
                        deviations, entropies = zip(*facts, strict=True)
                        _active[0].draft_deviation = _rows_of_candidates(self, spec_decode_metadata, deviations)
                        _active[0].draft_entropy = _rows_of_candidates(self, spec_decode_metadata, entropies)
            return probs

        return wrapper

    def propose(original: Any) -> Any:
        def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
            instrument = getattr(self, ATTRIBUTE, None)
            if not switch.on or instrument is None:
                return original(self, *args, **kwargs)
            instrument.draft_facts = []
            instrument.clock.mark("propose begins")
            _proposing.append(instrument)
            try:
                proposed = original(self, *args, **kwargs)
            finally:
                _proposing.clear()
            instrument.clock.mark("propose ends")
            return proposed

        return wrapper

    def sample_tokens(original: Any) -> Any:
        def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
            output = original(self, *args, **kwargs)
            with switch.guard("handing a step over"):
                instrument = getattr(self, ATTRIBUTE, None)
                if instrument is not None and instrument.capture is not None:
                    inner = getattr(output, "_model_runner_output", output)
                    if hasattr(inner, "req_id_to_index"):
                        setattr(inner, ATTRIBUTE, instrument.capture)
                    instrument.capture = None
            return output

        return wrapper

    _replace(runner_class, "__init__", init)
    _replace(runner_class, "execute_model", execute_model)
    _replace(runner_class, "_sample", sample)
    _replace(runner_class, "_get_spec_decode_draft_probs", draft_probs)
    _replace(runner_class, "propose_draft_token_ids", propose)
    _replace(runner_class, "sample_tokens", sample_tokens)


def _open(runner: Any, instrument: Instrument, logits: Any, metadata: Any, settings: Settings) -> StepTap | None:
    batch = runner.input_batch
    request_ids = batch.req_ids.copy()
    chosen = [i for i, name in enumerate(request_ids) if settings.chosen(name)]
    if not chosen:
        return None
    k = batch.top_k_cpu[: len(request_ids)]
    limited = k[k < logits.shape[-1]]
    tap = StepTap(request_ids, chosen, int(np.max(limited)) if limited.size else 0)
    # In float32 the plain sampler works on the model's own logits in place.
    in_place = metadata is None and logits.dtype == torch.float32
    tap.copy_last = in_place or processed(batch.sampling_metadata)
    return tap


def _rows_of_candidates(runner: Any, metadata: Any, steps: Sequence[Any]) -> Any:
    """(candidates,) from one (batch,) tensor a draft step, in the order in which vLLM gathers the distributions."""
    table = torch.stack(tuple(steps), dim=1)
    row = {name: place for place, name in enumerate(runner._draft_prob_req_ids)}
    counts = zip(runner.input_batch.req_ids, metadata.num_draft_tokens, strict=False)
    return torch.cat([table[row[name], :count] for name, count in counts if count])
