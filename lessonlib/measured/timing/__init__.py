"""Measured, not computed: timings of this machine, and records of them. The arithmetic imports nothing of this."""
