"""specview: see every round of speculative decoding."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specview.capturing import capture as capture

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # Capture listens to torch and transformers; whoever only looks at traces must not pay for importing them.
    if name == "capture":
        from specview.capturing import capture

        return capture
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
