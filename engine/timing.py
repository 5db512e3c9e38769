"""Phase clocks: perf_counter on the host, CUDA events on a GPU. Nothing here synchronises.

On CUDA the phases before the round's one transfer are timed between events and read after it, when they have long
completed; the phases after it are host work. On other accelerators only the host's clock is there, so time that the
device spends after a call returned shows up in the phase that waits for it, the transfer (`record`).
"""

from __future__ import annotations

import time

import torch

from engine.round import PhaseTimes


class PhaseClock:
    """Times the phases of one round after the other.

    Usage: `begin()`, then `mark(phase)` at the end of each phase, `transferred()` right after the round's transfer,
    `mark` for the host phases behind it, and `finish()`. A phase marked twice adds up.
    """

    def __init__(self, device: torch.device, origin_ns: int | None = None) -> None:
        self._events = device.type == "cuda"
        self._device = device
        self._origin = time.perf_counter_ns() if origin_ns is None else origin_ns
        self._marks: list[tuple[str, int]] = []
        self._device_marks: list[tuple[str, torch.cuda.Event]] = []
        self._begin = self._origin
        self._on_device = False

    def begin(self) -> None:
        self._marks.clear()
        self._device_marks.clear()
        self._begin = time.perf_counter_ns()
        self._on_device = self._events
        if self._on_device:
            self._record_event("")
        self._marks.append(("", self._begin))

    def mark(self, phase: str) -> None:
        """The phase that ran since the last mark ends here."""
        if self._on_device:
            self._record_event(phase)
        else:
            self._marks.append((phase, time.perf_counter_ns()))

    def transferred(self) -> None:
        """The round's transfer is done: the events before it have completed, and what follows is host work."""
        if self._on_device:
            # No event here: it could still be pending when it is read, and waiting for it would synchronise again.
            self._on_device = False
            self._marks.append(("", time.perf_counter_ns()))
        else:
            self.mark("record")

    def finish(self) -> PhaseTimes:
        """End the round; what ran since the last mark counts as `record`."""
        self.mark("record")
        spent = {"propose": 0, "score": 0, "accept": 0, "rollback": 0, "record": 0}
        for (_, start), (phase, end) in zip(self._marks, self._marks[1:], strict=False):
            if phase:
                spent[phase] += end - start
        for (_, first), (phase, second) in zip(self._device_marks, self._device_marks[1:], strict=False):
            spent[phase] += int(first.elapsed_time(second) * 1e6)
        wall = self._marks[-1][1] - self._begin
        return PhaseTimes(
            start_ns=self._begin - self._origin,
            propose_ns=spent["propose"],
            score_ns=spent["score"],
            accept_ns=spent["accept"],
            rollback_ns=spent["rollback"],
            record_ns=spent["record"],
            round_ns=max(wall, sum(spent.values())),  # two clocks on CUDA: their rounding must not break the order
        )

    def _record_event(self, phase: str) -> None:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self._device))
        self._device_marks.append((phase, event))
