"""Immutable byte strings in a local folder."""
