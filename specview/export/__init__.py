"""Traces in the formats that people use elsewhere: one module a format, rows streamed from one query a level."""
