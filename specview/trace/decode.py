"""Rows to dataclasses. SQLite lets any value stand in any column: what a damaged file holds is refused here, by name.

Every function raises `DamagedValueError` for a value of the wrong type, a count that is negative or absurd, and JSON
that is none.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Callable, Mapping
from typing import Any

from engine.round import Alternatives, Cost, PhaseTimes, Position, Round, RunInfo, Sampling, VocabEntry
from specview.trace import encode
from specview.trace.records import SequenceRecord

LARGEST_COUNT = 2**31
"""Tokens or positions. No cache or vocabulary comes near it; a view that drew so many slots would never end."""

LONGEST_JSON = 2**22
"""Characters. Parsed, JSON takes up to thirty times as much memory; a bias for every token id of a vocabulary fits."""


class DamagedValueError(ValueError):
    """A value that no version of the format allows; the message names its column."""


def _int(value: Any) -> bool:
    return value is None or type(value) is int


def _key(value: Any) -> bool:
    return type(value) is int


def _count(value: Any) -> bool:
    return value is None or (type(value) is int and 0 <= value <= LARGEST_COUNT)


def _needed_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= LARGEST_COUNT


def _real(value: Any) -> bool:
    return value is None or type(value) in (float, int) or value == encode.NOT_A_NUMBER


def _text(value: Any) -> bool:
    return value is None or type(value) is str


def _one_of(*names: str | None) -> Callable[[Any], bool]:
    allowed = frozenset(names)
    return lambda value: (value is None or type(value) is str) and value in allowed


_FATE = _one_of(None, "accepted", "rejected", "discarded", "cut")
_ORIGIN = _one_of("prompt", "accepted", "correction", "bonus", "target")
_STATUS = _one_of("loading", "running", "finished", "interrupted", "failed")
_STOP = _one_of(None, "eos", "length", "stop", "interrupted", "failed")
_CUT = _one_of(None, "eos", "length", "stop")
_KIND = _one_of(None, "correction", "bonus", "target")

_SPECIAL: dict[str, Callable[[Any], bool]] = {
    "id": _key, "sequence_id": _key, "round_id": _key, "run_id": _key, "round_index": _needed_count,
    "position": _needed_count, "proposed": _needed_count, "accepted": _needed_count,
    "committed_before": _needed_count, "committed_after": _needed_count, "fate": _FATE, "cut": _CUT,
    "correction_kind": _KIND, "draft_stop": _text, "draft_top": _text, "target_top": _text,
}  # fmt: skip
_REALS = frozenset(
    (
        "correction_prob",
        "correction_target_prob",
        "correction_draft_prob",
        "residual_mass",
        "draft_prob",
        "target_prob",
        "u",
        "overlap",
        "draft_entropy",
        "target_entropy",
        "draft_deviation",
        "target_deviation",
    )
)


def _check_for(column: str) -> Callable[[Any], bool]:
    if column in _SPECIAL:
        return _SPECIAL[column]
    if column in _REALS:
        return _real
    return _int if column.endswith("_ns") else _count


_ROUND_CHECKS = tuple(_check_for(c) for c in encode.ROUND_COLUMNS)
_POSITION_CHECKS = tuple(_check_for(c) for c in encode.POSITION_COLUMNS)


def _validate(
    table: str, columns: tuple[str, ...], checks: tuple[Callable[[Any], bool], ...], row: tuple[Any, ...]
) -> None:
    for column, check, value in zip(columns, checks, row, strict=True):
        if not check(value):
            raise DamagedValueError(f"{table}.{column} holds {_shorten(value)}")


def _shorten(value: object) -> str:
    if isinstance(value, bytes):
        return f"{len(value)} bytes that belong elsewhere"
    shown = repr(value[:40]) if isinstance(value, str) else repr(value)
    return f"the impossible value {shown}"


def real(value: Any) -> float | None:
    """A REAL as written by `encode.real`: NaN comes back as NaN."""
    if value is None or type(value) is float:
        return value
    return math.nan if value == encode.NOT_A_NUMBER else float(value)


def round_(row: tuple[Any, ...], positions: tuple[Position, ...], committed: tuple[Any, ...]) -> Round:
    """A row of `encode.ROUND_COLUMNS` with what belongs to it."""
    _validate("rounds", encode.ROUND_COLUMNS, _ROUND_CHECKS, row)
    (
        _, _, index, gamma, proposed, judged, accepted, token, kind, prob, target_prob, draft_prob, residual, fallback,
        cut, stop, before, after, tkv_before, tkv_written, tkv_after, dkv_before, dkv_written, dkv_after, start,
        propose, score, accept, rollback, record, wall, target_calls, draft_calls,
    ) = row  # fmt: skip
    return Round(
        index, gamma, proposed, judged, accepted, before, after, committed, positions, token, kind, real(prob),
        real(target_prob), real(draft_prob), real(residual), bool(fallback), cut, stop, tkv_before, tkv_written,
        tkv_after, dkv_before, dkv_written, dkv_after, target_calls, draft_calls,
        PhaseTimes(start, propose, score, accept, rollback, record, wall),
    )  # fmt: skip


def position(row: tuple[Any, ...]) -> Position:
    """A row of `encode.POSITION_COLUMNS`."""
    _validate("positions", encode.POSITION_COLUMNS, _POSITION_CHECKS, row)
    (
        _, place, candidate, draft_prob, target_prob, u, fate, overlap, draft_entropy, target_entropy, rank, draft_top,
        target_top, parent, draft_deviation, target_deviation,
    ) = row  # fmt: skip
    return Position(
        place, candidate, real(draft_prob), real(target_prob), real(u), fate, real(overlap), real(draft_entropy),
        real(target_entropy), rank, alternatives(draft_top), alternatives(target_top), parent, real(draft_deviation),
        real(target_deviation),
    )  # fmt: skip


def alternatives(text: str | None) -> Alternatives:
    """JSON array of [token id, probability]; a null probability was no number."""
    if text is None:
        return ()
    pairs = _json("positions", "top alternatives", text, list)
    try:
        return tuple((_token(token), math.nan if prob is None else float(prob)) for token, prob in pairs)
    except (TypeError, ValueError, OverflowError):
        raise DamagedValueError(f"positions' top alternatives hold {_shorten(text)}") from None


def _token(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= LARGEST_COUNT:
        raise ValueError("no token id")
    return value


def origin(value: Any) -> Any:
    """How a token came to be committed, one of `Origin`."""
    if not _ORIGIN(value):
        raise DamagedValueError(f"tokens.origin holds {_shorten(value)}")
    return value


def token(value: Any, place: str = "tokens.token") -> int:
    """A token id; `place` is the column that it stands in."""
    try:
        return _token(value)
    except ValueError:
        raise DamagedValueError(f"{place} holds {_shorten(value)}") from None


def cost(row: tuple[Any, ...]) -> Cost:
    """(positions, target_ns, draft_ns, context)."""
    columns = ("positions", "target_ns", "draft_ns", "context")
    _validate("costs", columns, (_needed_count, _int, _int, _count), row)
    return Cost(*row)


def key(value: Any, name: str) -> int:
    """A row's id."""
    if not _key(value):
        raise DamagedValueError(f"{name} holds {_shorten(value)}")
    number: int = value
    return number


