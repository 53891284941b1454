"""Stage: what happens next to a run and its attempts. Pure."""
