"""When the phases of a step began: on CUDA by events on the stream, elsewhere by the host's clock."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import torch


class StepClock:
    """Marks of one step. Marking never waits; `durations` does, and belongs on a thread that may."""

    def __init__(self, device: torch.device) -> None:
        self._on_stream = device.type == "cuda"
        self._marks: dict[str, Any] = {}
        self.start_ns = time.perf_counter_ns()

    def mark(self, name: str) -> None:
        """The phase that runs up to here is over."""
        if self._on_stream:
            event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            event.record()
            self._marks[name] = event
        else:
            self._marks[name] = time.perf_counter_ns()

    def has(self, name: str) -> bool:
        """Whether this mark was made."""
        return name in self._marks

    def durations(self, phases: Mapping[str, tuple[str, str]]) -> dict[str, int]:
        """Phase → ns between its two marks, for the phases that have both."""
        found = {}
        for phase, (begin, end) in phases.items():
            first, last = self._marks.get(begin), self._marks.get(end)
            if first is None or last is None:
                continue
            if self._on_stream:
                last.synchronize()
                found[phase] = round(first.elapsed_time(last) * 1e6)
            else:
                found[phase] = last - first
        return found
