"""Tests of windows, cooldown, lost holds, longest holds and slots against a node."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.request
from typing import Any, Dict

from node import NodeTest, sb
from signalbox import Want


class TestReturns(NodeTest):
    def await_shown(self, name: str, **expected: Any) -> None:
        """Waits until the semaphore is shown with these values."""
        late = time.monotonic() + 20
        while True:
            shown = self.client.get(name)
            if {key: getattr(shown, key) for key in expected} == expected:
                return
            self.assertLess(time.monotonic(), late, str(shown))

    def lease_of_dead_client(self, name: str, **members: Any) -> Dict[str, Any]:
        """Acquires for a second, and renews it no more."""
        request = urllib.request.Request(f"{self.address}/v1/semaphores/{name}/leases", json.dumps({"ttl": "1s", **members}).encode(),
                                         {"Authorization": "Bearer " + self.tokens["bob"], "Content-Type": "application/json"})  # fmt: skip
        with urllib.request.urlopen(request) as reply:
            lease: Dict[str, Any] = json.load(reply)
            return lease

    def test_settings(self) -> None:
        c, name = self.client, self.name
        made, _ = c.put(name, 4, cooldown=5, on_lost="quarantine", max_hold=7200, slots=True)
        self.assertEqual((made.cooldown, made.on_lost, made.max_hold, made.slots), (5.0, "quarantine", 7200.0, True))
        self.assertEqual((made.window, made.returning, made.next_return_in, made.lost_count), (None, 0, None, 0))
        self.assertEqual(c.put(name, on_lost=90)[0].on_lost, "1m30s")
        self.assertEqual(c.put(name, on_lost=c.get(name).on_lost, slots=False)[0].on_lost, "1m30s")
        changed, _ = c.put(name, cooldown=None, on_lost="release", max_hold=None, slots=None, window=60)
        self.assertEqual((changed.cooldown, changed.on_lost, changed.max_hold, changed.slots, changed.window), (0.0, "release", None, False, 60.0))
        other, created = c.create(name + "/2", 1, cooldown=0.5, on_lost=30, max_hold=1, slots=True)
        self.assertEqual((created, other.cooldown, other.on_lost, other.max_hold, other.slots), (True, 0.5, "30s", 1.0, True))
        self.assertEqual(c.create(name + "/3", 1, window=0.1)[0].window, 0.1)
        self.assertEqual([s.window for s in c.list(name)], [60.0, None, 0.1])
        for wrong in ({"slots": True}, {"max_hold": 5}, {"window": 0.05}, {"on_lost": "never"}, {"cooldown": 86401}, {"window": float("nan")}):
            with self.subTest(wrong), self.assertRaises(sb.InvalidRequest):
                c.put(name, **wrong)  # type: ignore[arg-type]
        for kind in ({"slots": 1}, {"window": "60s"}, {"on_lost": True}):
            with self.subTest(kind), self.assertRaises(TypeError):
                c.put(name, **kind)  # type: ignore[arg-type]

    def test_calls_a_minute(self) -> None:
        c, name, ip = self.client, self.name, "192.0.2.7"
        c.put(name, 6, groups="request", per_group=2, window=60)
        self.assertEqual((c.down(name, group=ip, wait=2), c.down(name, group=ip)), (1, 1))
        with self.assertRaises(sb.Unavailable) as refused:
            c.down(name, group=ip, wait=0)
        self.assertEqual((refused.exception.rule, refused.exception.members["used"]), ("group-limit", 2))
        rpm = name + "/rpm"
        c.put(rpm, 2, window=30)
        c.down(rpm, 2)
        for call in (lambda: c.down(rpm, wait=0), lambda: c.lease(rpm, wait=0), lambda: c.session().acquire(rpm, wait=0)):
            with self.assertRaises(sb.Unavailable) as refused:
                call()
            after = refused.exception.available_in
            assert after is not None
            self.assertTrue(0 < after <= 61, after)
            self.assertLessEqual(after, refused.exception.retry_after)
        with self.assertRaises(sb.WaitEnded):
            c.down(name, group=ip, wait=0.1)
        shown = c.get(name)
        assert shown.next_return_in is not None
        self.assertTrue(0 < shown.next_return_in <= 61)
        self.assertEqual((shown.available, shown.held, shown.returning, c.group(name, ip).used), (4, 0, 2, 2))
        c.put(name + "/plain", 1)
        c.down(name + "/plain")
        with self.assertRaises(sb.Unavailable) as refused:
            c.lease(name + "/plain", wait=0)
        self.assertIsNone(refused.exception.available_in)
        c.pause(name + "/plain", "drill")
        with self.assertRaises(sb.WaitEnded) as ended:
            c.down(name + "/plain", wait=0.1)
        self.assertEqual((ended.exception.rule, ended.exception.reason), ("paused", "drill"))

    def test_estimate_and_settle(self) -> None:
        c, name = self.client, self.name
        c.put(name, 200000, groups="request", window=600)
        with c.lease(name, group="acme", count=3000) as l:
            self.assertEqual((l.spent, l.count, l.slots), (True, 3000, []))
            self.assertTrue(l.settle(1742))
            self.assertEqual((l.count, c.get(name).returning, c.group(name, "acme").used), (1742, 1742, 1742))
            self.assertTrue(l.settle(1742))
            self.assertTrue(l.settle(200001))
            self.assertEqual((c.get(name).available, c.get(name).held), (-1, 0))
            self.assertTrue(l.settle(0))
            self.assertTrue(l.settle(7))
            for wrong in (-1, 2**53 + 1):
                with self.assertRaises(sb.InvalidRequest):
                    l.settle(wrong)
            with self.assertRaises(TypeError):
                l.settle(1.5)  # type: ignore[arg-type]
        self.assertEqual(c.get(name).returning, 7)
        with self.assertRaises(sb.Closed):
            l.settle(9)
        with c.session() as s:
            first, (second,) = s.acquire(name, group="a", count=2), s.acquire_all([Want(name, 3, "b")])
            self.assertTrue(second.settle(1))
            self.assertEqual((first.spent, c.group(name, "a").used, c.group(name, "b").used), (True, 2, 1))
            self.assertTrue(first.release())
            self.assertEqual(c.group(name, "a").used, 2)
            c.revoke_session(s.id, "drill")
            with self.assertRaises(sb.Lost):
                second.settle(2)
            assert second.error is not None
            self.assertIsInstance(second.error.__cause__, sb.Revoked)
            self.assertEqual(c.group(name, "b").used, 1)

    def test_cancelled_down(self) -> None:
        """Permits that were taken for nobody go back once: by an up, or with their window."""
        c, name = self.client, self.name
        c.put(name, 5, window=600)
        c.put(name + "/plain", 5)
        for semaphore, available in ((name, 3), (name + "/plain", 5)):
            taken = c.down(semaphore, 2)
            undo = c._to_down(semaphore, 2).undo
            assert undo is not None
            undo(taken).result(20)
            self.assertEqual(c.get(semaphore).available, available)

    def test_slots(self) -> None:
        c, name = self.client, self.name
        c.put(name, 8, slots=True)
        with c.lease(name, count=2) as lease, c.session() as s:
            self.assertEqual((lease.slots, lease.spent), ([0, 1], False))
            with s.acquire_all([(name, 3)])[0] as several:
                self.assertEqual(several.slots, [2, 3, 4])
                lease.release()
                with c.lease(name, count=3) as third:
                    self.assertEqual(third.slots, [0, 1, 5])
                self.assertEqual([holder["slots"] for holder in c.get(name).holders], [[2, 3, 4]])

    def test_lost_holds(self) -> None:
        c, name = self.client, self.name
        c.put(name, 200, on_lost="quarantine", slots=True)
        leases = [self.lease_of_dead_client(name, metadata={"host": "m1"}) for _ in range(101)]
        self.await_shown(name, held=0, lost_count=101, returning=101, available=99)
        found = list(c.lost_holds(name))
        self.assertEqual([hold.token for hold in found], [lease["token"] for lease in leases], "more than a page")
        hold = found[7]
        self.assertEqual((hold.count, hold.group, hold.slots, hold.back_in, hold.metadata), (1, "", leases[7]["slots"], None, {"host": "m1"}))
        self.assertEqual(hold.session, leases[7]["session"])
        self.assertTrue(0 <= hold.lost < 60)
        c.free_lost(name, hold.token, "bench checked")
        self.assertEqual(c.get(name).lost_count, 100)
        with self.assertRaises(sb.NotLost):
            c.free_lost(name, hold.token)
        with self.assertRaises(sb.UnknownSemaphore):
            next(c.lost_holds(name + "/unknown"))
        with self.assertRaises(sb.InvalidRequest):
            c.free_lost(name, 0)
        back = name + "/back"
        c.put(back, None, groups="request", per_group=1, on_lost=600)
        self.lease_of_dead_client(back.replace("/", "%2F"), group="a")
        self.await_shown(back, lost_count=1)
        (late,) = c.lost_holds(back)
        assert late.back_in is not None
        self.assertEqual(late.group, "a")
        self.assertTrue(0 < late.back_in <= 601)

    def test_max_hold(self) -> None:
        """A lease is lost when it has held for so long: not before that, and before the cluster ends it, which quarantines what it held."""
        c, name = self.client, self.name
        s, session = c.session(ttl=3), c.session(ttl=30)
        c.put(name, 1)
        other = s.acquire(name)
        cases = {
            "renewed past its ttl": lambda name: s.acquire(name),
            "in a session that lives longer": lambda name: session.acquire(name),
            "without a session, renewed": lambda name: c.lease(name, ttl=3),
            "without a session": lambda name: c.lease(name, ttl=30),
            "with a margin": lambda name: c.lease(name, ttl=30, margin=1),
        }
        leases = []
        for i, acquire in enumerate(cases.values()):
            c.put(f"{name}/{i}", 1, max_hold=5, on_lost="quarantine")
            leases.append((acquire(f"{name}/{i}"), time.monotonic()))
        for what, (lease, granted) in zip(cases, leases):
            with self.subTest(what):
                self.assertTrue(lease.lost.wait(20))
                self.assertGreater(time.monotonic(), granted + 3)
                self.assertTrue(granted + 4 < lease.deadline < granted + 5, "it was not renewed, or for too long")
                assert lease.error is not None
                self.assertIsInstance(lease.error.__cause__, sb.Revoked)
                self.assertEqual(getattr(lease.error.__cause__, "reason", ""), "max-hold")
                with self.assertRaises(sb.Lost):
                    lease.release()
                self.await_shown(lease.semaphore, lost_count=1, held=0)
                self.assertEqual([hold.token for hold in c.lost_holds(lease.semaphore)], [lease.token])
                c.free_lost(lease.semaphore, lease.token, "it has stopped")
        self.assertIsNone(other.error or s.error or session.error)
        with s.acquire(f"{name}/0", wait=20) as lease:  # its place in the session is free again
            self.assertIsNone(lease.error)

    def test_asyncio(self) -> None:
        name = self.name

        async def main() -> None:
            async with sb.AsyncClient(self.address, token=self.tokens["bob"]) as c:
                await c.put(name, 200000, groups="request", window=600)
                async with c.lease(name, group="acme", count=3000) as lease:
                    self.assertEqual((lease.spent, await lease.settle(1742), lease.count), (True, True, 1742))
                self.assertEqual((await c.get(name)).returning, 1742)
                with self.assertRaises(sb.Closed):
                    await lease.settle(1)
                await c.put(name + "/slots", 3, slots=True, on_lost="quarantine", max_hold=1)
                async with c.session() as s:
                    held = await s.acquire(name + "/slots", count=2)
                    self.assertEqual(held.slots, [0, 1])
                    with self.assertRaises(sb.InvalidRequest):
                        await held.settle(1)
                    self.assertEqual(getattr((await held.wait_lost()).__cause__, "reason", ""), "max-hold")
                    while not (lost := await c.lost_holds(name + "/slots")):
                        self.assertIsNone(s.error)
                    self.assertEqual([(hold.token, hold.slots) for hold in lost], [(held.token, [0, 1])])
                    await c.free_lost(name + "/slots", held.token, "it has stopped")
                with self.assertRaises(sb.NotLost):
                    await c.free_lost(name + "/slots", held.token)

        asyncio.run(main())
