"""The three standard streams, whatever state a shell, a service or a pipe hands them over in."""

from __future__ import annotations

import io
import os
import sys


def settle() -> None:
    """Make the standard streams usable: a closed one leads nowhere, and no character is too much for one.

    A closed stream must not stay free: the next file that is opened would get its number, and messages would be written
    into it.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123 - for the process's life
    if isinstance(sys.stdout, io.TextIOWrapper):
        # An ASCII or Latin-1 terminal has no γ, and a path need not be UTF-8; stderr is like that by itself.
        sys.stdout.reconfigure(errors="backslashreplace")


def lead_stdout_nowhere() -> None:
    """What stdout still holds can't be delivered: let it go, so that Python's last flush at exit does not fail."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def print_path(path: os.PathLike[str]) -> None:
    """A path as data on stdout: byte for byte for a program, safe to show for a person."""
    from specview.text import showable

    if sys.stdout.isatty():
        print(showable(os.fspath(path)), flush=True)
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(os.fsencode(path) + b"\n")
        sys.stdout.buffer.flush()
