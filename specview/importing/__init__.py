"""Traces out of other engines' logs, as far as their fields go; what a log lacks stays NULL.

`vllm` and `llama_cpp` each turn lines into `Step`s; `run` writes them.
"""
