"""What the tour says, one language a file: key → template. Facts come in as `{values}`, never as prose."""
