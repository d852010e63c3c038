"""Tokens and certificates, and the nodes to which they may be sent."""

from __future__ import annotations

import os
import ssl
from typing import Callable, Generic, List, Optional, Sequence, Tuple, TypeVar

from ._nodes import Node, Nodes

T = TypeVar("T")
_Seen = List[Optional[Tuple[int, int, int]]]


class _Followed(Generic[T]):
    """A value that is read from files, and read again after the files change. If the files can't be read then, the previous value stays."""

    def __init__(self, read: Callable[[], T], paths: Sequence[str]) -> None:
        self._read, self._paths = read, paths
        self._seen = self._look()
        self._value = read()

    def get(self, force: bool = False) -> T:
        now = self._look()  # before the files are read, so that a change meanwhile is read the next time
        if force or now != self._seen:
            self._seen = now
            try:
                self._value = self._read()
            except (OSError, ValueError):
                pass
        return self._value

    def _look(self) -> _Seen:
        seen: _Seen = []
        for path in self._paths:
            try:
                s = os.stat(path)
                seen.append((s.st_ino, s.st_size, s.st_mtime_ns))
            except OSError:
                seen.append(None)
        return seen


class Credentials:
    """The token or its file, and the TLS settings. Errors never contain the token."""

    def __init__(
        self, nodes: Nodes, token: Optional[str], token_file: Optional[str], ca: Optional[str], cert: Optional[str], key: Optional[str], insecure_http: bool
    ) -> None:
        if token is not None and token_file is not None:
            raise ValueError("there are a token and a file with a token: give one of them")
        if (cert is None) != (key is None):
            raise ValueError("a certificate and its key belong together: give both files, or neither")
        has_token = token is not None or token_file is not None
        self._gets = {}
        for node in nodes:
            open_ = not node.https and not node.here and not insecure_http
            self._gets[id(node)] = not open_
            turns = any(other.https and (other.host, other.port) == (node.host, node.port) for other in nodes)
            if open_ and (node.basic is not None or has_token and not turns):
                raise ValueError(f"others could read the token on its way to {node}: use https://, or allow plain HTTP with insecure_http=True")
        self._token: Optional[_Followed[str]] = None
        if token_file is not None:
            path = token_file
            self._token = _Followed(lambda: _read_token(path), [path])
        elif token is not None:
            value = _check_token(token, "the token")
            self._token = _Followed(lambda: value, [])
        self.resend = token_file is not None  #: the token may have changed in its file
        self._tls: Optional[_Followed[ssl.SSLContext]] = None
        if any(node.https for node in nodes) or ca or cert:
            self._tls = _Followed(lambda: _context(ca, cert, key), [path for path in (ca, cert, key) if path])

    def authorization(self, node: Node, force: bool = False) -> Optional[str]:
        """Returns the Authorization header for a node. With force, it reads the token file even if the file looks unchanged."""
        if self._token is not None and self._gets[id(node)]:
            return "Bearer " + self._token.get(force)
        return node.basic

    def context(self) -> Optional[ssl.SSLContext]:
        """Returns the TLS settings. It is a new object after each change of the files."""
        return self._tls.get() if self._tls else None


def _read_token(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return _check_token(file.read().strip(), path)


def _check_token(token: str, source: str) -> str:
    if not token:
        raise ValueError(f"{source}: there is no token")
    if any(c <= " " or c > "~" for c in token):
        raise ValueError(f"{source}: a token has no spaces, and no characters but those of ASCII")
    return token


def _context(ca: Optional[str], cert: Optional[str], key: Optional[str]) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=ca)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if cert is not None:
        context.load_cert_chain(cert, key)
    return context
