"""Checks of the arguments of calls, before a request is sent."""

from __future__ import annotations

import functools
import os
import socket
from dataclasses import astuple, dataclass
from numbers import Real
from operator import index
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from ._errors import InvalidRequest
from ._time import Cancel


@dataclass(frozen=True)
class Want:
    """A semaphore and what to acquire of it. ("name", 2) is short for Want("name", 2), and "name" for Want("name")."""

    name: str
    count: int = 1
    group: str = ""

    @property
    def place(self) -> Place:
        return self.name, self.group


Wants = Union[Mapping[str, int], Sequence[Union[str, Tuple[str, int], Want]]]
Place = Tuple[str, str]  #: a semaphore and a group: a session has at most one lease in each place

_LONGEST = 100 * 365 * 86400.0  # seconds: nodes accept no longer ttl
LARGEST = 2**63 - 1
_MOST_PAIRS, _MOST_BYTES = 16, 1024  # of metadata
_LONGEST_GROUP = 128  # bytes


def _invalid(field: str, detail: str) -> InvalidRequest:
    return InvalidRequest(400, {"detail": detail, "field": field})


def seconds(name: str, value: Any, least: float = 0.0) -> float:
    """Checks a number of seconds."""
    if isinstance(value, bool) or not isinstance(value, (int, float, Real)):  # int and float too, because isinstance with Real fails while the interpreter ends
        raise TypeError(f"{name} is a number of seconds, not {type(value).__name__} {value!r}")
    if not least <= float(value) <= _LONGEST:  # NaN fails too
        raise _invalid(name, f"{name} is a number of seconds between {least:g} and {_LONGEST:g}, not {value!r}")
    return float(value)


def milliseconds(duration: float) -> int:
    """Rounds up, so that a wait is never shortened."""
    return max(0, -int(-duration * 1000 // 1))


def some_seconds(name: str, value: Any) -> Optional[float]:
    """Checks a number of seconds, or None, which means no limit."""
    return None if value is None else seconds(name, value)


def whole(name: str, value: Any, least: int = 1, largest: int = LARGEST) -> int:
    try:
        number = None if isinstance(value, bool) else index(value)
    except TypeError:
        number = None
    if number is None:
        raise TypeError(f"{name} is an integer, not {type(value).__name__} {value!r}")
    if not least <= number <= largest:
        raise _invalid(name, f"{name} is an integer between {least} and {largest}, not {number}")
    return number


def text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name} is a str, not {type(value).__name__}")  # it may be a secret
    value.encode()  # UnicodeEncodeError, a ValueError, for half a surrogate pair
    return value


def flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{name} is a bool, not {type(value).__name__} {value!r}")
    return value


def semaphore(value: Any) -> str:
    if not text("the name of a semaphore", value):
        raise _invalid("name", "a semaphore's name has 1 to 512 bytes")
    return str(value)


def group(value: Any) -> str:
    if len(text("group", value).encode()) > _LONGEST_GROUP or any(c < " " or "\x7f" <= c <= "\x9f" for c in value):
        raise _invalid("group", f"a group has up to {_LONGEST_GROUP} bytes without control characters")
    return str(value)


def group_segment(value: Any) -> str:
    """Returns the path segment of a group. A "-" is added to a name that is empty or starts with "-", because a segment can't be empty."""
    name = group(value)
    return "-" + name if name[:1] in ("", "-") else name


def want(name: Any, count: Any = 1, group_name: Any = "") -> Want:
    """Checks the arguments of an acquire."""
    return Want(semaphore(name), whole("count", count), group(group_name))


def wants(value: Any) -> List[Want]:
    """Checks the semaphores of an acquire of several semaphores."""
    if isinstance(value, (str, bytes)) or not isinstance(value, (Mapping, Sequence)):
        raise TypeError(f"several semaphores are a mapping of names to counts, or a sequence of Wants or names, not {type(value).__name__} {value!r}")
    items = value.items() if isinstance(value, Mapping) else value
    return [want(*(astuple(item) if isinstance(item, Want) else item if isinstance(item, tuple) else (item,))) for item in items]


def query(epoch: Any = None, group_name: Any = "") -> Dict[str, str]:
    """Returns the query that names an epoch and a group."""
    pairs = {} if epoch is None else {"epoch": str(whole("epoch", epoch, 0))}
    return {**pairs, "group": group(group_name)} if group_name != "" else pairs


def head_start(value: Any) -> Dict[str, Any]:
    """Returns the members of a body that ask for a head start."""
    given = milliseconds(seconds("head_start", value))
    return {"head_start": given} if given else {}


def cancel(value: Any) -> Optional[Cancel]:
    if value is not None and not isinstance(value, Cancel):
        raise TypeError(f"cancel is a Cancel, not {type(value).__name__}")
    return value


def headers(value: Any) -> Dict[str, str]:
    """Checks headers: a line break in a value could inject further headers."""
    if not isinstance(value, Mapping):
        raise TypeError(f"headers are a mapping of str to str, not {type(value).__name__}")
    pairs = {text("a header", name): text(f"the header {name!r}", value[name]) for name in value}
    for name, content in pairs.items():
        if not name or any(not "!" <= c <= "~" or c == ":" for c in name) or any(not (" " <= c <= "\xff" and c != "\x7f" or c == "\t") for c in content):
            raise ValueError(f"the header {name!r} has characters that no header may have")
        if name.lower() in ("host", "content-length", "transfer-encoding", "connection"):
            raise ValueError(f"the header {name!r} is the client's own")
    return pairs


def metadata(value: Any) -> Dict[str, str]:
    if not isinstance(value, Mapping):
        raise TypeError(f"metadata is a mapping of str to str, not {type(value).__name__}")
    return {text("a key of metadata", key): text(f"the metadata {key!r}", value[key]) for key in value}


def with_process(pairs: Dict[str, str]) -> Dict[str, str]:
    """Adds the host, process id and user, unless the caller gave the key, or the metadata would exceed the limits of the nodes."""
    result = dict(pairs)
    host, user = _names(getattr(os, "geteuid", int)())
    for key, value in (("host", host), ("pid", str(os.getpid())), ("user", user)):
        size = sum(len(text.encode()) for pair in (*result.items(), (key, value)) for text in pair)
        if value and key not in result and len(result) < _MOST_PAIRS and size <= _MOST_BYTES:
            result[key] = value
    return result


@functools.lru_cache(maxsize=None)
def _names(uid: int) -> List[str]:
    """Returns the names of the host and the user. They are cached, because the lookup may use the network."""
    try:
        import pwd

        user = pwd.getpwuid(uid).pw_name
    except ImportError:  # no Unix
        user = os.environ.get("USERNAME", "")
    except KeyError:  # a container's user often has no name
        user = str(uid)
    return [name.encode(errors="ignore")[:64].decode(errors="ignore") for name in (socket.gethostname(), user)]