def durations(row: tuple[Any, ...]) -> tuple[int | None, int | None, int | None]:
    """(target_prefill_ns, draft_prefill_ns, round_ns)."""
    columns = ("target_prefill_ns", "draft_prefill_ns", "round_ns")
    _validate("sequences", columns, (_int, _int, _int), row)
    return row[0], row[1], row[2]


def vocab_entry(row: tuple[Any, ...]) -> VocabEntry:
    """(token, bytes, special)."""
    token_id, data, special = row
    if isinstance(data, str):  # a shell's UPDATE turns bytes into text
        data = data.encode("utf-8", "surrogatepass")
    if not isinstance(data, bytes):
        raise DamagedValueError(f"vocab.bytes holds {_shorten(data)}")
    return VocabEntry(token(token_id, "vocab.token"), data, bool(special))


def sequence(row: sqlite3.Row) -> SequenceRecord:
    """A row of `sequences`."""
    for column, check in (
        ("id", _key), ("run_id", _key), ("sequence_index", _needed_count), ("request_id", _text), ("prompt", _text),
        ("prompt_tokens", _needed_count), ("target_prefill_ns", _int), ("draft_prefill_ns", _int),
        ("target_prefill_calls", _count), ("baseline_ids", _text), ("stop_reason", _STOP),
    ):  # fmt: skip
        if not check(row[column]):
            raise DamagedValueError(f"sequences.{column} holds {_shorten(row[column])}")
    ids = _json("sequences", "baseline_ids", row["baseline_ids"], list)
    return SequenceRecord(
        row["id"], row["run_id"], row["sequence_index"], row["request_id"], row["prompt"], row["prompt_tokens"],
        row["target_prefill_ns"], row["draft_prefill_ns"], row["target_prefill_calls"],
        tuple(token(i, "sequences.baseline_ids") for i in ids), row["stop_reason"],
    )  # fmt: skip


