"""Which device and which number format a run uses, and why."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path

import torch

from engine.errors import PairError

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, slots=True)
class Choice:
    """A device and a dtype, with the reasons in words."""

    device: torch.device
    dtype: torch.dtype
    device_reason: str
    dtype_reason: str


def choose(device: str = "auto", dtype: str = "auto") -> Choice:
    """Resolve `auto`, and check that what was asked for is there.

    Raises:
        PairError: an unknown name, or a device that this machine does not have.
    """
    where, device_reason = _device(device)
    number, dtype_reason = _dtype(dtype, where)
    return Choice(where, number, device_reason, dtype_reason)


def _device(name: str) -> tuple[torch.device, str]:
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda", torch.cuda.current_device()), "a CUDA device is there"
        return torch.device("cpu"), "no CUDA device is there"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise PairError(f"There is no device named {name}; use auto, cpu, cuda, cuda:N or mps.") from error
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise PairError(f"This machine has no usable CUDA device for --device {name}; use auto or cpu.")
        count = torch.cuda.device_count()
        if (device.index or 0) >= count:
            raise PairError(f"This machine has {count} CUDA device(s), cuda:0 to cuda:{count - 1}, and no {name}.")
    elif device.type == "mps":
        if not torch.backends.mps.is_available():
            raise PairError("This machine has no usable mps device; use auto or cpu.")
    elif device.type != "cpu":
        raise PairError(f"specview does not run on {name}; use auto, cpu, cuda, cuda:N or mps.")
    return device, "asked for"


def _dtype(name: str, device: torch.device) -> tuple[torch.dtype, str]:
    if name != "auto":
        if name not in DTYPES:
            raise PairError(f"There is no dtype named {name}; use auto, {', '.join(DTYPES)}.")
        return DTYPES[name], "asked for"
    if device.type == "cuda":
        return torch.bfloat16, "CUDA devices compute in bfloat16"
    if device.type == "cpu" and cpu_has_bfloat16():
        return torch.bfloat16, "this CPU has bfloat16 instructions"
    return torch.float32, "no native bfloat16 here"


def cpu_has_bfloat16() -> bool:
    """Whether the CPU multiplies bfloat16 natively (AVX512-BF16, AMX, or the Arm extension)."""
    flags = _cpuinfo(("flags", "features")).split()
    return any(flag in {"avx512_bf16", "amx_bf16", "bf16"} for flag in flags)


def device_name(device: torch.device) -> str:
    """The hardware's name."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    cores = f"{torch.get_num_threads()} threads"
    name = _cpuinfo(("model name",)) or platform.processor() or platform.machine()
    return f"{name}, {cores}" if device.type == "cpu" else name


def _cpuinfo(keys: tuple[str, ...]) -> str:
    """The first value of one of the keys in Linux's /proc/cpuinfo; empty elsewhere."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # another system than Linux: there is nothing to read, and that is an answer
        return ""
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip().lower() in keys:
            return value.strip()
    return ""
