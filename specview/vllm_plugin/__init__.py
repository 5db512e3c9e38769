"""Watch speculative decoding inside vLLM: a plugin that records what vLLM's own sampler and scheduler did.

Enabled by the environment variable `SPECVIEW_TRACE`; without it nothing is imported, wrapped or written. The draws, the
tokens and the schedule stay vLLM's own: the instrument consumes no random numbers and waits for no device.

- `plugin` is the entry point; `importing` and `signatures` decide what is wrapped, and when.
- `worker`, `tap` and `measure` run where the sampler runs: they gather a step's facts on the device (`capture`);
  on a processor `host` hands them to functions of its own (`compiled`).
- `scheduling` and `recorder` run where the scheduler runs: they turn steps into rounds (`rounds`) and write the trace.
"""
