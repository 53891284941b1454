"""gpurun: a comment on a pull request becomes a pinned GPU run that reports back."""

__version__ = "0.1.0"
