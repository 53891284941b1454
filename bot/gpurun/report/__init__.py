"""Facts become Markdown and checks, within the forge's limits by construction. Pure."""
