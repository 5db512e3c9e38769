"""The statements behind the writer: each method adds or changes rows on a connection whose transaction is open."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence

from engine.round import FINAL_STATUSES, Cost, Round, RunInfo, Status, StopReason, VocabEntry
from engine.round import Sequence as Prompt
from specview.trace import encode, process

_INSERT_ROUND = encode.insert("rounds", encode.ROUND_COLUMNS)
_INSERT_POSITION = encode.insert("positions", encode.POSITION_COLUMNS)
_INSERT_TOKEN = encode.insert("tokens", encode.TOKEN_COLUMNS)
_INSERT_VOCAB = encode.insert("vocab", encode.VOCAB_COLUMNS, or_ignore=True)
_INSERT_RUN = encode.insert("runs", ("id", "status", "created", "host", "pid", "process_start", *encode.RUN_COLUMNS))
_UPDATE_RUN = f"UPDATE runs SET {', '.join(f'{c} = ?' for c in encode.RUN_COLUMNS)} WHERE id = ?"


class RowWriter:
    """Turns what the engine hands over into rows. Rounds are gathered, and written by `flush`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._rounds: list[encode.Row] = []
        self._positions: list[encode.Row] = []
        self._tokens: list[encode.Row] = []
        self._length: dict[int, int] = {}

    def last_ids(self) -> dict[str, int]:
        """Table → highest id in use."""
        return {
            table: int(self._connection.execute(f"SELECT coalesce(max(id), 0) FROM {table}").fetchone()[0])
            for table in ("runs", "sequences", "rounds")
        }

    def insert_run(self, run: int, info: RunInfo, created: str) -> None:
        mark = process.current()
        row = (run, "loading", created, mark.host, mark.pid, mark.start, *encode.run_row(info))
        self._connection.execute(_INSERT_RUN, row)

    def update_info(self, run: int, info: RunInfo) -> None:
        self._connection.execute(_UPDATE_RUN, (*encode.run_row(info), run))

    def update_status(self, run: int, status: Status, message: str | None, now: str) -> None:
        self._connection.execute(
            "UPDATE runs SET status = ?, message = ?, finished = ? WHERE id = ?",
            (status, encode.text(message), now if status in FINAL_STATUSES else None, run),
        )

    def update_baseline(
        self, run: int, ms_per_token: float, tokens: int, ids: Sequence[int], sequence: int | None
    ) -> None:
        self._connection.execute(
            "UPDATE runs SET baseline_ms_per_token = ?, baseline_tokens = ? WHERE id = ?",
            (encode.real(ms_per_token), tokens, run),
        )
        if sequence is not None:
            self._connection.execute(
                "UPDATE sequences SET baseline_ids = ? WHERE id = ?", (json.dumps(list(ids)), sequence)
            )

    def insert_costs(self, run: int, costs: Iterable[Cost]) -> None:
        self._connection.executemany(
            "INSERT OR REPLACE INTO costs (run_id, positions, target_ns, draft_ns, context) VALUES (?, ?, ?, ?, ?)",
            [(run, c.positions, c.target_ns, c.draft_ns, c.context) for c in costs],
        )

    def insert_sequence(self, sequence: int, run: int, seq: Prompt) -> None:
        length = len(seq.prompt_ids) if seq.prompt_length is None else seq.prompt_length
        self._length[sequence] = length
        self._connection.execute(
            "INSERT INTO sequences (id, run_id, sequence_index, request_id, prompt, prompt_tokens, target_prefill_ns,"
            " draft_prefill_ns, target_prefill_calls) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                sequence, run, seq.index, encode.text(seq.request_id), encode.text(seq.prompt), length,
                seq.target_prefill_ns, seq.draft_prefill_ns, seq.target_prefill_calls,
            ),
        )  # fmt: skip
        self._connection.executemany(
            _INSERT_TOKEN, [(sequence, i, token, "prompt", None) for i, token in enumerate(seq.prompt_ids)]
        )

    def add_round(self, round_id: int, sequence: int, round_: Round) -> None:
        # A committed token's place is counted here, not taken from the round: a broken engine's wrong lengths are
        # evidence for clause C11, and must not collide.
        self._rounds.append(encode.round_row(round_id, sequence, round_))
        self._positions += [encode.position_row(round_id, p) for p in round_.positions]
        place = self._length[sequence]
        for token, origin in round_.committed:
            self._tokens.append((sequence, place, token, origin, round_id))
            place += 1
        self._length[sequence] = place

    def update_stop_reason(self, sequence: int, stop_reason: StopReason) -> None:
        self._length.pop(sequence, None)
        self._connection.execute("UPDATE sequences SET stop_reason = ? WHERE id = ?", (stop_reason, sequence))

    def insert_vocab(self, run: int, entries: Iterable[VocabEntry]) -> None:
        self._connection.executemany(_INSERT_VOCAB, encode.vocab_rows(run, entries))

    def flush(self) -> None:
        """Insert the rounds gathered so far."""
        self._connection.executemany(_INSERT_ROUND, self._rounds)
        self._connection.executemany(_INSERT_POSITION, self._positions)
        self._connection.executemany(_INSERT_TOKEN, self._tokens)
        self.drop()

    def drop(self) -> None:
        """Forget the rounds gathered so far."""
        self._rounds.clear()
        self._positions.clear()
        self._tokens.clear()
