"""Layers of `setup` for `gpurun cache`: records on this disk, bytes in volumes of the Docker Engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import anyio

from gpurun.adapters.hub.shelf import Limits
from gpurun.adapters.layers import ClearedLayers, KeptLayer, LayerShelf
from gpurun.domain.errors import Refused, Transient, UserError
from gpurun.ports.provider import KeepsLayers
from gpurun.provider_kit import registry
from gpurun.settings import Settings
from gpurun.wiring import MIB, Folders, provider_values


@dataclass(frozen=True, slots=True)
class CachedLayers:
    """Of `gpurun run` or of a server, in one folder."""

    folder: Path
    settings: Settings

    @property
    def shelf(self) -> LayerShelf:
        """The records."""
        return LayerShelf(self.folder / "layers", self.settings.setup_layers_mib * MIB)

    def rows(self, now: datetime) -> Iterator[tuple[KeptLayer, tuple[str, ...]]]:
        """Each with its users; nothing where nothing was ever kept."""
        if (self.folder / "layers").is_dir():
            yield from self.shelf.all(now)

    def clear(self, limits: Limits, now: datetime) -> ClearedLayers:
        """The same limits as for weights, but for the size. Raises UserError when the engine does not answer."""
        if not (self.folder / "layers").is_dir():
            return ClearedLayers()
        everything = limits.max_bytes == 0
        most = 0 if everything else None if limits.used_since else self.settings.setup_layers_mib * MIB or None
        done = self.shelf.clear(most, limits.used_since, now)
        try:
            broken = anyio.run(self._remove_volumes, now)
        except (Transient, Refused) as error:
            raise UserError(
                f"The volumes of {told_number(done.layers)} are still there: {error}",
                hint="Repeat the command when the Docker Engine answers.",
            ) from error
        if broken and done.layers:
            raise UserError(
                f"The volumes of {told_number(done.layers)} are still there: {'; '.join(broken)}.",
                hint="Repeat the command when this is mended.",
            )
        return done

    async def _remove_volumes(self, now: datetime) -> tuple[str, ...]:
        """Why providers could not be asked. Volumes are listed before the records are read."""
        folders, broken = Folders(state=self.folder, cache=self.folder), []
        for name, values in provider_values(self.settings, folders).items():
            provider = registry.open_provider(name, values)
            if isinstance(provider, registry.Broken):
                broken.append(f"the provider {name} cannot be used ({provider.reason})")
                continue
            try:
                if isinstance(provider, KeepsLayers):
                    volumes = await provider.layer_volumes(self.shelf.id())
                    await provider.remove_layers(self.shelf.tidy((), volumes, now))
            finally:
                await provider.close()
        return tuple(broken)


def told_number(layers: int) -> str:
    """`1 setup layer`."""
    return f"{layers} setup layer{'' if layers == 1 else 's'}"


def told(kept: KeptLayer, users: tuple[str, ...]) -> Mapping[str, object]:
    """For scripts."""
    return {
        "repository": kept.repo.partition(":")[2],
        "scope": kept.scope,
        "key": kept.key,
        "sha256": kept.sha256,
        "bytes": kept.size,
        "setup_s": kept.setup_ms / 1000,
        "volume": kept.volume,
        "last_used": datetime.fromtimestamp(kept.used_at, UTC).isoformat(timespec="seconds"),
        "attempts": list(users),
    }
