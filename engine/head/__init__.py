"""A draft head over the target's hidden states: its network, its cache, its folder. `engine.distill` trains it."""
