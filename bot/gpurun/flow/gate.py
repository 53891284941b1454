"""The look of a gate: what the base branch requires of the head of a pull request. Reads, and then one commit.

A gate is opened without asking anybody, by a delivery that may be late, wrong or about something else. Here the forge
is asked, and what it says counts: a head that moved opens the gate of the new one, a closed pull request ends them all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import anyio.to_thread
import structlog

from gpurun.domain.errors import Bug, ForgeLimited, ForgeRefused, ForgeSuspended, ForgeUnavailable, Transient, UserError
from gpurun.domain.folder import MAX_DEPTH, beside, config_path
from gpurun.domain.forge import ChangedFiles, PullRequest, RepoFile
from gpurun.domain.gate import Gate, GateLook, GateState
from gpurun.domain.ids import BranchName, CommitSha
from gpurun.domain.lock import Lock
from gpurun.domain.pace import DEFAULT, Budget, have_read, may_read
from gpurun.domain.publication import Publication, PublicationKind
from gpurun.domain.run import AuditEntry
from gpurun.flow import edges, failpoints, gates
from gpurun.flow.gate_facts import gate_facts
from gpurun.flow.limits import limited, suspended
from gpurun.flow.look import (
    CALL_TIMEOUT_S,
    FILES_A_REQUEST,
    MAX_FOLDERS,
    TOO_MUCH,
    touched_folders,
)
from gpurun.plan.gate import Folder, Side, Touched, look, names_what_moves
from gpurun.plan.lock import LOCK_NAME, MAX_LOCK_BYTES, read_lock, without_files
from gpurun.plan.source import MAX_BYTES as CONFIG_MAX_BYTES
from gpurun.ports.clock import Chance
from gpurun.ports.forge import Forge
from gpurun.ports.store import Lease, Store, Tx
from gpurun.report.standing import Stand, stand_of

MAX_TRIES = 5
"""Failures after which the gate says that nobody can know."""
AGAIN = timedelta(minutes=15)
"""When such a gate, and one of a forge that refuses, is looked at again."""
UNAUTHORIZED = 401
MAX_NEEDS = 20
"""Checks of jobs that nobody has started, for one commit: each is a write."""
MAX_LOCKS = 10
"""Folders whose lock is read, on both sides."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What the forge said."""

    pull_request: PullRequest
    look: GateLook | None = None
    """None where nobody looked further: another head, or closed."""
    reads: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GateKeeper:
    """Handler of `gate` rows."""

    store: Store
    forge: Forge
    chance: Chance
    budget: Budget = DEFAULT
    """Of each installation."""

    async def __call__(self, lease: Lease) -> None:
        """One step: read the row, ask the forge, commit."""
        gate, wait_until = await self.store.read(lambda tx: self._read(tx, lease))
        if wait_until is not None:
            await self._later(lease, lambda _tx: wait_until)
            return
        try:
            found = await self._look(gate)
        except ForgeLimited as limit:
            told = limit
            await self._later(lease, lambda tx: limited(tx, gate.repo.installation_id, told))
        except ForgeSuspended:
            await self._later(lease, lambda tx: suspended(tx, gate.repo.installation_id)[0])
        except ForgeRefused as refused:
            if refused.status == UNAUTHORIZED:  # the App's key or our clock is wrong, and it may pass
                raise ForgeUnavailable(str(refused)) from refused
            await self._unknown(lease, gate, f"GitHub refused to say what this commit holds: {refused}")
        except Transient as error:
            if lease.tries < MAX_TRIES:
                raise
            await self._unknown(lease, gate, f"GitHub could not be asked what this commit holds: {error}")
        else:
            await edges.commit(self.store, failpoints.GATE_COMMIT, lambda tx: self._apply(tx, lease, gate, found))

    def _read(self, tx: Tx, lease: Lease) -> tuple[Gate, datetime | None]:
        """The row, and until when the forge must not be asked for it (None: now)."""
        gate = tx.gate(lease.id)
        if gate is None:
            raise Bug(f"The gate {lease.id} vanished.")
        installation_id, now = gate.repo.installation_id, tx.now()
        until = tx.install_pause(installation_id) or may_read(tx.pace(installation_id), now, budget=self.budget)
        return gate, until if until > now else None

    async def _later(self, lease: Lease, when: Callable[[Tx], datetime]) -> None:
        """Not a try, and no fault of the gate's."""
        await edges.commit(self.store, failpoints.GATE_LATER, lambda tx: tx.release(lease, due_at=when(tx)))

    # asking

    async def _look(self, gate: Gate) -> _Found:
        """What is changed first: it is of this head, or of a later one, whose own delivery looks again."""
        changed = await self._changed(gate)
        pull_request = await edges.call(
            failpoints.GATE_PULL_REQUEST,
            lambda: self.forge.pull_request(gate.repo, gate.pr),
            timeout_s=CALL_TIMEOUT_S,
        )
        reads = 2 + len(changed.paths) // FILES_A_REQUEST
        if not pull_request.open or pull_request.head_sha != gate.sha:
            return _Found(pull_request=pull_request, reads=reads)
        touched = await anyio.to_thread.run_sync(touched_folders, changed.paths)
        names = ("", *touched[:MAX_FOLDERS])
        folders = await self._files(gate, pull_request, names)
        folders, locks = await self._with_locks(gate, pull_request, folders)
        all_there = changed.all_there and len(touched) <= MAX_FOLDERS and locks <= MAX_LOCKS
        changes = Touched(paths=changed.paths, all_there=all_there)
        seen = await anyio.to_thread.run_sync(lambda: look(folders, changes, base_ref=pull_request.base_ref))
        asked_for = sum(min(name.count("/") + 1, MAX_DEPTH) if name else 0 for name in names) + len(folders)
        return _Found(pull_request=pull_request, look=seen, reads=reads + 2 * asked_for + 4 * locks + 3)

    async def _changed(self, gate: Gate) -> ChangedFiles:
        try:
            return await edges.call(
                failpoints.GATE_CHANGED_FILES,
                lambda: self.forge.changed_files(gate.repo, gate.pr),
                timeout_s=CALL_TIMEOUT_S,
            )
        except ForgeRefused as refused:
            if refused.status != TOO_MUCH:
                raise
            return ChangedFiles(paths=(), all_there=False)

    async def _files(self, gate: Gate, pull_request: PullRequest, names: Sequence[str]) -> tuple[Folder, ...]:
        """Of the folders that hold a file on either side."""
        paths = tuple(map(config_path, names))
        branch = BranchName(pull_request.base_ref)
        base = await self._read_base(gate, branch, paths, CONFIG_MAX_BYTES)
        head = await self._read_head(gate, paths, CONFIG_MAX_BYTES)
        return tuple(
            Folder(folder=name, base=_side(base.get(path)), head=_side(head.get(path)))
            for name, path in zip(names, paths, strict=True)
            if path in base or path in head
        )

    async def _with_locks(
        self, gate: Gate, pull_request: PullRequest, folders: tuple[Folder, ...]
    ) -> tuple[tuple[Folder, ...], int]:
        """With what `.gpurun.lock` says on both sides, where a required job asks for it; and how many do."""
        moving = await anyio.to_thread.run_sync(lambda: [one for one in folders if names_what_moves(one)])
        asked = [beside(one.folder, LOCK_NAME) for one in moving[:MAX_LOCKS]]
        if not asked:
            return folders, 0
        base = await self._read_base(gate, BranchName(pull_request.base_ref), asked, MAX_LOCK_BYTES)
        head = await self._read_head(gate, asked, MAX_LOCK_BYTES)

        def locked() -> tuple[Folder, ...]:
            paths = {one.folder: beside(one.folder, LOCK_NAME) for one in folders}
            return tuple(
                replace(one, base_lock=_lock(base.get(paths[one.folder])), head_lock=_lock(head.get(paths[one.folder])))
                for one in folders
            )

        return await anyio.to_thread.run_sync(locked), len(moving)

    async def _read_base(
        self, gate: Gate, branch: BranchName, paths: Sequence[str], max_bytes: int
    ) -> dict[str, RepoFile]:
        found = await edges.call(
            failpoints.GATE_BASE_FILES,
            lambda: self.forge.read_files(gate.repo, branch, paths, max_bytes=max_bytes),
            timeout_s=CALL_TIMEOUT_S,
        )
        return {file.path: file for file in found}

    async def _read_head(self, gate: Gate, paths: Sequence[str], max_bytes: int) -> dict[str, RepoFile]:
        sha: CommitSha = gate.sha
        found = await edges.call(
            failpoints.GATE_HEAD_FILES,
            lambda: self.forge.read_files(gate.repo, sha, paths, max_bytes=max_bytes),
            timeout_s=CALL_TIMEOUT_S,
        )
        return {file.path: file for file in found}

    # writing

    def _apply(self, tx: Tx, lease: Lease, gate: Gate, found: _Found) -> None:
        """The one transaction."""
        installation_id = gate.repo.installation_id
        paid = have_read(tx.pace_to_change(installation_id), tx.now(), found.reads, budget=self.budget)
        tx.save_pace(installation_id, paid)
        pull_request = found.pull_request
        if found.look is None:
            self._over(tx, lease, gate, pull_request)
        else:
            self._seen(tx, lease, gate, found.look)

    def _over(self, tx: Tx, lease: Lease, gate: Gate, pull_request: PullRequest) -> None:
        """Another head, or closed."""
        if not tx.release(lease, due_at=None):
            return
        pushed = f"a push: the head is {pull_request.head_sha[:12]} now"
        why = pushed if pull_request.open else "the end of the pull request"
        _end_resting(tx, gate, why, all_but=pull_request.head_sha if pull_request.open else None)
        gates.asked(tx, self.chance, gate.repo, pull_request)

    def _seen(self, tx: Tx, lease: Lease, gate: Gate, seen: GateLook, *, again: timedelta | None = None) -> None:
        now = tx.now()
        due_at = None if again is None else now + again
        saved = replace(gate, state=GateState.OPEN, due_at=due_at, tries=0, last_error="", look=seen, looked_at=now)
        if not tx.save_gate(saved, lease):
            return
        if again is None:
            _end_resting(tx, gate, f"a push: the head is {gate.sha[:12]} now", all_but=gate.sha)
        known = {(one.kind, one.text) for one in tx.publications_of_gate(gate.id)}
        tx.raise_gate(gate.repo, gate.pr)
        if (PublicationKind.GATE, "") not in known and (seen.needed or seen.fault or seen.unsure):
            tx.publish(self._publication(tx, gate, PublicationKind.GATE))
            data: dict[str, str | int | None] = {"gate": gate.id, "sha": gate.sha, "required": len(seen.needed)}
            subject = f"repo:{gate.repo.name}#{gate.pr}"
            tx.audit(AuditEntry(at=now, actor="engine", kind="gate_opened", subject=subject, data=data))
        facts = gate_facts(tx, saved)
        waiting = [
            need for need in facts.needs if not need.needed.by_head and stand_of(need, facts) is Stand.NOT_STARTED
        ]
        for need in waiting[:MAX_NEEDS]:
            if (PublicationKind.NEED, need.name) not in known:
                tx.publish(self._publication(tx, gate, PublicationKind.NEED, need.name))

    def _publication(self, tx: Tx, gate: Gate, kind: PublicationKind, text: str = "") -> Publication:
        now = tx.now()
        return Publication(
            id=self.chance.ulid(),
            kind=kind,
            repo=gate.repo,
            pr=gate.pr,
            run_id="",
            text=text,
            comment_id=0,
            nonce=self.chance.token(8),
            created_at=now,
            due_at=now,
            gate_id=gate.id,
        )

    async def _unknown(self, lease: Lease, gate: Gate, why: str) -> None:
        """Nobody can know what is required, and that is told. It may pass."""
        log.warning("gate_unknown", gate=gate.id, why=why)
        seen = replace(gate.look or GateLook(base_ref=gate.base_ref), fault=why[:500])
        await edges.commit(
            self.store, failpoints.GATE_UNKNOWN, lambda tx: self._seen(tx, lease, gate, seen, again=AGAIN)
        )


def _end_resting(tx: Tx, gate: Gate, why: str, *, all_but: CommitSha | None) -> None:
    """Gates of the pull request that nobody opened anew meanwhile; those look for themselves."""
    for one in tx.gates(gate.repo, gate.pr):
        if one.due_at is None and one.sha != all_but:
            gates.end(tx, one, why)


def _side(file: RepoFile | None) -> Side:
    if file is None:
        return Side()
    if file.content is None:
        return Side(fault=f"it is larger than the {CONFIG_MAX_BYTES:,} bytes that are read.")
    # undecodable bytes become lone surrogates, which `plan.load` reports with their position
    return Side(text=file.content.decode("utf-8", "surrogateescape"))


def _lock(file: RepoFile | None) -> Lock:
    """One that cannot be read holds nothing: what it pinned is a change then."""
    if file is None or file.content is None:
        return Lock()
    try:
        return without_files(read_lock(file.content))
    except UserError:
        return Lock()
