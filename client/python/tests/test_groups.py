"""Tests of groups and settings against a node."""

from __future__ import annotations

import asyncio
import threading
import unittest

from node import NodeTest, sb
from signalbox import Superseded, Want


class TestGroups(NodeTest):
    def test_settings(self) -> None:
        c, name = self.client, self.name
        made, created = c.put(name, 9, groups="owner", per_group=2, paused="drill", max_waiting=7, when_full="drop-oldest", head_start=0.5)
        self.assertTrue(created)
        self.assertEqual((made.permits, made.groups, made.per_group, made.paused, made.max_waiting), (9, "owner", 2, "drill", 7))
        self.assertEqual((made.when_full, made.head_start, made.groups_count, made.sweeping), ("drop-oldest", 0.5, 0, False))
        changed, created = c.put(name, max_waiting=8, when_full=None, head_start=None)
        self.assertEqual((created, changed.max_waiting, changed.when_full, changed.head_start, changed.groups), (False, 8, "refuse", 0.0, "owner"))
        plain, _ = c.put(name, groups=None, per_group=None, paused=None, max_waiting=None)
        self.assertEqual((plain.groups, plain.per_group, plain.paused, plain.max_waiting, plain.when_full), (None,) * 5)
        self.assertEqual(plain.permits, 9)
        family, created = c.create(name + "/2", None, groups="request", per_group=1)
        self.assertEqual((created, family.permits, family.available, family.groups, family.per_group), (True, None, None, "request", 1))
        self.assertEqual(c.put(name + "/2", 4)[0].available, 4)
        self.assertIsNone(c.put(name + "/2", None)[0].permits)
        self.assertIn(family.epoch, [s.epoch for s in c.list(name) if s.permits is None])
        for wrong in ({"permits": None}, {"groups": "x"}, {"per_group": 1}, {"when_full": "drop-oldest"}, {"head_start": 86401}):
            with self.subTest(wrong), self.assertRaises(sb.InvalidRequest):
                c.put(name, **wrong)  # type: ignore[arg-type]

    def test_examples(self) -> None:
        """The calls of the examples in the documents: a pool, a family, and both kinds of semaphores in one list."""
        c, pool, branches, rpm = self.client, self.name, self.name + "/branches", self.name + "/rpm"
        c.put(pool, 100, groups="request", per_group=3)
        c.put(branches, None, groups="request", per_group=1)
        c.put(rpm, 1)
        with c.lease(pool, group="acme") as lease, c.lease(branches, group="fix-17"), c.lease(branches, group="fix-18"):
            self.assertEqual((lease.semaphore, lease.group), (pool, "acme"))
            with self.assertRaises(sb.Unavailable) as refused:
                c.lease(branches, group="fix-17", wait=0)
            self.assertEqual((refused.exception.rule, refused.exception.members["group"]), ("group-limit", "fix-17"))
            with c.session() as s:
                got = s.acquire_all([(rpm, 1), Want(pool, 2, "acme"), Want(branches, group="-"), Want(branches, group="")], wait=30)
                self.assertEqual([(x.semaphore, x.count, x.group) for x in got], [(rpm, 1, ""), (pool, 2, "acme"), (branches, 1, "-"), (branches, 1, "")])
                self.assertEqual([(g.group, g.used, g.limit) for g in c.groups(pool)], [("acme", 3, 3)])
        self.assertEqual((list(c.groups(branches)), c.get(pool).held), ([], 0))
        with c.session() as s:
            chosen = s.acquire_any([Want(branches, 2, "a"), Want(branches, 1, "b")])
            self.assertEqual((chosen.semaphore, chosen.group), (branches, "b"))
            self.assertEqual(s.acquire_any([Want(branches, group="a"), Want(branches, group="c")]).group, "a")

        @c.limited(pool, group="acme", count=2, wait=30)
        def held() -> int:
            return c.group(pool, "acme").held

        self.assertEqual(held(), 2)
        self.assertEqual((c.down(pool, 3, group="acme", wait=2), c.get(pool).available), (3, 97))

    def test_a_wait_that_ends_in_a_pause_tells_the_reason(self) -> None:
        """However often, and whether the call is about one semaphore or several. After the pause the error has no reason."""
        c, name = self.client, self.name
        c.put(name, 1)
        with c.session() as s, c.lease(name):
            c.pause(name, "disk swap")
            for call in (c.lease, s.acquire, c.down, c.lease, s.acquire):
                with self.assertRaises(sb.WaitEnded) as ended:
                    call(name, wait=0.1)
                self.assertEqual((ended.exception.reason, ended.exception.rule), ("disk swap", "paused"))
            for several in (s.acquire_any, s.acquire_all):
                with self.assertRaises(sb.WaitEnded) as ended:
                    several([name], wait=0.1)
                self.assertEqual((ended.exception.reason, ended.exception.rule), ("disk swap", "paused"))
            threading.Timer(0.3, c.resume, (name,)).start()
            with self.assertRaises(sb.WaitEnded) as ended:
                s.acquire(name, wait=1)
            self.assertEqual(ended.exception.reason, "")

    def test_limits_of_groups(self) -> None:
        c, name = self.client, self.name
        c.put(name, 9, groups="request", per_group=2)
        for group in ("", "-", "--", "..", "a/b"):
            c.set_group_limit(name, group, 0)
            shown = c.group(name, group)
            self.assertEqual((shown.group, shown.limit, shown.own, shown.used, shown.oldest_wait), (group, 0, True, 0, 0.0))
            with self.assertRaises(sb.Never):
                c.lease(name, group=group)
            c.clear_group_limit(name, group)
            with self.assertRaises(sb.UnknownGroup):
                c.group(name, group)
        with self.assertRaises(sb.UnknownSemaphore):
            c.set_group_limit(name + "/unknown", "a", 1)
        numbers = [f"{i:03}" for i in range(101)]
        for number in numbers:
            c.set_group_limit(name, number, 1)
        self.assertEqual([g.group for g in c.groups(name)], numbers, "more than a page")
        with c.lease(name, group="000"):
            one = self.wait(1, c.lease, name, group="000")
            self.assertEqual([g.group for g in c.groups(name, waiting=True)], ["000"])
        one.result(20)
        c.pause(name, "drill")
        taken = self.wait(1, c.down, name, group="007")
        self.assertEqual([g.group for g in c.groups(name, waiting=True)], ["007"])
        c.resume(name)
        self.assertEqual(taken.result(20), 1)

    def test_pause(self) -> None:
        c, name = self.client, self.name
        c.put(name, 1)
        self.assertEqual(c.pause(name, "disk swap").paused, "disk swap")
        with self.assertRaises(sb.Unavailable) as refused:
            c.lease(name, wait=0)
        self.assertEqual((refused.exception.rule, refused.exception.reason), ("paused", "disk swap"))
        waits = self.wait(1, c.lease, name)
        self.assertIsNone(c.resume(name).paused)
        waits.result(20).release()
        for call in (lambda: c.pause(name + "/unknown", "x"), lambda: c.resume(name + "/unknown")):
            with self.assertRaises(sb.UnknownSemaphore):
                call()
        with self.assertRaises(sb.PreconditionFailed):
            c.pause(name, "x", epoch=c.get(name).epoch + 1)

    def test_full_lines(self) -> None:
        """Both refusals are final: the request that was refused does not wait again, in a session and without one."""
        c, name = self.client, self.name
        c.put(name, 1, max_waiting=1)
        c.down(name)
        s = c.session()
        first = self.wait(1, c.down, name)
        for call in (lambda: c.lease(name), lambda: s.acquire(name), lambda: s.acquire_all([name]), lambda: s.acquire_any([name]), lambda: c.down(name)):
            with self.assertRaises(sb.LineFull) as full:
                call()
            self.assertFalse(full.exception.outcome_unknown)
        c.put(name, when_full="drop-oldest")
        for call in (lambda: c.lease(name), lambda: s.acquire(name), lambda: c.session().acquire_all([name]), lambda: c.down(name)):
            newer = self.pool.submit(call)
            with self.assertRaises(Superseded):
                first.result(20)
            self.await_waiters(1)
            first = newer
        c.up(name)
        self.assertEqual(first.result(20), 1)
        self.assertEqual(c.get(name).available, 0)
        c.up(name)
        self.assertIsNone(s.acquire(name, wait=30).error)  # its place in the session is free again

    def test_head_start(self) -> None:
        """Each request asks for a longer head start than the one before, and so goes before it."""
        c, name = self.client, self.name
        c.put(name, 1, head_start=900)
        c.down(name)
        s, other = c.session(), c.session()
        waits = [
            self.wait(1, c.down, name),
            self.wait(2, c.lease, name, head_start=100),
            self.wait(3, s.acquire, name, head_start=300),
            self.wait(4, other.acquire_all, [name], head_start=500),
            self.wait(5, c.session().acquire_any, [name], head_start=700),
            self.wait(6, c.down, name, head_start=900),
        ]
        while waits:
            c.up(name)
            waits.pop().result(20)
            self.assertEqual(c.get(name).waiter_count, len(waits))
            self.assertFalse(any(future.done() for future in waits))

    def test_owners(self) -> None:
        """The caller's identity is the group, whatever a request names."""
        c, name = self.client, self.name
        c.put(name, 9, groups="owner", per_group=1)
        with self.client_of("bob").lease(name, group="x") as other, c.session() as s:
            self.assertEqual(other.group, "bob")
            for _ in range(3):
                with s.acquire(name, wait=30) as lease:
                    self.assertEqual((lease.group, other.error), ("alice", None))
                    with self.assertRaises(sb.LeaseExists):
                        s.acquire(name, wait=30)
                    with self.assertRaises(sb.LeaseExists):
                        s.acquire(name, group="y", wait=30)
            with s.acquire_any([Want(name, group="x")], wait=30) as lease:
                self.assertEqual((lease.group, c.get(name).held), ("alice", 2))
            with self.assertRaises(sb.WaitEnded):
                with c.lease(name):
                    s.acquire(name, group="y", wait=0.2)
            self.assertEqual(c.get(name).waiter_count, 0)

    def test_asyncio(self) -> None:
        name = self.name

        async def main() -> None:
            async with sb.AsyncClient(self.address, token=self.tokens["bob"]) as c:
                await c.put(name, None, groups="request", per_group=1, head_start=60)
                async with c.lease(name, group="a", head_start=1) as lease, c.session() as s:
                    self.assertEqual(lease.group, "a")
                    got = await s.acquire_all([Want(name, group="b"), (name, 1)])
                    self.assertEqual([x.group for x in got], ["b", ""])
                    self.assertEqual([g.group for g in await c.groups(name)], ["", "a", "b"])
                    self.assertEqual(await c.groups(name, waiting=True), [])
                    await c.set_group_limit(name, "b", 5)
                    self.assertEqual((await c.group(name, "b")).limit, 5)
                    await c.clear_group_limit(name, "b")
                    await c.put(name + "/plain", 1)
                    self.assertEqual((await c.pause(name + "/plain", "drill")).paused, "drill")
                    self.assertIsNone((await c.resume(name + "/plain")).paused)

                @c.limited(name, group="a", wait=30)
                async def held() -> int:
                    return int((await c.group(name, "a")).held)

                self.assertEqual(await held(), 1)
                await c.put(name, 9)
                self.assertEqual((await c.down(name, group="a"), (await c.get(name)).available), (1, 8))

        asyncio.run(main())


if __name__ == "__main__":
    unittest.main()
