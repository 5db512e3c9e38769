"""The options that `live` and `record` share, and the frozen settings that they become."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from engine.round import Sampling
from specview.recording.settings import DEFAULT_GAMMA, DEFAULT_PROMPT, EMBEDDED_GAMMA, Prompt, RunSettings

SHOW_DEFAULTS = {"show_default": True}
"""Context settings of a command that takes the run options."""

F = TypeVar("F", bound=Callable[..., Any])

MAX_GAMMA = 64
MAX_TOKENS = 2**31 - 1
"""What a trace takes as a count of tokens."""

# options whose value goes into `Sampling` as it is
SAMPLING_NAMES = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "frequency_penalty",
    "presence_penalty",
)

# … and into `RunSettings`
SETTING_NAMES = (
    "draft",
    "target",
    "prompt_file",
    "chat",
    "gamma",
    "draft_min_prob",
    "draft_device",
    "device_map",
    "max_new_tokens",
    "seed",
    "device",
    "dtype",
    "baseline_tokens",
    "top",
    "output",
    "force",
    "append",
    "resume",
)


class Gamma(click.ParamType[int | str]):
    """γ as a number, or `auto`."""

    name = "n|auto"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        if isinstance(value, int) or value == "auto":
            return value  # type: ignore[no-any-return]
        try:
            number = int(value)
        except ValueError:
            self.fail(f"{value!r} is neither a number nor 'auto'", param, ctx)
        if not 0 <= number <= MAX_GAMMA:
            self.fail(f"gamma must be between 0 (plain decoding) and {MAX_GAMMA}, not {number}", param, ctx)
        return number


class LogitBias(click.ParamType[tuple[int, float]]):
    """ID=BIAS, one token."""

    name = "id=bias"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, float]:
        if isinstance(value, tuple):
            return value
        token, _, bias = str(value).rpartition("=")
        try:
            pair = int(token), float(bias)
        except ValueError:
            self.fail(f"{value!r} is not of the form TOKEN_ID=BIAS, such as 50256=-100", param, ctx)
        if pair[0] < 0 or not pair[1] < math.inf:
            self.fail(f"{value!r} must name an id from 0 on, and a bias that is a number or -inf", param, ctx)
        return pair


_RUN_OPTIONS = [
    click.option("--draft", metavar="A", help="Draft: a hub id, folder or .gguf file, or prompt-lookup, self:LAYERS."),
    click.option("--target", metavar="B", help="Target: a hub id, folder or .gguf file.  [default: the embedded pair]"),
    click.option(
        "--prompt", metavar="T", multiple=True, help=f"Prompt text; may be given again.  [default: {DEFAULT_PROMPT}]"
    ),
    click.option(
        "--prompt-file",
        type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
        help="Read the prompt from a file, - for stdin; JSON Lines with `prompt` or `messages` for many.",
    ),
    click.option(
        "--chat/--raw", default=None, help="Wrap prompts in the chat template.  [default: where there is one]"
    ),
    click.option(
        "--gamma",
        type=Gamma(),
        help=f"Candidates per round, 0…64, or auto.  [default: {DEFAULT_GAMMA}, embedded draft: {EMBEDDED_GAMMA}]",
    ),
    click.option("--draft-min-prob", type=float, default=0.0, help="Stop drafting below this draft probability."),
    click.option("--temperature", type=float, default=1.0, help="0 is greedy."),
    click.option(
        "--top-k", type=click.IntRange(0, MAX_TOKENS), default=0, help="Keep the k most probable tokens; 0 keeps all."
    ),
    click.option("--top-p", type=float, default=1.0, help="Keep the smallest set with this probability, (0, 1]."),
    click.option("--min-p", type=float, default=0.0, help="Keep tokens this fraction as probable as the best, [0, 1]."),
    click.option("--repetition-penalty", type=float, default=1.0, help="Above 0; 1 is off."),
    click.option("--frequency-penalty", type=float, default=0.0, help="Per occurrence, [-2, 2]."),
    click.option("--presence-penalty", type=float, default=0.0, help="Per token present, [-2, 2]."),
    click.option(
        "--logit-bias", type=LogitBias(), multiple=True, help="Add BIAS to a token's logit; may be given again."
    ),
    click.option("--stop", multiple=True, metavar="TEXT", help="End the output at this text; may be given again."),
    click.option(
        "--max-new-tokens", type=click.IntRange(1, MAX_TOKENS), default=128, help="Length limit of the output."
    ),
    click.option("--seed", type=click.IntRange(0, 2**63 - 1), default=0, help="Seed of the one random generator."),
    click.option("--device", default="auto", help="auto, cpu, cuda, cuda:N, mps."),
    click.option("--draft-device", metavar="TEXT", help="Another device for the draft.  [default: the target's]"),
    click.option("--device-map", type=click.Choice(["auto"]), help="Spread the target over several devices."),
    click.option(
        "--dtype",
        type=click.Choice(["auto", "float32", "bfloat16", "float16"]),
        default="auto",
        help="Parameter type.",
    ),
    click.option(
        "--baseline-tokens",
        type=click.IntRange(0, MAX_TOKENS),
        default=16,
        help="Plain decoding to measure first; 0 = none.",
    ),
    click.option("--top", type=click.IntRange(0, 50), default=5, help="Alternatives of p and q to record."),
    click.option(
        "-o", "--output", type=click.Path(path_type=Path), help="Trace to write.  [default: a new file in traces/]"
    ),
    click.option("--force", is_flag=True, help="Overwrite the output file."),
    click.option("--append", is_flag=True, help="Add the run to an existing trace."),
    click.option("--resume", is_flag=True, help="Continue the trace at the first prompt that it has not finished."),
]


def run_options(command: F) -> F:
    """Add the options that describe a run; `settings_from` turns their values into `RunSettings`."""
    for option in reversed(_RUN_OPTIONS):
        command = option(command)
    return command


def settings_from(options: dict[str, Any]) -> RunSettings:
    """Check every value before a model loads.

    Raises:
        click.UsageError: one sentence with the allowed range.
    """
    try:
        return RunSettings(
            prompts=tuple(Prompt(text) for text in options["prompt"]),
            stop=tuple(options["stop"]),
            sampling=Sampling(
                **{name: options[name] for name in SAMPLING_NAMES}, logit_bias=dict(options["logit_bias"])
            ),
            **{name: options[name] for name in SETTING_NAMES} | {"gamma": _gamma(options)},
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _gamma(options: dict[str, Any]) -> int | str:
    asked: int | str | None = options["gamma"]
    if asked is not None:
        return asked
    embedded = options["draft"] is None and options["target"] is None
    return EMBEDDED_GAMMA if embedded else DEFAULT_GAMMA


def as_arguments(settings: RunSettings) -> list[str]:
    """The command line that stands for these settings, but for the prompts and the output file."""
    sampling = settings.sampling
    pairs: list[tuple[str, Any]] = [
        ("--draft", settings.draft),
        ("--target", settings.target),
        ("--gamma", settings.gamma),
        ("--draft-min-prob", settings.draft_min_prob),
        ("--draft-device", settings.draft_device),
        ("--device-map", settings.device_map),
        *((f"--{name.replace('_', '-')}", getattr(sampling, name)) for name in SAMPLING_NAMES),
        *(("--logit-bias", f"{token}={bias!r}") for token, bias in sampling.logit_bias.items()),
        *(("--stop", text) for text in settings.stop),
        ("--max-new-tokens", settings.max_new_tokens),
        ("--seed", settings.seed),
        ("--device", settings.device),
        ("--dtype", settings.dtype),
        ("--baseline-tokens", settings.baseline_tokens),
        ("--top", settings.top),
    ]
    # `--name=value`, so that a value that begins with a dash stays a value
    arguments = [f"{name}={value}" for name, value in pairs if value is not None]
    if settings.chat is not None:
        arguments.append("--chat" if settings.chat else "--raw")
    flags = ("force", "append", "resume")
    return arguments + [f"--{flag}" for flag in flags if getattr(settings, flag)]
