"""Stage: what the agent sent becomes facts and figures. Pure."""
