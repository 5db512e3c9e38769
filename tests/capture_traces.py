"""Traces that the tests of capture make, and what is in them."""

from __future__ import annotations

import torch

import specview
from specview.contract import check
from specview.trace.reader import TraceReader

MEMBERS = {"max_new_tokens": 40, "do_sample": True, "top_k": 0}


def record(path, model, *calls, **options):
    """Run the calls under capture; returns the outputs."""
    outputs = []
    with specview.capture(path, **options):
        for seed, (ids, arguments) in enumerate(calls):
            torch.manual_seed(seed)
            outputs.append(model.generate(ids, **arguments))
    return outputs


def everything(path):
    """[(run, sequence, rounds, tokens)] of a trace."""
    with TraceReader(path) as reader:
        return [
            (run, s, reader.rounds(s.id, 0, reader.round_count(s.id)), reader.tokens(s.id, 0, reader.token_count(s.id)))
            for run in reader.runs()
            for s in reader.sequences(run.id)
        ]


def clauses(path):
    """{clause: violations} of all runs, those of no violation left out."""
    with TraceReader(path) as reader:
        return {c.id: c.violations for report in check(reader) for c in report.clauses if c.broken}


def notes(path):
    """{clause: note} of the first run."""
    with TraceReader(path) as reader:
        return {c.id: c.note for c in check(reader)[0].clauses if c.note}
