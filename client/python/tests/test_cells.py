"""Tests of cells: the rule, and two nodes of two cells."""

from __future__ import annotations

import asyncio
import os
import unittest
from typing import Any, Dict, List

from node import NodeTest, sb


def file_of(*cells: Dict[str, Any]) -> Dict[str, Any]:
    return {"cell": list(cells)}


def cell(number: Any, prefix: Any, nodes: Any = ["http://127.0.0.1:1"]) -> Dict[str, Any]:
    return {"number": number, "prefix": prefix, "nodes": nodes}


class TestRule(unittest.TestCase):
    def test_names_and_sessions(self) -> None:
        with sb.Cells(file_of(cell(9, ["eu/", "tenant/"]), cell(62, ["", "eu/west/"]))) as cells:
            for name, number in (("db", 62), ("eu/db", 9), ("eu/west/db", 62), ("eu", 62), ("tenant/a", 9)):
                self.assertIs(cells.of(name), cells.numbered(number), name)
            for session, client in (
                (str(9 * 2**47), cells.numbered(9)), (str(10 * 2**47 - 1), cells.numbered(9)), (str(62 * 2**47 + 5), cells.numbered(62)),
                ("7", None), (str(2**64 - 1), None), ("-1", None), ("x", None), ("9" * 5000, None),
            ):  # fmt: skip
                self.assertIs(cells.of_session(session), client, session)
            with self.assertRaises(KeyError):
                cells.numbered(1)
        with sb.Cells(file_of(cell(1, [""]))) as alone:
            self.assertIs(alone.of_session("7"), alone.numbered(1))

    def test_files_that_are_no_cells(self) -> None:
        wrong: List[Any] = [
            {}, [], "cells.toml", {"cell": []}, {"cell": [1]}, {"cell": [cell(1, [""])], "more": 1}, file_of(cell(1, ["eu/"])), file_of(cell(1, [""]), cell(1, ["eu/"])),
            file_of(cell(1, [""]), cell(2, [""])), file_of(cell(1, ["", ""])), file_of(cell(0, [""])), file_of(cell(63, [""])), file_of(cell("1", [""])),
            file_of(cell(1, [])), file_of(cell(1, "")), file_of(cell(1, [1])), file_of(cell(1, [""], [])), file_of(cell(1, [""], [""])),
            file_of({"number": 1, "prefix": [""]}), file_of({**cell(1, [""]), "name": "a"}),
        ]  # fmt: skip
        for file in wrong:
            with self.subTest(file), self.assertRaises((ValueError, TypeError)):
                sb.Cells(file)


class TestCells(NodeTest):
    options = ("--cell", "1")

    def setUp(self) -> None:
        super().setUp()
        eu = self.start_node("--cell", "2")
        self.file = file_of(cell(1, [""], [self.address]), cell(2, ["eu/"], [eu]))
        with sb.Cells(self.file, token=self.tokens["alice"]) as cells:
            for name in ("eu/db", "db"):
                cells.of(name).create(name, 1)
            cells.numbered(2).create("db", 1)  # while a prefix moves, a name may stand in another cell, too

    def test_nodes_of_another_cell(self) -> None:
        one, two = self.file["cell"]
        swapped = file_of({**one, "nodes": two["nodes"]}, {**two, "nodes": one["nodes"]})
        with sb.Cells(swapped, token=self.tokens["alice"], headers={"X-More": "kept"}) as cells, self.assertRaisesRegex(sb.Refused, "This node is of cell 2"):
            cells.of("db").get("db")

    def test_threads(self) -> None:
        cells = sb.Cells(self.file, token=self.tokens["alice"])
        self.assertEqual([s.name for s in cells.list()], ["db", "eu/db"])
        self.assertEqual([s.name for s in cells.list("eu")], ["eu/db"])
        sessions = cells.sessions(ttl=20)
        held = [sessions.of(name).acquire(name) for name in ("db", "eu/db")]
        self.assertIs(sessions.of("eu/x"), sessions.of("eu/db"))
        self.assertEqual([cells.of_session(lease.session) for lease in held], [cells.numbered(1), cells.numbered(2)])
        self.assertTrue(sessions.close())
        with self.assertRaises(sb.Closed):
            sessions.of("db")
        with self.assertRaises(sb.Lost), cells.sessions(ttl=2) as lost:
            cells.of("db").revoke_session(lost.of("db").id)
            lost.of("db").lost.wait(20)
        with cells.sessions() as inherited:
            self.assertEqual(self.in_child(inherited), b"ok")
            inherited.of("eu/db").check()
        with cells.of("eu/db").lease("eu/db", wait=0), cells.of("db").lease("db", wait=0) as last:
            self.assertTrue(cells.close())
            self.assertIsInstance(last.error, sb.Closed)
        with self.assertRaises(sb.Closed):
            cells.of("db").lease("db")

    def in_child(self, sessions: sb.CellSessions) -> bytes:
        """Returns what a child process says that inherits a session, and a lock that is held."""
        mine = sessions.of("eu/db")
        read, write = os.pipe()
        with sessions._turns[2]:
            child = os.fork()
            if child == 0:
                try:
                    own = sessions.of("eu/db")
                    os.write(write, b"ok" if own.id != mine.id and own.error is None and sessions.close() else b"the parent's session")
                except BaseException as e:
                    os.write(write, repr(e).encode())
                finally:
                    os._exit(0)
        os.close(write)
        with open(read, "rb") as said:
            text = said.read()
        os.waitpid(child, 0)
        return text

    def test_asyncio(self) -> None:
        made = sb.AsyncCells(self.file, token=self.tokens["alice"]).sessions()  # outside of the loop

        async def main() -> None:
            first, second = await asyncio.gather(made.of("db"), made.of("db"))
            self.assertIs(first, second)
            self.assertTrue(await made.close())
            with self.assertRaises(sb.Closed):
                await made.of("db")
            await made._cells.close()
            async with sb.AsyncCells(self.file, token=self.tokens["alice"]) as cells:
                self.assertEqual([s.name for s in await cells.list()], ["db", "eu/db"])
                sessions = cells.sessions()
                opened = await asyncio.gather(*(sessions.of(name) for name in ("eu/db", "db", "eu/x")))
                self.assertEqual((opened[0] is opened[2], opened[0] is opened[1]), (True, False))
                async with opened[0].acquire("eu/db") as lease:
                    self.assertIs(cells.of_session(lease.session), cells.of("eu/db"))
                self.assertTrue(await sessions.close())

        asyncio.run(main())
