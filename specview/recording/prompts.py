"""Prompts from a file or stdin: plain text is one prompt, JSON Lines are many, read as they come."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from specview.errors import SpecviewError
from specview.recording.settings import Prompt


class PromptFileError(SpecviewError):
    """A prompt file cannot be read."""


def read_prompts(path: Path) -> Iterator[Prompt]:
    """Yield the prompts of a file; `-` is stdin, whose JSON lines are taken one by one as they arrive.

    The file is JSON Lines when its first line that is not blank is a JSON object, otherwise it is one prompt.

    Raises:
        PromptFileError: the file is not UTF-8, holds no prompt, or a line is no object with `prompt` or `messages`.
    """
    name = "stdin" if str(path) == "-" else str(path)
    found = False
    try:
        # closefd: stdin stays open for whoever owns it
        source = sys.stdin.fileno() if str(path) == "-" else path
        with open(source, encoding="utf-8-sig", closefd=str(path) != "-") as lines:
            for prompt in _parse(lines, name):
                found = True
                yield prompt
    except UnicodeDecodeError as error:
        raise PromptFileError(f"{name} is not UTF-8 text; convert it and try again.") from error
    except OSError as error:
        raise PromptFileError(f"cannot read the prompt file {name}: {error.strerror}.") from error
    if not found:
        raise PromptFileError(f"{name} holds no prompt.")


def to_json_line(prompt: Prompt) -> str:
    """A prompt as one line of JSON Lines, the form that `read_prompts` takes from a pipe."""
    content = {"messages": list(prompt.messages)} if prompt.text is None else {"prompt": prompt.text}
    return json.dumps(content if prompt.request_id is None else content | {"id": prompt.request_id}) + "\n"


def _parse(lines: Iterable[str], name: str) -> Iterator[Prompt]:
    text: list[str] = []
    is_json = False
    for number, line in enumerate(lines, 1):
        if not text and not is_json and not line.strip():
            continue
        if not text and (is_json or line.lstrip().startswith("{")):
            is_json = True
            if line.strip():
                yield _from_json(line, f"{name}, line {number}")
        else:
            text.append(line)
    if text:
        yield Prompt("".join(text).rstrip("\n"))


def _from_json(line: str, where: str) -> Prompt:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise PromptFileError(f"{where} is not valid JSON; each line must be one object.") from error
    if not isinstance(record, dict):
        raise PromptFileError(f"{where} is not a JSON object with `prompt` or `messages`.")
    request_id = record.get("id")
    request_id = None if request_id is None else str(request_id)
    match record:
        case {"prompt": str(text)} if text.strip():
            return Prompt(text, request_id=request_id)
        case {"messages": [*messages]} if messages and all(_is_message(m) for m in messages):
            return Prompt(None, tuple({"role": m["role"], "content": m["content"]} for m in messages), request_id)
    raise PromptFileError(f"{where} needs a non-empty `prompt` text, or `messages` with role and content.")


def _is_message(message: Any) -> bool:
    return (
        isinstance(message, Mapping)
        and isinstance(message.get("role"), str)
        and isinstance(message.get("content"), str)
    )
