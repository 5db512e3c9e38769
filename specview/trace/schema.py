"""The trace file's schema: the one place that names its tables, columns, units and versions.

The DDL is literal and append-only: a released migration never changes, a new version adds one at the end. SQLite keeps
the comments in `sqlite_master`, so `.schema` in any SQL shell explains each column, and `traces/README.md` is generated
from the same comments (`column_docs`).
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

APPLICATION_ID = 0x53505657  # "SPVW": `file` and SQLite's own tools can tell a trace from any other database

_V1 = """
CREATE TABLE runs (
  id INTEGER PRIMARY KEY,       -- one pair with one configuration
  uuid TEXT NOT NULL UNIQUE,    -- the same in every copy of the run
  source TEXT NOT NULL,         -- who ran the loop: engine, transformers, vllm, llama.cpp, …
  status TEXT NOT NULL,         -- loading, running, finished, interrupted, failed
  message TEXT,                 -- what it is doing, or why it ended; one sentence
  created TEXT NOT NULL,        -- UTC, ISO 8601
  finished TEXT,                -- UTC, ISO 8601
  host TEXT,                    -- machine that writes the run
  pid INTEGER,                  -- process that writes the run
  process_start TEXT,           -- mark that tells this process from a later one with the same pid
  draft TEXT,                   -- draft model or proposer, as asked for
  target TEXT,                  -- target model, as asked for
  proposer TEXT,                -- draft-model, prompt-lookup, self, …
  vocab_size INTEGER,           -- tokens · size of the distributions p and q
  device TEXT,                  -- torch device of the target
  device_name TEXT,             -- its hardware name
  target_dtype TEXT,            -- parameter type of the target
  draft_dtype TEXT,             -- parameter type of the draft
  gamma INTEGER,                -- tokens · candidates asked for in a round
  gamma_schedule TEXT,          -- fixed, auto, …
  temperature REAL,             -- 0 = greedy
  top_k INTEGER,                -- tokens · 0 = off
  top_p REAL,                   -- probability · 1 = off
  min_p REAL,                   -- probability · 0 = off
  repetition_penalty REAL,      -- factor · 1 = off
  frequency_penalty REAL,       -- logits · 0 = off
  presence_penalty REAL,        -- logits · 0 = off
  logit_bias TEXT,              -- JSON object: token id → logits
  stop TEXT,                    -- JSON array of stop strings
  max_new_tokens INTEGER,       -- tokens · length limit of a sequence's output
  seed INTEGER,                 -- seed of the run's one random generator
  chat INTEGER,                 -- 1 = prompts went through the chat template
  versions TEXT,                -- JSON object: package → version
  baseline_ms_per_token REAL,   -- ms · median step of plain decoding with the target, measured in this run
  baseline_tokens INTEGER       -- tokens · length of that plain decoding
);
CREATE TABLE sequences (
  id INTEGER PRIMARY KEY,       -- one prompt
  run_id INTEGER NOT NULL REFERENCES runs(id), -- the run it belongs to
  sequence_index INTEGER NOT NULL, -- 0, 1, … within the run
  request_id TEXT,              -- the name the source gave to it
  prompt TEXT,                  -- prompt as given; its ids are rows of tokens with origin prompt
  prompt_tokens INTEGER NOT NULL, -- tokens · length of the prompt
  target_prefill_ns INTEGER,    -- ns · target forward over the prompt
  draft_prefill_ns INTEGER,     -- ns · draft forward over the prompt
  target_prefill_calls INTEGER, -- target forwards before the first round
  baseline_ids TEXT,            -- JSON array: token ids of the plain decoding measured on this prompt
  stop_reason TEXT,             -- eos, length, stop, interrupted, failed; NULL while it grows
  UNIQUE (run_id, sequence_index)
);
CREATE TABLE rounds (
  id INTEGER PRIMARY KEY,       -- one verify step
  sequence_id INTEGER NOT NULL REFERENCES sequences(id), -- the sequence it belongs to
  round_index INTEGER NOT NULL, -- 0, 1, … within the sequence
  gamma INTEGER,                -- tokens · γ in force
  proposed INTEGER NOT NULL,    -- tokens · candidates proposed, at most γ
  judged INTEGER,               -- tokens · accepted + rejected
  accepted INTEGER NOT NULL,    -- tokens · before any end-of-text, stop or length cut
  correction_token INTEGER,     -- token id drawn by the target at the end of the round; NULL after a cut
  correction_kind TEXT,         -- correction (from the residual), bonus (all accepted), target (nothing proposed)
  correction_prob REAL,         -- probability · of that token under the distribution it was drawn from
  correction_target_prob REAL,  -- probability · of that token under p
  correction_draft_prob REAL,   -- probability · of that token under q
  residual_mass REAL,           -- probability · Σ max(0, p − q) at the rejected position
  residual_fallback INTEGER NOT NULL DEFAULT 0, -- 1 = residual numerically zero, drawn from p
  cut TEXT,                     -- eos, length, stop: what ended the sequence inside the accepted block
  draft_stop TEXT,              -- why fewer than γ candidates were proposed
  committed_before INTEGER NOT NULL, -- tokens · prompt and output before the round
  committed_after INTEGER NOT NULL,  -- tokens · after the round
  target_kv_before INTEGER,     -- positions · target cache before the round
  target_kv_written INTEGER,    -- positions · written by the round's forward
  target_kv_after INTEGER,      -- positions · after rollback
  draft_kv_before INTEGER,      -- positions · draft cache before the round
  draft_kv_written INTEGER,     -- positions · written while proposing
  draft_kv_after INTEGER,       -- positions · after rollback
  start_ns INTEGER,             -- ns · from the start of the run's clock
  propose_ns INTEGER,           -- ns · drafting
  score_ns INTEGER,             -- ns · the target's forward
  accept_ns INTEGER,            -- ns · test, residual, draw
  rollback_ns INTEGER,          -- ns · both caches
  record_ns INTEGER,            -- ns · the instrument itself
  round_ns INTEGER,             -- ns · wall time, at least the sum of the phases
  target_calls INTEGER,         -- target forwards
  draft_calls INTEGER,          -- draft forwards
  UNIQUE (sequence_id, round_index)
);
CREATE TABLE positions (
  round_id INTEGER NOT NULL REFERENCES rounds(id), -- the round it belongs to
  position INTEGER NOT NULL,    -- 1 … γ+1
  candidate INTEGER,            -- token id proposed; NULL at γ+1
  draft_prob REAL,              -- probability · q(candidate)
  target_prob REAL,             -- probability · p(candidate)
  u REAL,                       -- uniform draw on [0, 1); NULL when not judged, greedy, or unknown
  fate TEXT,                    -- accepted, rejected, discarded, cut
  overlap REAL,                 -- probability · Σ min(p, q)
  draft_entropy REAL,           -- nats
  target_entropy REAL,          -- nats
  rank INTEGER,                 -- place of the candidate in p, 1 = most probable
  draft_top TEXT,               -- JSON array of [token id, probability], best first
  target_top TEXT,              -- JSON array of [token id, probability], best first
  parent INTEGER,               -- position of the parent in a draft tree; NULL in a chain
  draft_deviation REAL,         -- probability · largest |q − q′|, q′ from the raw logits under the settings asked for
  target_deviation REAL,        -- probability · likewise for p
  PRIMARY KEY (round_id, position)
) WITHOUT ROWID;
CREATE TABLE tokens (
  sequence_id INTEGER NOT NULL REFERENCES sequences(id), -- the sequence it belongs to
  position INTEGER NOT NULL,    -- 0, 1, … in the sequence, prompt included
  token INTEGER NOT NULL,       -- token id
  origin TEXT NOT NULL,         -- prompt, accepted, correction, bonus, target
  round_id INTEGER REFERENCES rounds(id), -- the round that committed it; NULL for the prompt
  PRIMARY KEY (sequence_id, position)
) WITHOUT ROWID;
CREATE TABLE costs (
  run_id INTEGER NOT NULL REFERENCES runs(id), -- the run it belongs to
  positions INTEGER NOT NULL,   -- positions scored by one forward
  target_ns INTEGER,            -- ns · median
  draft_ns INTEGER,             -- ns · median
  context INTEGER,              -- tokens · cache length when measured
  PRIMARY KEY (run_id, positions)
) WITHOUT ROWID;
CREATE TABLE vocab (
  run_id INTEGER NOT NULL REFERENCES runs(id), -- the run it belongs to
  token INTEGER NOT NULL,       -- token id that occurs in the run
  bytes BLOB NOT NULL,          -- the token's own bytes; may be half a UTF-8 character
  text TEXT NOT NULL,           -- the same, safe to show
  special INTEGER NOT NULL,     -- 1 = control token
  PRIMARY KEY (run_id, token)
) WITHOUT ROWID;
-- one row a round, with the names of its run and sequence and the times in ms
CREATE VIEW round_summary AS
SELECT s.run_id, s.sequence_index, r.round_index, r.gamma, r.proposed, r.judged, r.accepted,
       r.committed_after - r.committed_before AS committed, r.correction_kind, r.correction_token,
       v.text AS correction_text, r.residual_mass, r.cut, r.start_ns / 1e6 AS start_ms,
       r.propose_ns / 1e6 AS propose_ms, r.score_ns / 1e6 AS score_ms, r.accept_ns / 1e6 AS accept_ms,
       r.rollback_ns / 1e6 AS rollback_ms,
       r.record_ns / 1e6 AS record_ms, r.round_ns / 1e6 AS round_ms, r.target_kv_after, r.draft_kv_after,
       r.id AS round_id
