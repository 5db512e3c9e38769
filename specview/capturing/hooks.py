"""Where capture listens inside transformers, and how everything is put back.

Three places know the facts of a round: `_assisted_decoding` (one call of it is one sequence), the candidate generator
that `_get_candidate_generator` returns (asked once a round, told the outcome once a round), and `_speculative_sampling`
(the number of matches before any cut). Each is wrapped, calls what was there before, and changes nothing about it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import transformers
from transformers.generation import utils

from engine.round import StopReason
from specview.capturing.errors import CaptureError
from specview.capturing.recorder import Recorder, current

Opener = Callable[[Any, Any, Any, dict[str, Any]], Recorder | None]
"""(model, generation config, logits processors, other arguments) → a recorder, or None to leave the call alone."""


class Hooks:
    """Listens from `install` to `remove`.

    Raises:
        CaptureError: from `install`, this transformers has no such places.
    """

    def __init__(self, open_recorder: Opener) -> None:
        self._open: Opener | None = open_recorder
        self._wrapped: list[tuple[Any, str, Any, Any]] = []

    def install(self) -> None:
        mixin = utils.GenerationMixin
        places = (
            (mixin, "_assisted_decoding", self._around_decoding),
            (mixin, "_get_candidate_generator", self._around_generator),
            (utils, "_speculative_sampling", self._around_sampling),
        )
        missing = [name for owner, name, _ in places if not hasattr(owner, name)]
        if missing:
            raise CaptureError(
                f"transformers {transformers.__version__} has no {missing[0]}, so capture cannot listen to it; "
                "use transformers 5.24, or record with `specview record`."
            )
        for owner, name, around in places:
            original = vars(owner)[name]
            wrapper = around(original)
            setattr(owner, name, wrapper)
            self._wrapped.append((owner, name, original, wrapper))

    def remove(self) -> None:
        """Put everything back. A place that somebody else wrapped meanwhile keeps their wrapper; ours is then idle."""
        self._open = None
        while self._wrapped:
            owner, name, original, wrapper = self._wrapped.pop()
            if vars(owner)[name] is wrapper:
                setattr(owner, name, original)

    def _around_decoding(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)  # generate looks at the signature
        def _assisted_decoding(
            model: Any,
            input_ids: Any,
            logits_processor: Any,
            stopping_criteria: Any,
            generation_config: Any,
            **rest: Any,
        ) -> Any:
            recorder = None if self._open is None else self._open(model, generation_config, logits_processor, rest)
            call = functools.partial(
                original, model, input_ids, logits_processor, stopping_criteria, generation_config, **rest
            )
            if recorder is None:
                return call()
            reason: StopReason | None = "failed"
            recorder.enter()
            try:
                result = call()
                reason = None
                return result
            except (KeyboardInterrupt, GeneratorExit):
                reason = "interrupted"
                raise
            finally:
                recorder.leave(reason)

        return _assisted_decoding

    def _around_generator(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def _get_candidate_generator(model: Any, *args: Any, **kwargs: Any) -> Any:
            generator = original(model, *args, **kwargs)
            recorder = current()
            if recorder is not None:
                recorder.watch(generator)
            return generator

        return _get_candidate_generator

    def _around_sampling(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def _speculative_sampling(*args: Any, **kwargs: Any) -> Any:
            valid_tokens, matches = original(*args, **kwargs)
            recorder = current()
            if recorder is not None:
                recorder.sampled(matches)
            return valid_tokens, matches

        return _speculative_sampling
