"""The replay as textual-serve runs it: one process a browser tab, its screen on stdout in Textual's web protocol."""

from __future__ import annotations

import sys
from pathlib import Path

from specview.tui.app import SpecviewApp

if __name__ == "__main__":
    SpecviewApp(Path(sys.argv[1])).run()