FROM rounds r JOIN sequences s ON s.id = r.sequence_id
LEFT JOIN vocab v ON v.run_id = s.run_id AND v.token = r.correction_token;
-- one row a run and position: how often a candidate stood there, was judged, and was accepted
CREATE VIEW acceptance_by_position AS
SELECT s.run_id, p.position, count(*) AS num_draft_tokens,
       sum(p.fate IN ('accepted', 'cut', 'rejected')) AS num_judged_draft_tokens,
       sum(p.fate IN ('accepted', 'cut')) AS num_accepted_draft_tokens,
       sum(p.fate IN ('accepted', 'cut')) * 1.0 / (
         SELECT count(*) FROM rounds n JOIN sequences m ON m.id = n.sequence_id WHERE m.run_id = s.run_id
       ) AS acceptance_rate_per_position,
       sum(p.fate IN ('accepted', 'cut')) * 1.0 / sum(p.fate IN ('accepted', 'cut', 'rejected'))
         AS conditional_acceptance_per_position,
       avg(p.overlap) AS overlap
FROM positions p JOIN rounds r ON r.id = p.round_id JOIN sequences s ON s.id = r.sequence_id
WHERE p.fate IS NOT NULL GROUP BY s.run_id, p.position;
-- one row a rejected candidate: the test it failed, and what was drawn in its place
CREATE VIEW rejections AS
SELECT s.run_id, s.sequence_index, r.round_index, p.position, p.candidate, c.text AS candidate_text,
       p.draft_prob, p.target_prob, p.target_prob / p.draft_prob AS ratio, p.u, p.overlap, p.rank,
       r.correction_token, d.text AS correction_text, r.correction_prob, r.residual_mass, r.id AS round_id
