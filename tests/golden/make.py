"""Writes the golden trace of the current version, once, when the version is new: `python -m tests.golden.make`."""

from __future__ import annotations

import json
from pathlib import Path

from specview.summary import summarize
from specview.trace import schema
from specview.trace.reader import TraceReader
from tests import synthetic

GOLDEN = Path(__file__).parent
NAMES = (
    "num_rounds", "num_draft_tokens", "num_judged_draft_tokens", "num_accepted_draft_tokens", "num_output_tokens",
    "draft_acceptance_rate", "acceptance_histogram", "overlap_per_position", "score_ms", "measured_speedup",
)  # fmt: skip


def main() -> None:
    path = GOLDEN / f"trace_v{schema.VERSION}.db"
    synthetic.write(path, 12)  # refuses where one exists
    with TraceReader(path) as reader:
        (run,) = reader.runs()
        values = summarize(reader, run).values()
        document = {
            "uuid": run.info.uuid,
            "values": {name: values[name] for name in NAMES},
            "candidates": [list(r.candidates) for r in reader.rounds(1, 0, 100)],
        }
    path.with_suffix(".json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
