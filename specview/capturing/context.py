"""`specview.capture(path)`: the context manager."""

from __future__ import annotations

import threading
import warnings
from pathlib import Path
from types import TracebackType
from typing import Any

from engine.round import Status
from specview.capturing.errors import CaptureError, CaptureWarning
from specview.capturing.hooks import Hooks
from specview.capturing.session import Session
from specview.trace.writer import TraceWriter

_one_at_a_time = threading.Lock()
_active: Path | None = None


class Capture:
    """Records every assisted `generate` call that any thread makes while the block runs.

    The generation is left as it is: same tokens, same random state, and an error of the recording is raised at the end
    of the block, never inside `generate`.

    Args:
        path: the trace to write.
        tokenizer: the target's; without one it is looked for among the local files of the model's name.
        force, append: overwrite the file, or add a run to it; otherwise an existing file is refused.

    Raises:
        CaptureError: on entry, another capture is running in this process; at the end, recording had stopped.
        TraceError: on entry, the file exists or cannot be written; at the end, it could not be written.
    """

    def __init__(self, path: str | Path, *, tokenizer: Any = None, force: bool = False, append: bool = False) -> None:
        self.path = Path(path)
        self._tokenizer = tokenizer
        self._force = force
        self._append = append
        self._session: Session | None = None
        self._hooks: Hooks | None = None

    def __enter__(self) -> Capture:
        global _active
        if not _one_at_a_time.acquire(blocking=False):
            raise CaptureError(
                f"A capture into {_active} is already running in this process; its block records the generate calls of "
                "every thread, so leave it before another begins."
            )
        _active = self.path
        try:
            writer = TraceWriter(self.path, force=self._force, append=self._append)
            session = Session(self.path, writer, self._tokenizer)
            hooks = Hooks(session.open)
            try:
                hooks.install()
            except CaptureError:
                session.close("failed", None)
                raise
        except BaseException:
            _active = None
            _one_at_a_time.release()
            raise
        self._session, self._hooks = session, hooks
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        global _active
        session, hooks = self._session, self._hooks
        if session is None or hooks is None:
            return
        self._session = self._hooks = None
        try:
            hooks.remove()
            captured = session.close(*_outcome(error))
        except Exception as failure:
            if error is None:
                raise
            error.add_note(f"specview: {failure}")
            return
        finally:
            _active = None
            _one_at_a_time.release()
        if session.error is not None:
            sentence = f"Recording into {self.path} stopped early: {_told(session.error)}"
            if error is None:
                raise CaptureError(sentence) from session.error
            error.add_note(f"specview: {sentence}")
        elif not captured and error is None:
            warnings.warn(
                "specview: no assisted generation ran inside the capture block, so nothing was written; pass "
                "assistant_model=… or prompt_lookup_num_tokens=… to generate.",
                CaptureWarning,
                stacklevel=2,
            )


def capture(path: str | Path, *, tokenizer: Any = None, force: bool = False, append: bool = False) -> Capture:
    """Record every round of the assisted `generate` calls inside a `with` block; see `Capture`."""
    return Capture(path, tokenizer=tokenizer, force=force, append=append)


def _outcome(error: BaseException | None) -> tuple[Status, str | None]:
    """(status, message) of the run that a block ended with `error` leaves behind."""
    if error is None or (isinstance(error, SystemExit) and not error.code):
        return "finished", None
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", "stopped on request"
    return "failed", _told(error)


def _told(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
