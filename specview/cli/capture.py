"""`specview capture`: run a Python program, and record the assisted generation that transformers does in it."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import click

_PYTHON = re.compile(r"(python|pypy)[\d.]*(\.exe)?")
_WITH_VALUE = {"-W", "-X", "--check-hash-based-pycs"}


@dataclass(frozen=True, slots=True)
class Program:
    """A Python command line, taken apart."""

    interpreter: str
    flags: tuple[str, ...]
    module: bool
    """The program is a module name (-m), not a file."""
    name: str
    arguments: tuple[str, ...]


def parse_program(words: tuple[str, ...]) -> Program:
    """`python [flags] (-m module | script.py) …` or `script.py …`, taken apart.

    Raises:
        click.UsageError: it is no Python program that can be run with something around it.
    """
    first, rest = words[0], list(words[1:])
    if not _PYTHON.fullmatch(Path(first).name.lower()):
        if first.endswith(".py"):
            return Program(sys.executable, (), False, first, tuple(rest))
        raise click.UsageError(f"{first} is no Python program; give `python script.py …` or `script.py …` after --")
    interpreter = shutil.which(first)
    if interpreter is None:
        raise click.UsageError(f"there is no program {first}; give the Python that runs your script")
    flags: list[str] = []
    while rest and rest[0].startswith("-"):
        flag = rest.pop(0)
        if flag == "-m" and rest:
            return Program(interpreter, tuple(flags), True, rest[0], tuple(rest[1:]))
        if flag in ("-", "-c", "-i", "-m"):
            raise click.UsageError(f"python {flag} cannot be captured; put the program into a file")
        flags.append(flag)
        if flag in _WITH_VALUE and rest:
            flags.append(rest.pop(0))
    if not rest:
        raise click.UsageError(f"name the script that {first} is to run")
    return Program(interpreter, tuple(flags), False, rest[0], tuple(rest[1:]))


@click.command("capture", short_help="Run a Python script and record its assisted generation (transformers).")
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="The trace to write.")
@click.option("--force", is_flag=True, help="Overwrite the trace.")
@click.option("--append", is_flag=True, help="Add a run to the trace.")
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED)
def command(output: Path, force: bool, append: bool, program: tuple[str, ...]) -> int:
    """Run PROGRAM, unchanged, and record every round of each `model.generate` call that speculates: with
    assistant_model=…, prompt_lookup_num_tokens=… or assistant_early_exit=…

    \b
        specview capture -o run.db -- python my_script.py --its-options

    The exit code is the program's. Inside a program of your own, `with specview.capture("run.db"):` does the same."""
    from specview.cli import say
    from specview.trace.storage import refuse_existing

    if force and append:
        raise click.UsageError("--force and --append exclude each other; give one of them")
    parsed = parse_program(program)
    if not parsed.module and not Path(parsed.name).is_file():
        raise click.UsageError(f"there is no script {parsed.name}")
    refuse_existing(output, force=force, append=append)
    _require_specview(parsed.interpreter)
    code = _run(parsed, output, ["--force"] * force + ["--append"] * append)
    if output.is_file():
        say(f"recorded into {output}; look at it with `specview replay {output}`.")
    return code


def _require_specview(interpreter: str) -> None:
    """Another Python than ours must have specview too: it records in the program's own process."""
    if Path(interpreter).absolute() == Path(sys.executable).absolute():
        return
    look = "import importlib.util, sys; sys.exit(importlib.util.find_spec('specview') is None)"
    if subprocess.run([interpreter, "-P", "-c", look], capture_output=True).returncode:
        raise click.UsageError(f"{interpreter} has no specview; install it there with `pip install specview`")


def _run(program: Program, output: Path, options: list[str]) -> int:
    """The program's exit code; 128 + n when signal n ended it."""
    # -P: the current folder must not come first on the path of our own imports. The runner puts the script's there.
    words = [program.interpreter, *program.flags, "-P", "-m", "specview.capturing.run", "-o", str(output), *options]
    words += ["-m"] * program.module + [program.name, *program.arguments]
    child = subprocess.Popen(words)
    earlier = signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    try:
        while True:
            try:
                code = child.wait()
                break
            except KeyboardInterrupt:
                continue  # the terminal sent it to the program too, whose answer is awaited
    finally:
        signal.signal(signal.SIGTERM, earlier)
    return code if code >= 0 else 128 - code
