"""The guided tour: what it asks, what it finds in a trace, and what it says. Nothing here draws or runs a model."""
