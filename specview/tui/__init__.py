"""The terminal viewer: a headless core (cursor, feed, text flow, lanes) beside widgets, one a file."""

import os

# Textual paints what changed at the next tick of this clock; at its own 60 Hz a key waits 8 ms for that on average.
# Nothing is painted when nothing changed, so a faster clock costs nothing. It is read when Textual is imported.
os.environ.setdefault("TEXTUAL_FPS", "240")
