"""What the examples share, and what is not their point: flags, loops, curves."""
