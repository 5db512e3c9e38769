"""What the environment asks for."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from specview.errors import SpecviewError

TRACE = "SPECVIEW_TRACE"
SAMPLE = "SPECVIEW_SAMPLE"
TOP = "SPECVIEW_TOP"
TOP_LIMIT = 64


class SettingsError(SpecviewError):
    """An environment variable holds something that cannot be used."""


@dataclass(frozen=True, slots=True)
class Settings:
    path: Path
    share: float = 1.0
    """Share of the requests that is recorded, in [0, 1]."""
    top: int = 5
    """Alternatives kept of each distribution, 0 … `TOP_LIMIT`."""

    def chosen(self, request_id: str) -> bool:
        """Whether a request is recorded. A hash of its name decides, so that every process decides alike."""
        return self.share >= 1 or zlib.crc32(request_id.encode("utf-8", "backslashreplace")) < self.share * 2**32


def from_environment(environment: Mapping[str, str]) -> Settings | None:
    """The settings, or None where `SPECVIEW_TRACE` is not set or empty.

    Raises:
        SettingsError: a value is outside its range; the message names the variable and the range.
    """
    path = environment.get(TRACE, "").strip()
    if not path:
        return None
    share = _number(environment, SAMPLE, 1.0)
    if not 0 <= share <= 1:
        raise SettingsError(f"{SAMPLE} must be between 0 and 1 (a share of the requests), not {share:g}.")
    top = _number(environment, TOP, 5)
    if top != int(top) or not 0 <= top <= TOP_LIMIT:
        raise SettingsError(f"{TOP} must be a whole number from 0 to {TOP_LIMIT} (alternatives kept), not {top:g}.")
    return Settings(Path(path).expanduser(), share, int(top))


def _number(environment: Mapping[str, str], name: str, default: float) -> float:
    text = environment.get(name, "").strip()
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise SettingsError(f"{name} must be a number, not {text!r}.")
    return value
