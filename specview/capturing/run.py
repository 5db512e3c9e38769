"""`python -m specview.capturing.run -o run.db script.py …`: run a script as Python would, with capture around it."""

from __future__ import annotations

import argparse
import runpy
import sys
import warnings
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TextIO

from specview.capturing import capture
from specview.capturing.errors import CaptureWarning
from specview.errors import SpecviewError
from specview.text import showable


def main(arguments: list[str]) -> int:
    """Run the script as `__main__`; returns 0, or the exit code of a recording that could not start or be finished.

    What the script raises, `SystemExit` too, passes through.

    Args:
        arguments: -o FILE [--force | --append] SCRIPT ARGUMENT…, or … -m MODULE ARGUMENT…
    """
    parser = argparse.ArgumentParser(prog="specview capture", add_help=False, allow_abbrev=False)
    parser.add_argument("-o", dest="output", type=Path, required=True)
    parser.add_argument("--force", action="store_true")
    parser.add_argument("--append", action="store_true")
    parser.add_argument("-m", dest="module", action="store_true")
    parser.add_argument("program")
    parser.add_argument("rest", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    _show_own_warnings_plainly()
    capturing = capture(options.output, force=options.force, append=options.append)
    try:
        capturing.__enter__()
    except SpecviewError as error:
        return _failed(error)
    try:
        _run(options.program, options.rest, as_module=options.module)
    except BaseException:
        capturing.__exit__(*sys.exc_info())
        raise
    try:
        capturing.__exit__(None, None, None)
    except SpecviewError as error:
        return _failed(error)
    return 0


def _run(program: str, arguments: list[str], *, as_module: bool) -> None:
    sys.argv = [program, *arguments]
    folder = Path.cwd() if as_module else Path(program).resolve().parent
    sys.path.insert(0, str(folder))
    _make_way(folder)
    if as_module:
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(program, run_name="__main__")


def _make_way(folder: Path) -> None:
    """A program whose own `engine` lies in its folder must import that one. What capture needs of ours is imported by
    now, and stays with those who hold it."""
    if PathFinder.find_spec("engine", [str(folder)]) is not None:
        for name in [name for name in sys.modules if name.partition(".")[0] == "engine"]:
            del sys.modules[name]


def _failed(error: SpecviewError) -> int:
    print(f"specview: {showable(str(error))}", file=sys.stderr)
    return error.exit_code


def _show_own_warnings_plainly() -> None:
    """Our own warnings as one line, all others as the script would show them."""
    usual = warnings.showwarning

    def showwarning(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if issubclass(category, CaptureWarning):
            print(showable(str(message)), file=sys.stderr)
        else:
            usual(message, category, filename, lineno, file, line)

    warnings.showwarning = showwarning


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        # As for a script of its own: the traceback, and the exit code that shells read as "interrupted".
        sys.excepthook(*sys.exc_info())
        sys.exit(130)
