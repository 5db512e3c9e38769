"""A target spread over several processes by transformers' tensor parallelism (`torchrun … -m specview record …`).

Every rank runs the same loop with the same seed: the logits are gathered, so that all ranks draw the same tokens, and
one of them records. The draft is small, and runs whole on every rank.
"""

from __future__ import annotations

import os
from typing import Any

import torch

from engine.errors import PairError


def join(device: torch.device) -> torch.device:
    """Join the group of processes, once; returns the device of this rank.

    Raises:
        PairError: this PyTorch was built without distributed support.
    """
    distributed: Any = torch.distributed
    if not distributed.is_available():
        raise PairError("This PyTorch cannot run a model over several processes; start specview without torchrun.")
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    if not distributed.is_initialized():
        distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    return device


def options() -> dict[str, Any]:
    """What `from_pretrained` needs to shard a target."""
    from transformers.distributed import DistributedConfig

    return {"distributed_config": DistributedConfig(tp_plan="auto")}
