"""A writer that writes nothing: what a rank that does not record hands its rounds to."""

from __future__ import annotations

from collections.abc import Iterable

from engine.round import Cost, Round, RunInfo, Sequence, Status, StopReason, VocabEntry


class SilentWriter:
    """Takes what a `TraceWriter` takes, and forgets it."""

    def begin_run(self, info: RunInfo) -> int:
        return 0

    def update_info(self, info: RunInfo) -> None: ...

    def set_status(self, status: Status, message: str | None = None) -> None: ...

    def set_baseline(
        self, ms_per_token: float, tokens: int, ids: tuple[int, ...], sequence: int | None = None
    ) -> None: ...

    def add_costs(self, costs: Iterable[Cost]) -> None: ...

    def begin_sequence(self, seq: Sequence) -> int:
        return 0

    def add_round(self, sequence: int, round: Round) -> None: ...

    def end_sequence(self, sequence: int, stop_reason: StopReason) -> None: ...

    def add_vocab(self, entries: Iterable[VocabEntry]) -> None: ...

    def close(self, status: Status, message: str | None = None) -> None: ...

    def discard(self) -> None: ...