FROM positions p JOIN rounds r ON r.id = p.round_id JOIN sequences s ON s.id = r.sequence_id
LEFT JOIN vocab c ON c.run_id = s.run_id AND c.token = p.candidate
LEFT JOIN vocab d ON d.run_id = s.run_id AND d.token = r.correction_token
WHERE p.fate = 'rejected';
"""


TABLES = ("runs", "sequences", "rounds", "positions", "tokens", "costs", "vocab")
VIEWS = ("round_summary", "acceptance_by_position", "rejections")


@dataclass(frozen=True, slots=True)
class Migration:
    name: str
    sql: str


MIGRATIONS: tuple[Migration, ...] = (Migration("0001_rounds", _V1),)
VERSION = len(MIGRATIONS)


def create(connection: sqlite3.Connection) -> None:
    """Bring an empty database to the current version, in one transaction."""
    steps = "".join(m.sql for m in MIGRATIONS)
    connection.executescript(
        f"BEGIN;{steps}PRAGMA application_id={APPLICATION_ID};PRAGMA user_version={VERSION};COMMIT;"
    )


@cache
def columns_of(table: str) -> frozenset[str]:
    """The names of a table's columns."""
    return frozenset(doc.column for doc in column_docs() if doc.table == table)


@dataclass(frozen=True, slots=True)
class ColumnDoc:
    table: str
    column: str
    type: str
    doc: str


_COLUMN = re.compile(r"^\s+(?P<name>[a-z_]+) (?P<type>INTEGER|REAL|TEXT|BLOB)\b.*?(?:-- (?P<doc>.*))?$")


def column_docs() -> Iterator[ColumnDoc]:
    """Every column with its type and comment, in the order of the schema."""
    table = ""
    for line in "".join(m.sql for m in MIGRATIONS).splitlines():
        if line.startswith("CREATE TABLE"):
            table = line.split()[2]
        elif match := _COLUMN.match(line):
            yield ColumnDoc(table, match["name"], match["type"], match["doc"] or "")