def run_info(row: sqlite3.Row) -> RunInfo:
    """A row of `runs`."""
    key(row["id"], "runs.id")
    for column in ("uuid", "source", "created"):
        if type(row[column]) is not str:
            raise DamagedValueError(f"runs.{column} holds {_shorten(row[column])}")
    if not _STATUS(row["status"]):
        raise DamagedValueError(f"runs.status holds {_shorten(row['status'])}")
    for column in (
        "message", "finished", "draft", "target", "proposer", "device", "device_name", "target_dtype", "draft_dtype",
        "gamma_schedule", "stop", "logit_bias", "versions", "host", "process_start",
    ):  # fmt: skip
        if not _text(row[column]):
            raise DamagedValueError(f"runs.{column} holds {_shorten(row[column])}")
    for column in ("vocab_size", "gamma", "max_new_tokens", "baseline_tokens", "pid"):
        if not _count(row[column]):
            raise DamagedValueError(f"runs.{column} holds {_shorten(row[column])}")
    if not _int(row["seed"]):
        raise DamagedValueError(f"runs.seed holds {_shorten(row['seed'])}")
    if not _real(row["baseline_ms_per_token"]):
        raise DamagedValueError(f"runs.baseline_ms_per_token holds {_shorten(row['baseline_ms_per_token'])}")
    return RunInfo(
        uuid=row["uuid"],
        source=row["source"],
        draft=row["draft"],
        target=row["target"],
        proposer=row["proposer"],
        vocab_size=row["vocab_size"],
        device=row["device"],
        device_name=row["device_name"],
        target_dtype=row["target_dtype"],
        draft_dtype=row["draft_dtype"],
        gamma=row["gamma"],
        gamma_schedule=row["gamma_schedule"],
        sampling=_sampling(row),
        stop=tuple(str(s) for s in _json("runs", "stop", row["stop"], list)),
        max_new_tokens=row["max_new_tokens"],
        seed=row["seed"],
        chat=None if row["chat"] is None else bool(row["chat"]),
        versions={k: str(v) for k, v in _json("runs", "versions", row["versions"], dict).items()},
    )


def _sampling(row: sqlite3.Row) -> Sampling | None:
    if row["temperature"] is None:
        return None
    bias: Mapping[str, Any] = _json("runs", "logit_bias", row["logit_bias"], dict)
    try:
        return Sampling(
            temperature=row["temperature"],
            top_k=row["top_k"] or 0,
            top_p=1.0 if row["top_p"] is None else row["top_p"],
            min_p=row["min_p"] or 0.0,
            repetition_penalty=1.0 if row["repetition_penalty"] is None else row["repetition_penalty"],
            frequency_penalty=row["frequency_penalty"] or 0.0,
            presence_penalty=row["presence_penalty"] or 0.0,
            logit_bias={int(token): float(value) for token, value in bias.items()},
        )
    except (TypeError, ValueError) as error:
        raise DamagedValueError(f"runs' sampling settings are impossible ({error})") from None


def _json(table: str, column: str, text: str | None, kind: type[Any]) -> Any:
    if text is None:
        return kind()
    if len(text) > LONGEST_JSON:
        raise DamagedValueError(f"{table}.{column} holds {len(text):,} characters of JSON")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise DamagedValueError(f"{table}.{column} holds broken JSON") from None
    if not isinstance(value, kind):
        raise DamagedValueError(f"{table}.{column} holds JSON of the wrong kind")
    return value
