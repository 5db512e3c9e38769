"""The instrumented draft–verify engine: runs two models, yields one `Round` after the other.

Importing this package costs nothing: torch and transformers are imported by the modules that need them,
so `engine.round` (the vocabulary shared with the viewers) works where neither is installed.
"""
