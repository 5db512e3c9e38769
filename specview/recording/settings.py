"""What a run is asked to do, checked before any model loads. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from engine.round import Sampling

DEFAULT_PROMPT = "Why is the sky blue?"
DEFAULT_GAMMA = 4
EMBEDDED_GAMMA = 3
"""Where the embedded draft decodes fastest; engine/weights/README.md has the measurements."""
TRACE_FOLDER = Path("traces")


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt: a text, or the messages of a conversation."""

    text: str | None
    messages: tuple[Mapping[str, str], ...] = ()
    request_id: str | None = None


@dataclass(frozen=True, slots=True)
class RunSettings:
    """A run as the user asked for it.

    Raises:
        ValueError: a value outside its range, or two that exclude each other; the message is one sentence.
    """

    draft: str | None = None
    target: str | None = None
    prompts: tuple[Prompt, ...] = ()
    prompt_file: Path | None = None
    chat: bool | None = None
    gamma: int | str = DEFAULT_GAMMA
    """Candidates a round; "auto" adapts."""
    draft_min_prob: float = 0.0
    draft_device: str | None = None
    device_map: str | None = None
    sampling: Sampling = field(default_factory=Sampling)
    stop: tuple[str, ...] = ()
    max_new_tokens: int = 128
    seed: int = 0
    device: str = "auto"
    dtype: str = "auto"
    baseline_tokens: int = 16
    top: int = 5
    output: Path | None = None
    force: bool = False
    append: bool = False
    resume: bool = False
    """Continue `output`, at the first prompt that no run of it has finished."""

    def __post_init__(self) -> None:
        if not 0 <= self.draft_min_prob < 1:
            raise ValueError(f"draft-min-prob must be at least 0 and below 1, not {self.draft_min_prob:g}.")
        if self.prompts and self.prompt_file:
            raise ValueError("--prompt and --prompt-file exclude each other; give one of them.")
        if self.force + self.append + self.resume > 1:
            raise ValueError("--force, --append and --resume exclude each other; give one of them.")
        if self.resume and self.output is None:
            raise ValueError("--resume needs the trace to continue; name it with -o.")
        if any(not text for text in self.stop):
            raise ValueError("a stop text must not be empty.")
        if any(prompt.text is not None and not prompt.text.strip() for prompt in self.prompts):
            raise ValueError("the prompt is empty; give --prompt some text.")

    @property
    def from_stdin(self) -> bool:
        """Whether prompts come through stdin, one by one."""
        return str(self.prompt_file) == "-"

    @property
    def single_prompt(self) -> bool:
        """Whether there is but one prompt, without which there is nothing to run."""
        return self.prompt_file is None and len(self.prompts) <= 1

    def trace_path(self, now: datetime) -> Path:
        """Where the run goes: the file asked for, or a new one in `traces/` named by the time."""
        if self.output is not None:
            return self.output
        stem = now.strftime("%Y-%m-%dT%H-%M-%S")
        names = (TRACE_FOLDER / f"{stem}{suffix}.db" for suffix in ("", *(f"-{n}" for n in range(2, 1000))))
        return next(path for path in names if not path.exists())
