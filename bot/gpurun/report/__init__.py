"""Stage: facts become a comment, a check, a page. Pure."""
