"""`python -m specview.capturing.run -o run.db script.py …`: run a script as Python would, with capture around it."""

from __future__ import annotations

import argparse
import runpy
import sys
import warnings
from pathlib import Path

from specview.capturing.errors import CaptureWarning
from specview.errors import SpecviewError
from specview.text import showable


def main(arguments: list[str]) -> int:
    """Run the script as `__main__` and return its exit code; what the script raises passes through.

    `arguments`: -o FILE [--force | --append] SCRIPT ARGUMENT… or … -m MODULE ARGUMENT…
    """
    parser = argparse.ArgumentParser(prog="specview capture", add_help=False, allow_abbrev=False)
    parser.add_argument("-o", dest="output", type=Path, required=True)
    parser.add_argument("--force", action="store_true")
    parser.add_argument("--append", action="store_true")
    parser.add_argument("-m", dest="module")
    parser.add_argument("rest", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    from specview.capturing import capture

    warnings.showwarning = _show(warnings.showwarning)
    try:
        with capture(options.output, force=options.force, append=options.append):
            if options.module is not None:
                sys.argv = [options.module, *options.rest]
                sys.path.insert(0, str(Path.cwd()))
                runpy.run_module(options.module, run_name="__main__", alter_sys=True)
            else:
                script = options.rest[0]
                sys.argv = list(options.rest)
                sys.path.insert(0, str(Path(script).resolve().parent))
                runpy.run_path(script, run_name="__main__")
    except SpecviewError as error:
        print(f"specview: {showable(str(error))}", file=sys.stderr)
        return error.exit_code
    return 0


def _show(usual):  # type: ignore[no-untyped-def]
    """Our own warnings as one plain line, all others as the script would show them."""

    def showwarning(message, category, filename, lineno, file=None, line=None):  # type: ignore[no-untyped-def]
        if issubclass(category, CaptureWarning):
            print(showable(str(message)), file=sys.stderr)
        else:
            usual(message, category, filename, lineno, file, line)

    return showwarning


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
