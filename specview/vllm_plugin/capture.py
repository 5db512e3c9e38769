"""What the sampler's process tells the scheduler's process about one step; it rides on the step's own output."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Matrix = list[list[float]]


@dataclass(slots=True)
class StepCapture:
    """One step of a batch. Rows of the matrix: first the candidates of every request in order, then for each request
    the position after its candidates.

    The matrix is still on its way from the device when this is made. It is waited for by whoever reads it: the
    recorder's thread, or pickling, where the scheduler is another process.
    """

    request_ids: tuple[str, ...]
    drafted: tuple[int, ...]
    """Candidates of each request, padding included."""
    top: int
    one_hot: bool
    """No draft distribution reached the sampler: q is one-hot."""
    drew_uniforms: bool
    deviation_of_candidates: bool
    deviation_of_last: bool
    draft_deviation: bool
    fetch: Callable[[], tuple[Matrix, dict[str, int]]] | None
    """Waits for the device; gives the matrix and the phase times in ns."""
    start_ns: int = 0
    """When the step began, on the machine's monotonic clock."""
    _matrix: Matrix = field(default_factory=list)
    _times: dict[str, int] = field(default_factory=dict)

    def matrix(self) -> Matrix:
        """(candidates + requests, `columns.width(top)`)"""
        self._resolve()
        return self._matrix

    def times(self) -> dict[str, int]:
        """ns of the phases propose (the one before this step), score, accept and record."""
        self._resolve()
        return self._times

    def _resolve(self) -> None:
        if self.fetch is not None:
            self._matrix, self._times = self.fetch()
            self.fetch = None

    def __getstate__(self) -> tuple[Any, ...]:
        self._resolve()
        return tuple(getattr(self, name) for name in self.__slots__)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        for name, value in zip(self.__slots__, state, strict=True):
            setattr(self, name, value)
