"""What capture has to say to the program it listens to."""

from specview.errors import RunFailedError


class CaptureError(RunFailedError):
    """Recording could not start, or stopped before the block ended. The generation itself was not touched."""


class CaptureWarning(UserWarning):
    """Something was not recorded that the user may have expected to be."""
