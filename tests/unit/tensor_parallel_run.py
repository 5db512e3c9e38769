"""Run by torchrun: decode one prompt on a sharded target and print what this rank produced.

torchrun --nproc-per-node 2 tests/unit/tensor_parallel_run.py TARGET DRAFT TEMPERATURE
"""

from __future__ import annotations

import json
import os
import sys

import torch

from engine.ranks import records
from engine.round import Sampling
from engine.session import load_session

torch.set_num_threads(1)
target, draft, temperature = sys.argv[1:]
session = load_session(
    draft,
    target,
    sampling=Sampling(temperature=float(temperature)),
    max_new_tokens=24,
    seed=3,
    device="cpu",
    dtype="float32",
)
ids = session.encode("hello", chat=False)
session.prefill(0, "hello", ids)
committed = [[token for token, _ in finished.committed] for finished in session.decode()]
line = json.dumps({"rank": int(os.environ.get("RANK", "0")), "records": records(), "committed": committed})
# One write a line: two ranks share stdout.
os.write(1, f"{line}\n".encode())
