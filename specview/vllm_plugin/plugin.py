"""The entry point that vLLM calls in each of its processes (`vllm.general_plugins`)."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import ModuleType

from specview.vllm_plugin import importing, scheduling, signatures, worker
from specview.vllm_plugin.log import Switch, logger
from specview.vllm_plugin.settings import SettingsError, from_environment

_installed: list[Switch] = []


def register() -> None:
    """Prepare to record, if `SPECVIEW_TRACE` asks for it. vLLM may call this more than once in a process."""
    if _installed:
        return
    try:
        settings = from_environment(os.environ)
    except SettingsError as error:
        logger.warning("specview: %s Nothing is recorded.", error)
        return
    if settings is None:
        return
    switch = Switch()
    _installed.append(switch)
    wraps: dict[str, Callable[[ModuleType], None]] = {
        signatures.SAMPLER: lambda module: worker.wrap_sampler(module, switch),
        signatures.TOPK_TOPP: lambda module: worker.wrap_top_k_top_p(module, switch),
        signatures.REJECTION: lambda module: worker.wrap_rejection(module, switch),
        signatures.RUNNER: lambda module: worker.wrap_runner(module, switch, settings),
        signatures.PROPOSER: lambda module: worker.wrap_proposer(module, switch),
        signatures.SCHEDULER: lambda module: scheduling.wrap_scheduler(module, switch, settings),
        signatures.CORE: lambda module: scheduling.wrap_core(module, switch),
    }
    for name, wrap in wraps.items():
        importing.when_imported(name, _checked(wrap, switch))


def _checked(wrap: Callable[[ModuleType], None], switch: Switch) -> Callable[[ModuleType], None]:
    def callback(module: ModuleType) -> None:
        with switch.guard(f"wrapping {module.__name__}"):
            unknown = signatures.difference(module)
            if unknown is not None:
                switch.off(f"this version of vLLM is not one that it knows: {unknown}.")
            elif switch.on:
                wrap(module)

    return callback
