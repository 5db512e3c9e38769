"""Running the engine into a trace: the one place where the engine and the trace store meet."""
