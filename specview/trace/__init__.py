"""Recorded rounds on disk: one SQLite file, any number of runs."""
