"""Where this project lies. Files that gpurun writes, and what it says of a file, point there."""

from __future__ import annotations

PROJECT_URL = "https://github.com/gpurun/gpurun"
SCHEMA_URL = "https://raw.githubusercontent.com/gpurun/gpurun/main/docs/reference/gpurun-yml.schema.json"
REFERENCE_URL = f"{PROJECT_URL}/blob/main/docs/reference/gpurun-yml.md"
