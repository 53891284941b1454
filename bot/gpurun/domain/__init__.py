"""Frozen values and the error tree. No I/O, no vendor package."""
