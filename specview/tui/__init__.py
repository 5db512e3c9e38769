"""The terminal viewer: a headless core (cursor, feed, text flow, lanes) beside widgets, one a file."""
