"""A Docker Engine, on this machine or elsewhere."""

from gpurun.providers.docker.provider import DockerConfig, DockerProvider

__all__ = ["DockerConfig", "DockerProvider"]
