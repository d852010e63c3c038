"""The addresses of the nodes, and the choice of the node to ask."""

from __future__ import annotations

import base64
import ipaddress
from typing import Iterator, List, Optional, Sequence, Tuple
from urllib.parse import quote, unquote, urlsplit

#: Seconds by which ``pick`` prefers another node to a suspect node.
_SUSPICION = 5.0


class Node:
    """One address."""

    def __init__(self, text: str) -> None:
        try:
            url = urlsplit(text if "://" in text else "http://" + text)
            port = url.port
        except ValueError:
            url, port = urlsplit(""), -1
        shown = text if "@" not in text else text.split("@", 1)[1]  # without the user, because errors must not show a password
        if url.scheme not in ("http", "https") or not url.hostname or port == -1 or url.query or url.fragment:
            raise ValueError(f"address {shown!r} is not the base URL of a node")
        self.https = url.scheme == "https"
        self.name, _, zone = url.hostname.partition("%")  # a URL writes a zone as %25eth0 (RFC 6874)
        if zone.startswith("25") and len(zone) > 2:
            zone = zone[2:]
        if not self.name.isascii():
            self.name = self.name.encode("idna").decode()
        self.host = f"{self.name}%{unquote(zone)}" if zone else self.name
        self.port = port or (443 if self.https else 80)
        self.path = url.path.rstrip("/")
        if any(not " " < c < "\x7f" for c in self.path + self.name):
            raise ValueError(f"address {shown!r} has characters that belong in no URL")
        name = f"[{self.name}]" if ":" in self.name else self.name
        self.authority = f"{name}:{self.port}"  #: for the Host header; no zone, because only this machine knows its zones
        self.basic: Optional[str] = None  #: the user of the address, as a header's value
        if url.username is not None:
            pair = f"{unquote(url.username)}:{unquote(url.password or '')}"
            self.basic = "Basic " + base64.b64encode(pair.encode()).decode()
        self.not_before = 0.0  # the node asked for no request before this time
        self.suspect = False  # the node did not reply to its latest request

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.https else 'http'}://{host}:{self.port}{self.path}"

    @property
    def here(self) -> bool:
        """Whether the host's name says that it is this machine."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


class Nodes:
    """All addresses; remembers which node works. The loop of one client uses it."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._all: List[Node] = [Node(text.strip()) for text in addresses]
        if not self._all:
            raise ValueError("no addresses")
        self._current = 0  # the index of the node that worked last

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Node]:
        return iter(self._all)

    def pick(self, now: float, elsewhere: bool = False) -> Tuple[Node, float]:
        """Returns the node to ask next, and how long to pause first. The last node that worked is next, unless it has failed since or asked for a pause."""
        first = self._current + int(elsewhere)
        ring = [self._all[(first + i) % len(self._all)] for i in range(len(self._all))]
        best = min(ring, key=lambda node: max(0.0, node.not_before - now) + (_SUSPICION if node.suspect else 0.0))
        return best, max(0.0, best.not_before - now)

    def failed(self, node: Node, not_before: float = 0.0, silent: bool = False) -> None:
        """Moves on from a node, unless another call has done so already."""
        node.not_before, node.suspect = not_before, silent
        if self._all[self._current] is node:
            self._current = (self._current + 1) % len(self._all)

    def worked(self, node: Node) -> None:
        """Makes a node the first choice of ``pick``."""
        node.not_before, node.suspect = 0.0, False
        self._current = self._all.index(node)


def encode(segments: Sequence[str]) -> str:
    """Encodes each segment separately, because a name may have a "/". The names "." and ".." are encoded so that no proxy resolves them as folders."""
    return "".join("/" + (s.replace(".", "%2E") if not s.strip(".") else quote(s, safe="")) for s in segments)
