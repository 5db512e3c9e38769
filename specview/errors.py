"""Errors that a user can understand and mend: `str(error)` is one sentence that says what to do next."""


class SpecviewError(Exception):
    """Something the user asked for cannot be done. `exit_code` is the process's: 2 for wrong usage or input."""

    exit_code = 2


class TraceError(SpecviewError):
    """A trace cannot be opened, read or written."""


class RunFailedError(SpecviewError):
    """A run broke after it had started; what it recorded is kept."""

    exit_code = 1


class EngineMissingError(SpecviewError):
    """Running a pair needs packages that a viewer does without."""

    def __init__(self, missing: ModuleNotFoundError) -> None:
        super().__init__(
            f"running a pair needs the package {missing.name}, which is not installed; "
            "install the engine with `pip install 'specview[engine]'`."
        )
