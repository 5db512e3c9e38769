"""Load one causal LM and its tokenizer: a folder, a hub id, or a .gguf file. Every failure is one sentence."""

from __future__ import annotations

import contextlib
import logging
import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from engine import parallel
from engine.errors import PairError


@dataclass(frozen=True, slots=True)
class Loaded:
    """A module with what was found beside its weights."""

    module: Any
    tokenizer: Any | None
    folder: Path | None
    """The local folder, when it came from one."""


def load(
    name: str, device: torch.device, dtype: torch.dtype, device_map: str | None = None, sharded: bool = False
) -> Loaded:
    """Load `name` in eval mode; `sharded` spreads it over the processes that `engine.parallel` joined.

    Raises:
        PairError: there is no such model, it is no causal LM, or it needs code or packages that are not here.
    """
    from transformers import AutoModelForCausalLM, GgufConfig

    where = _where(name)
    options: dict[str, Any] = {"dtype": dtype}
    if "gguf_file" in where:
        options["quantization_config"] = GgufConfig(dequantize=True)
    if device_map is not None:
        options["device_map"] = device_map
    if sharded:
        options |= parallel.options()
    with quiet(), _in_one_sentence(name):
        module = AutoModelForCausalLM.from_pretrained(**where, **options)
        if device_map is None and not sharded:
            module = module.to(device)
    return Loaded(module.eval(), load_tokenizer(name), _folder(name))


def load_config(name: str) -> Any:
    """The model's config, without its weights; raises PairError as `load` does."""
    from transformers import AutoConfig

    with quiet(), _in_one_sentence(name):
        return AutoConfig.from_pretrained(**_where(name))


def load_tokenizer(name: str) -> Any | None:
    """The tokenizer beside a model's weights; None when there is none."""
    from transformers import AutoTokenizer

    with quiet():
        try:
            return AutoTokenizer.from_pretrained(**_where(name))
        except (OSError, ValueError, KeyError, TypeError):  # what transformers raises where no tokenizer file is
            return None


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers' bars and advice off stderr, which belongs to the program."""
    from huggingface_hub.utils.tqdm import disable_progress_bars
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    disable_progress_bars()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _where(name: str) -> dict[str, str]:
    path = Path(name).expanduser()
    if name.endswith(".gguf"):
        if not path.is_file():
            raise PairError(f"There is no file {name}.")
        return {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise PairError(f"The folder {name} holds no model: it has no config.json.")
        return {"pretrained_model_name_or_path": str(path)}
    if path.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1 or os.sep + os.sep in name:
        raise PairError(f"There is no folder {name}.")
    if path.is_file():
        raise PairError(f"{name} is a file; name a model's folder, a hub id or a .gguf file.")
    return {"pretrained_model_name_or_path": name}


def _folder(name: str) -> Path | None:
    path = Path(name).expanduser()
    return path if path.is_dir() else path.parent if path.is_file() else None


@contextlib.contextmanager
def _in_one_sentence(name: str) -> Iterator[None]:
    try:
        yield
    except PairError:
        raise
    except torch.OutOfMemoryError as error:
        raise PairError(
            f"{name} does not fit into the device's memory; use a smaller model, or --device cpu."
        ) from error
    except OSError as error:
        raise PairError(
            f"There is no model {name}: no such folder here, and the Hugging Face hub did not give it "
            "(check the name, the network, and your access)."
        ) from error
    except ImportError as error:
        raise PairError(f"{name} needs a package that is not installed: {_first_line(error)}") from error
    except Exception as error:  # transformers raises whatever its models' code raises
        if "trust_remote_code" in str(error):
            raise PairError(
                f"{name} needs Python code from its own repository, which specview does not run; "
                "choose a model that transformers knows."
            ) from error
        raise PairError(f"{name} cannot be loaded as a causal language model: {_first_line(error)}") from error


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    text = (lines[0] if lines else type(error).__name__).strip()
    return text if text.endswith((".", "!", "?")) else f"{text}."
