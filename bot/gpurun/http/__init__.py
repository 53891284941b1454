"""Bytes in, rows or HTML out."""
