"""What a machine needs around the bot: set-up, and local services for tests, demo and bench."""
