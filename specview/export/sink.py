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

PREFIX = 100
"""Characters of the file's name in the temporary one, which must not be longer than a file system allows."""


def to_stdout(path: Path | None) -> bool:
    """Whether an output goes to stdout: none is named, or `-`."""
    return path is None or str(path) == "-"


@contextmanager
def opened(path: Path | None, *, force: bool, source: Path | None = None) -> Iterator[BinaryIO]:
    """A binary stream to `path`, or to stdout when there is none.

    The file is written beside its place under another name, and put in place when everything went well. A link stays,
    and what it leads to is replaced.

    Args:
        source: the trace that is exported, which must not be overwritten by its own export.

    Raises:
        SpecviewError: the file exists and `force` was not given, or it cannot be written.
    """
    if path is None or to_stdout(path):
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        _refuse_existing(path, force, source)
        place = Path(os.path.realpath(path)) if path.is_symlink() else path
        if place.is_symlink():
            raise SpecviewError(f"{path} is a link that leads round in a circle; choose another file with -o.")
        place.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}."[:PREFIX], suffix=".part")
    except OSError as error:
        raise SpecviewError(f"{path} cannot be written ({error.strerror}); choose another file with -o.") from error
    part = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as out:
            yield out
        part.chmod(0o666 & ~_umask())
        part.replace(place)
    except OSError as error:
        raise SpecviewError(f"{path} could not be written ({error.strerror}); nothing was left of it.") from error
    finally:
        part.unlink(missing_ok=True)


def _refuse_existing(path: Path, force: bool, source: Path | None) -> None:
    if path.is_dir():
        raise SpecviewError(f"{path} is a folder; name a file with -o.")
    if not path.exists():
        return
    if source is not None and path.samefile(source):
        raise SpecviewError(f"{path} is the trace that is exported; choose another file with -o.")
    if not path.is_file():  # to replace a device or a pipe by a file would break it for everyone
        raise SpecviewError(f"{path} is not a regular file; choose another file with -o, or - for stdout.")
    if not force:
        raise SpecviewError(f"{path} already exists; choose another file with -o, or use --force to overwrite it.")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
