"""Stage: a comment becomes commands. Pure."""
