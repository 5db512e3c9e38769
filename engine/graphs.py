"""Steps that are recorded once on the GPU as CUDA graphs, and replayed with one launch each.

A forward over a handful of positions is some hundred small kernels, and launching them takes the host longer than the
device needs to run them. A graph replays the launches; it also replays every address and every host value that they
had, so that a step to be captured works on tensors alone, never asks the host, and may run twice in a row without harm.

Nothing is trusted: each replay is compared with the step itself when it is captured, and the first failure turns all
later steps back into ordinary calls. `failure` then says why.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.rounding import near

Tensors = tuple[Tensor, ...]
Step = Callable[..., Tensors]
Replay = Callable[[], None]
Capture = Callable[[Callable[[], Tensors]], tuple[Replay, Tensors]]
"""Runs a step once under observation → (what replays it, the outputs that a replay fills)."""

WARM_UPS = 2
"""Calls before a capture: libraries choose kernels and allocate workspaces at the first ones."""


@dataclass(frozen=True, slots=True)
class _Captured:
    step: Step
    """Held because the graph knows only the addresses of what it closes over."""
    inputs: Tensors
    outputs: Tensors
    replay: Replay


class Graphs:
    """The captured steps of one model or loop.

    Attributes:
        failure: why steps are called instead of replayed; None as long as every capture held.
    """

    def __init__(self, capture: Capture) -> None:
        self.failure: str | None = None
        self._capture = capture
        self._captured: dict[Hashable, _Captured] = {}

    def run(self, key: Hashable, step: Step, *inputs: Tensor) -> Tensors:
        """`step(*inputs)`, captured at the first call with this key and these shapes.

        The outputs are overwritten by the next call with the same key. An input that is the output of another captured
        step is read where it lies; the others are copied to where the graph looks for them.

        Args:
            key: everything that the step depends on besides the inputs' values.
        """
        if self.failure is not None:
            return step(*inputs)
        key = (key, *(tuple(tensor.shape) for tensor in inputs))
        found = self._captured.get(key)
        if found is None:
            return self._record(key, step, inputs)
        for place, given in zip(found.inputs, inputs, strict=True):
            if place.data_ptr() != given.data_ptr():
                place.copy_(given)
        found.replay()
        return found.outputs

    def holds(self, key: Hashable, *shapes: tuple[int, ...]) -> bool:
        """Whether a call with this key and inputs of these shapes would be a replay."""
        return (key, *shapes) in self._captured

    def clear(self) -> None:
        """Forget all steps, because memory that they use is about to be replaced."""
        self._captured.clear()

    def _record(self, key: Hashable, step: Step, inputs: Tensors) -> Tensors:
        own = {output.data_ptr() for captured in self._captured.values() for output in captured.outputs}
        places = tuple(x if x.numel() and x.data_ptr() in own else x.clone() for x in inputs)
        try:
            expected = [tuple(x.clone() for x in step(*places)) for _ in range(WARM_UPS)][-1]
            replay, outputs = self._capture(lambda: step(*places))
            replay()
        except RuntimeError as error:
            self.failure = str(error).splitlines()[0] if str(error) else type(error).__name__
            self._captured.clear()
            return step(*inputs)
        if not all(map(_agree, outputs, expected)):
            self.failure = "a replayed graph computed something else than the step that it was captured from"
            self._captured.clear()
            return expected
        self._captured[key] = _Captured(step, places, outputs, replay)
        return outputs


def _agree(ours: Tensor, theirs: Tensor) -> bool:
    """Floats up to what another choice of kernel rounds, all else exactly."""
    return near(ours, theirs) if ours.is_floating_point() else bool(torch.equal(ours, theirs))


def on_cuda(device: torch.device) -> Capture:
    """Captures CUDA graphs, each with memory of its own.

    The capture raises RuntimeError where the step synchronises, or does something else that a graph cannot hold.
    """

    def capture(step: Callable[[], Tensors]) -> tuple[Replay, Tensors]:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(device), torch.cuda.graph(graph):
            outputs = step()

        def replay() -> None:
            with torch.cuda.device(device):
                graph.replay()

        return replay, outputs

    return capture
