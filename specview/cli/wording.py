"""Short phrases that several commands print."""

from __future__ import annotations

from specview.text import showable
from specview.trace.reader import TraceReader
from specview.trace.records import RunRecord

LONGEST_NAME = 60


def count(number: int, thing: str) -> str:
    """`1 round`, `1,234 rounds`."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def warn(reader: TraceReader) -> None:
    """Say on stderr what a trace may lack."""
    if reader.warning is not None:
        from specview.cli import say

        say(f"{reader.path}: {reader.warning}.")


def model_name(name: str | None) -> str:
    """The last part of a model's path or hub id; `?` when it was not recorded."""
    return "?" if name is None else showable(name.rstrip("/").rpartition("/")[2] or name, limit=LONGEST_NAME)


def run_title(run: RunRecord) -> str:
    """One line that names a run: the pair, the settings, the machine, how it ended."""
    info = run.info
    parts = [f"{model_name(info.target)} ◂ {model_name(info.draft)}"]
    if info.gamma is not None:
        parts.append(f"γ {info.gamma}")
    if info.sampling is not None:
        parts.append("greedy" if info.sampling.greedy else f"T {info.sampling.temperature:g}")
    device = " ".join(showable(p, limit=LONGEST_NAME) for p in (info.device, info.target_dtype) if p)
    if device:
        parts.append(device)
    if info.seed is not None:
        parts.append(f"seed {info.seed}")
    parts.append(run.status if run.message is None else f"{run.status}: {showable(run.message, limit=200)}")
    return " · ".join(parts)
