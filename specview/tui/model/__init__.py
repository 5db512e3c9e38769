"""What the screen knows, without a screen: plain data and pure functions, testable without Textual."""
