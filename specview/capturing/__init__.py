"""Capture: record the rounds of an unmodified `model.generate(assistant_model=…)` of transformers.

    import specview

    with specview.capture("run.db"):
        model.generate(**inputs, assistant_model=draft, do_sample=True, temperature=0.7)

`hooks` says where capture listens, `recorder` follows one `generate` call, `analysis` turns what it saw into a `Round`
before the next one begins, and `session` writes the trace.
"""

from specview.capturing.context import Capture, capture
from specview.capturing.errors import CaptureError, CaptureWarning

__all__ = ["Capture", "CaptureError", "CaptureWarning", "capture"]
