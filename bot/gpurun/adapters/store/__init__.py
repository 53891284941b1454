"""Rows in SQLite or PostgreSQL."""
