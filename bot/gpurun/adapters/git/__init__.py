"""Bare mirrors of git repositories."""
