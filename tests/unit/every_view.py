"""Everything that is ever done with a trace, for tests that hand over damaged ones."""

from __future__ import annotations

import io
import json
from pathlib import Path

from specview.contract import check
from specview.errors import SpecviewError
from specview.export import csv, jsonl, parquet, perfetto
from specview.export.levels import LEVELS, export_of
from specview.story import explain
from specview.summary import document, summarize
from specview.trace.reader import TraceReader


def use_everything(path: Path) -> str | None:
    """What every view does with a trace; returns the sentence that it was refused with."""
    try:
        with TraceReader(path) as reader:
            for run in reader.runs():
                json.loads(document(summarize(reader, run)))
                for sequence in reader.all_sequences(run.id):
                    count = reader.round_count(sequence.id)
                    rounds = reader.rounds(sequence.id, max(0, count - 50), count)
                    for r in rounds:
                        explain(r, str, run.info)
                    ids = [p.candidate for r in rounds for p in r.positions if p.candidate is not None]
                    reader.vocab(run.id, ids)
                    length = reader.token_count(sequence.id)
                    reader.tokens(sequence.id, max(0, length - 200), length)
                reader.costs(run.id)
            check(reader)
            for level in LEVELS:
                csv.write(export_of(reader, level), io.BytesIO(), raw_text=False, progress=ignore)
                jsonl.write(export_of(reader, level), io.BytesIO(), raw_text=True, progress=ignore)
                parquet.write(export_of(reader, level), io.BytesIO(), raw_text=False, progress=ignore)
            perfetto.write(reader, io.BytesIO(), progress=ignore)
    except SpecviewError as error:
        sentence = str(error)
        assert sentence
        assert "\n" not in sentence
        return sentence
    return None


def ignore(_: int) -> None:
    """A progress bar that nobody sees."""
