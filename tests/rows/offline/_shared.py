"""Definitions and arguments that rows of `offline` share."""

SAMPLES, DIMENSIONS, CRITICS, BATCH = 5, 3, 4, 8
