"""`python -m engine.distill`: make the shipped head again, or a draft for another target."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from engine.errors import EngineError


def main() -> int:
    """Run the recipe; progress goes to stderr, the held-out figures to stdout."""
    parser = argparse.ArgumentParser(prog="python -m engine.distill", description=__doc__)
    parser.add_argument("--target", help="folder, hub id or .gguf file; the embedded default target when left out")
    parser.add_argument("-o", "--out", type=Path, default=Path("draft"), help="folder for the draft (default: draft)")
    parser.add_argument("--work", type=Path, help="folder for samples and training state (default: OUT.work)")
    parser.add_argument("--kind", choices=("head", "plain"), default="head")
    parser.add_argument("--tokens", type=int, help="answer tokens to sample")
    parser.add_argument("--steps", type=int, help="optimizer steps")
    parser.add_argument("--layers", type=int, help="decoder layers of the draft")
    parser.add_argument("--taps", type=_numbers, help="layers whose states a head reads too (default: 1/3 and 2/3 up)")
    parser.add_argument("--scored-tokens", type=int, help="size of the trimmed vocabulary")
    parser.add_argument("--start", type=Path, help="train on from the head in this folder")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    from engine.distill.pipeline import run  # torch and transformers: not needed for --help

    try:
        print(run(**vars(options), report=_say))
    except EngineError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from here", file=sys.stderr)
        return 130
    return 0


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(",") if part)


def _say(sentence: str) -> None:
    print(time.strftime("%H:%M:%S"), sentence, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
