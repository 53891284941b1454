"""Docker Engine, registry and base images for tests."""
