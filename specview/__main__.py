"""`python -m specview` is the `specview` command."""

import sys
from pathlib import Path

# `-m` puts the current folder first on the path, where a stranger's `engine` package would shadow ours.
if sys.path and Path(sys.path[0] or ".").resolve() != Path(__file__).resolve().parent.parent:
    del sys.path[0]

from specview.cli import main

if __name__ == "__main__":
    main(prog_name="specview")
