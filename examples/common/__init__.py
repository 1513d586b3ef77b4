"""Shared code of the examples: flags, training loops, networks, replay and plots."""
