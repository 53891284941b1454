"""Shared by providers; knows none of them."""
