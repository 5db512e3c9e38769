"""The command line: one small module a command, loaded when it is asked for.

stdout carries data and stderr carries messages. Exit codes: 0 done, 1 a check failed or a run broke, 2 wrong usage or
unreadable input, 130 interrupted. A command module imports nothing heavier than click at its top, so that
`specview --help` is instant and a viewer never imports torch.
"""

from __future__ import annotations

import errno
import importlib
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn

import click

from engine.errors import EngineError
from specview import __version__
from specview.cli import streams
from specview.errors import SpecviewError

NO_ROOM = frozenset({errno.ENOSPC, errno.EFBIG, errno.EDQUOT})
"""System errors of a disk, or a limit, that is full."""

# command name → module of specview.cli; the module's `command` is the click command
COMMANDS = {
    "live": "live",
    "record": "record",
    "capture": "capture",
    "replay": "replay",
    "check": "check",
    "stats": "stats",
    "compare": "compare",
    "serve": "serve",
    "export": "export",
    "import": "import_log",
    "distill": "distill",
    "list": "list_runs",
    "tour": "tour",
    "doctor": "doctor",
}


@dataclass(slots=True)
class Standing:
    """What a command that is still printing has found out; it reaches commands as `click.Context.obj`."""

    exit_code: int = 0
    """The exit code, should the reader of stdout go away now."""


class LazyGroup(click.Group):
    """A group that imports a command's module when the command is used. A reader of our stdout that goes away
    (`| head`) ends it with the exit code of its `Standing`: that is no error."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        try:
            return super().make_context(info_name, args, parent, **extra)
        except BrokenPipeError as error:  # --help
            streams.lead_stdout_nowhere()
            raise click.exceptions.Exit(0) from error

    def invoke(self, ctx: click.Context) -> Any:
        standing = ctx.ensure_object(Standing)
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            streams.lead_stdout_nowhere()
            raise click.exceptions.Exit(standing.exit_code) from error

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"specview.cli.{COMMANDS[cmd_name]}")
        command: click.Command = module.command
        return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="specview")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def group(debug: bool) -> None:
    """The debugger for speculative decoding: run a draft and a target model, record every round of the
    draft–verify loop, and watch, replay, question and check what happened."""


def say(sentence: str) -> None:
    """A message for the person, on stderr."""
    # Imported here: the text rules need nothing heavy, but --help does not need them at all.
    from specview.text import showable

    with suppress(OSError):  # a full or broken stderr is the very place where that would be said
        click.echo(f"specview: {showable(sentence)}", err=True)


def main(args: list[str] | None = None, prog_name: str = "specview") -> NoReturn:
    """Run a command and exit with its code; whatever goes wrong becomes one sentence on stderr."""
    debug = "--debug" in (sys.argv[1:] if args is None else args)[:1]
    streams.settle()
    try:
        result: Any = group.main(args=args, prog_name=prog_name, standalone_mode=False)
        sys.exit(result if isinstance(result, int) else 0)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help() if error.ctx else "", err=False)
        sys.exit(2)
    except click.ClickException as error:
        say(_sentence(_message(error)) + _hint(error))
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        say("interrupted.")
        sys.exit(130)
    except (SpecviewError, EngineError) as error:
        if debug:
            raise
        say(str(error))
        sys.exit(getattr(error, "exit_code", 2))
    except Exception as error:
        if debug:
            raise
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            streams.lead_stdout_nowhere()  # before its last flush at exit fails again
        say(_unforeseen(error))
        sys.exit(1)


def _unforeseen(error: Exception) -> str:
    """What the system refused, where it says so by itself; anything else is a bug of ours."""
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        return f"the output could not be written ({error.strerror}); make room, or send it elsewhere."
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename} cannot be used ({error.strerror}); check the path and its permissions."
    return (
        f"an error that should not happen: {type(error).__name__}: {_one_line(str(error))} "
        "Run it again as `specview --debug …` and report what it prints."
    )


def _one_line(text: str) -> str:
    return _sentence(" ".join(text.split()))


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?", "…")) else f"{text}."


def _message(error: click.ClickException) -> str:
    """click's words; but it likens a mistyped option to those of its length, where a person cuts a long one short."""
    if not isinstance(error, click.NoSuchOption) or error.ctx is None:
        return error.format_message()
    known = [name for param in error.ctx.command.params for name in param.opts if name.startswith(error.option_name)]
    near = known or error.possibilities or []
    return f"{error.message.rstrip('.')}; did you mean {' or '.join(near)}?" if near else error.message


def _hint(error: click.ClickException) -> str:
    if not isinstance(error, click.UsageError) or error.ctx is None:
        return ""
    of_the_group = error.ctx.parent is None  # no such command, or none at all
    if of_the_group or isinstance(error, (click.NoSuchOption, click.MissingParameter)):
        return f" See `{error.ctx.command_path} --help`."
    return ""
