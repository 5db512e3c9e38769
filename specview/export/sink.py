"""Where an export goes: a file that appears whole or not at all, or stdout."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from specview.errors import SpecviewError


@contextmanager
def opened(path: Path | None, *, force: bool) -> Iterator[BinaryIO]:
    """A binary stream to `path`, or to stdout when there is none.

    The file is written beside its place under another name, and put in place when everything went well.

    Raises:
        SpecviewError: the file exists and `force` was not given, or it cannot be written.
    """
    if path is None or str(path) == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    if path.exists() and not force:
        raise SpecviewError(f"{path} already exists; choose another file with -o, or use --force to overwrite it.")
    if path.is_dir():
        raise SpecviewError(f"{path} is a folder; name a file with -o.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    except OSError as error:
        raise SpecviewError(f"{path} cannot be written ({error.strerror}); choose another file with -o.") from error
    part = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as out:
            yield out
        part.chmod(0o666 & ~_umask())
        part.replace(path)
    except OSError as error:
        raise SpecviewError(f"{path} could not be written ({error.strerror}); nothing was left of it.") from error
    finally:
        part.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
