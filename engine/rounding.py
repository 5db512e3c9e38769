"""When two kernels agree: their results may differ by what another order of rounding makes, and no more."""

from __future__ import annotations

import torch
from torch import Tensor


def near(one: Tensor, other: Tensor) -> bool:
    """Whether two results of one dtype differ by rounding only, relative to the largest of them.

    What is not finite is left out: a model that breaks down is found by the loop, which says so.
    """
    tolerance = 1e-3 if one.dtype in (torch.float32, torch.float64) else 0.1
    one, other = (torch.nan_to_num(x.float(), 0.0, 0.0, 0.0) for x in (one, other))
    return one.numel() == 0 or float((one - other).abs().max()) <= tolerance * (float(other.abs().max()) + 1e-6)
