"""Dataclasses to rows: what each table's INSERT takes, in the order of its columns.

This is the writer's hot path: γ+1 positions and up to γ+1 tokens a round, so rows are built by `attrgetter` and
alternatives are formatted by hand.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import chain
from operator import attrgetter
from typing import Any

from engine.round import Alternatives, Position, Round, RunInfo, Sampling, VocabEntry
from specview.text import showable

Row = tuple[Any, ...]

NOT_A_NUMBER = "nan"
"""SQLite turns a NaN into NULL. As evidence of a broken engine it is kept as this text, and read back as NaN."""

RUN_COLUMNS = (
    "uuid", "source", "draft", "target", "proposer", "vocab_size", "device", "device_name", "target_dtype",
    "draft_dtype", "gamma", "gamma_schedule", "temperature", "top_k", "top_p", "min_p", "repetition_penalty",
    "frequency_penalty", "presence_penalty", "logit_bias", "stop", "max_new_tokens", "seed", "chat", "versions",
)  # fmt: skip
ROUND_FIELDS = (
    "index", "gamma", "proposed", "judged", "accepted", "correction_token", "correction_kind",
    "correction_prob", "correction_target_prob", "correction_draft_prob", "residual_mass",
    "residual_fallback", "cut", "draft_stop", "committed_before", "committed_after", "target_kv_before",
    "target_kv_written", "target_kv_after", "draft_kv_before", "draft_kv_written", "draft_kv_after",
    "times.start_ns", "times.propose_ns", "times.score_ns", "times.accept_ns", "times.rollback_ns",
    "times.record_ns", "times.round_ns", "target_calls", "draft_calls",
)  # fmt: skip
ROUND_COLUMNS = ("id", "sequence_id", "round_index", *(f.removeprefix("times.") for f in ROUND_FIELDS[1:]))
POSITION_COLUMNS = (
    "round_id", "position", "candidate", "draft_prob", "target_prob", "u", "fate", "overlap", "draft_entropy",
    "target_entropy", "rank", "draft_top", "target_top", "parent", "draft_deviation", "target_deviation",
)  # fmt: skip
TOKEN_COLUMNS = ("sequence_id", "position", "token", "origin", "round_id")
VOCAB_COLUMNS = ("run_id", "token", "bytes", "text", "special")

_DRAFT_STOP = ROUND_FIELDS.index("draft_stop") + 2
_round_values = attrgetter(*ROUND_FIELDS)
_ROUND_REALS = tuple(
    ROUND_FIELDS.index(f) + 2
    for f in ("correction_prob", "correction_target_prob", "correction_draft_prob", "residual_mass")
)


def insert(table: str, columns: tuple[str, ...], *, or_ignore: bool = False) -> str:
    """The prepared INSERT of a table."""
    verb = "INSERT OR IGNORE" if or_ignore else "INSERT"
    return f"{verb} INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"


def real(value: float | None) -> float | str | None:
    """A REAL that keeps NaN, which alone differs from itself, apart from NULL."""
    return value if value == value else NOT_A_NUMBER


def run_row(info: RunInfo) -> Row:
    """The values of `RUN_COLUMNS`."""
    return tuple(text(value) if isinstance(value, str) else value for value in _run_values(info))


def _run_values(info: RunInfo) -> Row:
    s = info.sampling
    settings: Row = (None,) * 8 if s is None else _sampling_row(s)
    return (
        info.uuid, info.source, info.draft, info.target, info.proposer, info.vocab_size, info.device,
        info.device_name, info.target_dtype, info.draft_dtype, info.gamma, info.gamma_schedule, *settings,
        json.dumps([text(s) for s in info.stop], ensure_ascii=False) if info.stop else None,
        info.max_new_tokens, info.seed,
        None if info.chat is None else int(info.chat),
        json.dumps({text(k): text(v) for k, v in info.versions.items()}, ensure_ascii=False) if info.versions else None,
    )  # fmt: skip


def _sampling_row(s: Sampling) -> Row:
    bias = json.dumps(logit_bias(s.logit_bias)) if s.logit_bias else None
    return (
        s.temperature, s.top_k, s.top_p, s.min_p, s.repetition_penalty, s.frequency_penalty, s.presence_penalty, bias,
    )  # fmt: skip


def logit_bias(bias: Mapping[int, float]) -> dict[str, float | str]:
    """Token id → logits, JSON-ready. JSON has no infinity, and a bias may forbid a token altogether: "-inf"."""
    return {str(token): value if math.isfinite(value) else str(value) for token, value in bias.items()}


def round_row(round_id: int, sequence_id: int, round_: Round) -> Row:
    """The values of `ROUND_COLUMNS`."""
    row = (round_id, sequence_id, *_round_values(round_))
    if round_.draft_stop is not None or any(row[i] != row[i] for i in _ROUND_REALS):
        values = list(row)
        values[_DRAFT_STOP] = text(values[_DRAFT_STOP])
        for i in _ROUND_REALS:
            values[i] = real(values[i])
        return tuple(values)
    return row


def position_row(round_id: int, p: Position) -> Row:
    """The values of `POSITION_COLUMNS`."""
    return (
        round_id, p.position, p.candidate, real(p.draft_prob), real(p.target_prob), real(p.u), p.fate, real(p.overlap),
        real(p.draft_entropy), real(p.target_entropy), p.rank, alternatives(p.draft_top), alternatives(p.target_top),
        p.parent, real(p.draft_deviation), real(p.target_deviation),
    )  # fmt: skip


@lru_cache(maxsize=256)
def _template(count: int) -> str:
    return "[" + ",".join(["[%d,%.6g]"] * count) + "]"


def alternatives(top: Alternatives) -> str | None:
    """JSON array of [token id, probability to six digits]; None when nothing was recorded."""
    if not top:
        return None
    text = _template(len(top)) % tuple(chain.from_iterable(top))
    # "nan" and "inf" are no JSON; both have an n, and no number has one.
    return text if "n" not in text else text.replace("-inf", "null").replace("inf", "null").replace("nan", "null")


def vocab_rows(run_id: int, entries: Iterable[VocabEntry]) -> list[Row]:
    """The values of `VOCAB_COLUMNS`, one row an entry."""
    return [(run_id, e.token, e.data, showable(e.data), int(e.special)) for e in entries]


def text(value: str | None) -> str | None:
    """Text that SQLite can hold: a lone surrogate has no UTF-8, and is kept as its escape."""
    return None if value is None else value.encode("utf-8", "backslashreplace").decode("utf-8")
