"""A comment's text becomes commands. Pure."""
