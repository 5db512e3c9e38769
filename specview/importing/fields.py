"""Reading fields of somebody else's JSON: each function returns the value or says which field is wrong."""

from __future__ import annotations

import math
from typing import Any


class FieldError(ValueError):
    """A line does not hold what its format says; the message is half a sentence that names the field."""


def mapping(value: Any, name: str) -> dict[str, Any]:
    """An object."""
    if not isinstance(value, dict):
        raise FieldError(f"{name} is not an object")
    return value


def listing(value: Any, name: str) -> list[Any]:
    """An array."""
    if not isinstance(value, list):
        raise FieldError(f"{name} is not an array")
    return value


def count(value: Any, name: str, *, most: int = 2**31) -> int:
    """A whole number from 0 to `most`."""
    if type(value) is not int or not 0 <= value <= most:
        raise FieldError(f"{name} is not a whole number from 0 to {most}")
    return value


def optional_count(value: Any, name: str) -> int | None:
    """A whole number of 0 or more, or nothing."""
    return None if value is None else count(value, name)


def optional_number(value: Any, name: str) -> float | None:
    """A number, or nothing. NaN passes: it is evidence."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise FieldError(f"{name} is not a number")
    return float(value)


def optional_microseconds(value: Any, name: str) -> int | None:
    """Microseconds as ns, or nothing."""
    number = optional_number(value, name)
    if number is None:
        return None
    if not math.isfinite(number) or not 0 <= number < 2**50:
        raise FieldError(f"{name} is no duration")
    return round(number * 1000)


def optional_text(value: Any, name: str) -> str | None:
    """A string, or nothing."""
    if value is not None and not isinstance(value, str):
        raise FieldError(f"{name} is not a string")
    return value
