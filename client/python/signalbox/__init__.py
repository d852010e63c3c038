"""The Python client of Signalbox, a clustered service of counting semaphores::

    from signalbox import Client

    with Client(["http://n1:8701", "http://n2:8701", "http://n3:8701"]) as client:
        with client.lease("db", count=2, wait=30) as lease:
            work(lease.token)  # and look at lease.lost now and then

What callers can rely on:

1. When a lease ends because it was not renewed, or by ``max_hold``, ``lease.lost`` is set before the cluster grants the permits to another client, even if
   this process can reach no node. Deadlines count from when a request was sent, by a clock that goes on while the machine sleeps (CLOCK_BOOTTIME).
   ``lost`` is set late after a pause of the process, a revocation by an operator, or the deletion of the semaphore; in these cases ``lease.token`` protects.
2. A call that changes something is carried out at most once, even if it is repeated, and a waiting request keeps its place in line while nodes fail.
3. Each client has a thread that renews all its leases. So leases go on while the main thread computes or blocks, and while an event loop is blocked. Leases
   are lost if code holds the interpreter's lock for longer than the ttl; ``lost`` says so when it is read afterwards.
4. Releases go on in the background until a node has confirmed them, or until the deadline, when the cluster ends the lease itself.

5. A client works on both sides of ``os.fork``. The child opens its own connections, and has lost the sessions and leases that it inherited. The
   parent's sessions and leases go on. Clients can't be pickled.
6. When the program ends, its sessions and leases are ended. If no node confirms that within a second, they end with their ttl.

The package needs the standard library alone.
"""

from ._cells import AsyncCells, AsyncCellSessions, Cells, CellSessions
from ._client import KEEP, Client, Group, LostHold, Semaphore
from ._errors import (
    Canceled, Closed, Deleted, ExpiredSession, Forbidden, Hierarchy, InvalidRequest, KeyReused, LeaseExists, LimitReached, LineFull, Lost, Never, NotHeld,
    NotLost, NotRenewed, NoTotal, Over, Overflow, PreconditionFailed, Refused, RequestsWaiting, Revoked, SignalboxError, Superseded, Unauthenticated,
    Unavailable, UnknownGroup, UnknownSemaphore, UnknownSession, Unreachable, WaitEnded,
)  # fmt: skip
from ._session import Lease, Session
from ._time import Cancel
from ._values import Want
from .aio import AsyncClient, AsyncLease, AsyncSession

__version__ = "0.2.0"

__all__ = [
    "KEEP", "AsyncCells", "AsyncCellSessions", "AsyncClient", "AsyncLease", "AsyncSession", "Cancel", "Canceled", "CellSessions", "Cells",
    "Client", "Closed", "Deleted", "ExpiredSession", "Forbidden", "Group",
    "Hierarchy", "InvalidRequest", "KeyReused", "Lease", "LeaseExists", "LimitReached", "LineFull", "Lost", "LostHold", "Never", "NoTotal", "NotHeld",
    "NotLost", "NotRenewed", "Over", "Overflow", "PreconditionFailed", "Refused", "RequestsWaiting", "Revoked", "Semaphore", "Session", "SignalboxError",
    "Superseded", "Unauthenticated", "Unavailable", "UnknownGroup", "UnknownSemaphore", "UnknownSession", "Unreachable", "Want", "WaitEnded",
]  # fmt: skip
