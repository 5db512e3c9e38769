"""Errors that a user can understand and mend: `str(error)` is one sentence that says what to do next."""


class SpecviewError(Exception):
    """Something the user asked for cannot be done. `exit_code` is the process's: 2 for wrong usage or input."""

    exit_code = 2


class TraceError(SpecviewError):
    """A trace cannot be opened, read or written."""


class RunFailedError(SpecviewError):
    """A run broke after it had started; what it recorded is kept."""

    exit_code = 1
