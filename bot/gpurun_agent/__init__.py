"""The agent: runs in the user's container, standard library only, Python >= 3.8."""
