"""The panes of the main screen, one a file."""
