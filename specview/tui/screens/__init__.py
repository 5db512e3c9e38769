"""The screens over the main one: help, statistics, comparison, switcher and the small questions."""
