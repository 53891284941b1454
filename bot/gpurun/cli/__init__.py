"""Argument parsing and terminal output."""
