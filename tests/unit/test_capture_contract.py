"""What check can still find where u is unknown and the first round reads the prompt: each fact falsified is found."""

import sqlite3

import pytest
import torch

import specview
from specview.contract import check
from specview.trace.reader import TraceReader
from tests.capture_pair import pair, prompt

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def captured(tmp_path_factory):
    path = tmp_path_factory.mktemp("capture") / "t.db"
    target, draft = pair()
    with specview.capture(path):
        for seed in range(3):
            torch.manual_seed(seed)
            target.generate(prompt(seed=seed), max_new_tokens=20, do_sample=True, top_k=0, assistant_model=draft)
    return path


def broken(path):
    with TraceReader(path) as reader:
        return {c.id for report in check(reader) for c in report.clauses if c.broken}


@pytest.mark.parametrize(
    ("clause", "falsify"),
    [
        (None, "SELECT 1"),
        ("C3", "UPDATE positions SET target_prob = 0 WHERE fate = 'accepted'"),
        ("C3", "UPDATE positions SET draft_prob = target_prob / 2 WHERE fate = 'rejected' AND target_prob > 0"),
        ("C9", "UPDATE rounds SET target_kv_written = target_kv_written + 1 WHERE round_index = 0"),
        ("C9", "UPDATE rounds SET target_kv_before = 9, target_kv_written = proposed WHERE round_index = 0"),
        ("C9", "UPDATE rounds SET target_kv_before = 0, target_kv_written = target_kv_before + target_kv_written "
               "WHERE round_index = 1"),
        ("C10", "UPDATE rounds SET draft_kv_after = draft_kv_after - 1 WHERE round_index = 1"),
        ("C10", "UPDATE rounds SET draft_kv_after = draft_kv_after + 2 WHERE round_index = 1"),
        ("C10", "UPDATE rounds SET draft_kv_after = draft_kv_after - (round_index = 1), "
                "draft_kv_before = draft_kv_before - (round_index = 2)"),
        ("C1", "UPDATE positions SET draft_deviation = 0.01 WHERE position = 2"),
        ("C1", "UPDATE positions SET target_deviation = 0.01 WHERE position = 1"),
        ("C12", "UPDATE positions SET overlap = 0.01"),
    ],
    ids=str,
)  # fmt: skip
def test_a_falsified_fact_is_found(captured, tmp_path, clause, falsify):
    path = tmp_path / "t.db"
    path.write_bytes(captured.read_bytes())
    connection = sqlite3.connect(path)
    changed = connection.execute(falsify).rowcount
    connection.commit()
    connection.close()
    assert clause is None or changed > 0
    assert broken(path) == ({clause} if clause else set())
