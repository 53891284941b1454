"""One transaction: all groups of rows together."""

from __future__ import annotations

from gpurun.adapters.store.approvals import ApprovalTable
from gpurun.adapters.store.attempts import AttemptTable
from gpurun.adapters.store.audit import AuditTable
from gpurun.adapters.store.gates import GateTable
from gpurun.adapters.store.inbox import InboxTable
from gpurun.adapters.store.installs import InstallTable
from gpurun.adapters.store.leases import LeaseRows
from gpurun.adapters.store.pieces import PieceRows
from gpurun.adapters.store.providers import ProviderTable
from gpurun.adapters.store.publications import PublicationTable
from gpurun.adapters.store.runs import RunTable
from gpurun.adapters.store.secrets import SecretTable
from gpurun.adapters.store.streams import StreamTable


class Transaction(
    LeaseRows,
    InboxTable,
    RunTable,
    AttemptTable,
    StreamTable,
    PieceRows,
    ProviderTable,
    PublicationTable,
    InstallTable,
    ApprovalTable,
    GateTable,
    SecretTable,
    AuditTable,
):
    """`ports.store.Tx`."""
