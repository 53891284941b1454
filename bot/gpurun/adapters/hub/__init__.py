"""The Hugging Face Hub."""

from gpurun.adapters.hub.client import HuggingFaceHub

__all__ = ["HuggingFaceHub"]
