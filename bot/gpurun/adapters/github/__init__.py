"""GitHub through githubkit."""
