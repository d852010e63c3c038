"""What the Python code of docs/recipes.md does. TestRecipes puts the code of recipe N in place of the line "# recipe N": "first" is its first line,
"rest" are the others."""

import os
import time
from concurrent.futures import ThreadPoolExecutor

from signalbox import Client, NotLost, Superseded, Unavailable, Want

pool = ThreadPoolExecutor(4)
printed = []
print_line, print = print, printed.append


def refused(kind, call, *args, **options):
    try:
        call(*args, **options)
    except kind as e:
        return e
    raise AssertionError(f"not refused: {args} {options}")


def await_shown(c, name, **members):
    while any(getattr(c.get(name), key) != value for key, value in members.items()):
        time.sleep(0.05)


def customers(c):
    done = []

    def work():
        with c.lease("pool", group="acme", wait=0), c.lease("pool", group="acme", wait=0):
            done.append(refused(Unavailable, c.lease, "pool", group="acme", wait=0))

    c.put("pool", 100, groups="request", per_group=3)
    # recipe 1
    assert len(done) == 1


def branches(c):
    def build():
        refused(Unavailable, c.lease, "branches", group="fix-17", wait=0)
        c.lease("branches", group="main", wait=0).release()

    c.put("branches", None, groups="request", per_group=1)
    branch = "fix-17"
    # recipe 2
    assert list(c.groups("branches")) == []


def calls(c):
    c.put("api", 600, groups="request", per_group=20, window=60)
    ip = "192.0.2.7"
    # recipe 3
    c.down("api", 19, group=ip, wait=0)
    assert 0 < refused(Unavailable, c.down, "api", group=ip, wait=0).available_in <= 61


def tokens(c):
    c.put("tpm", 200_000, groups="request", window=60)
    used = 1742
    # recipe 4
    assert c.group("tpm", "acme").used == used


def both(c):
    done = []

    def work():
        c.set_group_limit("pool", "acme", 1)
        with c.session() as full:
            refused(Unavailable, full.acquire_all, [("rpm", 1), Want("pool", group="acme")], wait=0)
        done.append(c.get("rpm").returning)

    c.put("rpm", 300, window=60)
    # recipe 5
    assert (done, rpm.spent, pool.spent, pool.group) == ([1], True, False, "acme"), (done, rpm, pool)


def gpus(c):
    c.put("gpus", 8, slots=True)
    # recipe 6
    assert printed == [[0, 1]], printed


def deployments(c):
    deployed = []

    def deploy():
        deployed.append("third")

    def request():
        # recipe 7

    c.put("deploy", None, groups="request", per_group=1, max_waiting=1, when_full="drop-oldest")
    with c.lease("deploy", group="prod", wait=0):
        second = pool.submit(request)
        await_shown(c, "deploy", waiter_count=1)
        third = pool.submit(request)
        second.result()
        assert (printed[1:], deployed) == (["a newer deployment waits"], [])
    third.result()
    assert deployed == ["third"]


def lost(c):
    c.put("rig", 1, on_lost="quarantine", max_hold=1)
    token, reason = c.lease("rig").token, "bench checked"
    await_shown(c, "rig", lost_count=1)
    refused(Unavailable, c.lease, "rig", wait=0)
    # recipe 8
    refused(NotLost, c.free_lost, "rig", token)
    c.lease("rig", wait=0)


def pause(c):
    c.put("db", 1)
    reason = "disk swap until 14:00"
    # recipe 9 first
    assert refused(Unavailable, c.lease, "db", wait=0).reason == reason
    waiting = pool.submit(c.lease, "db")
    await_shown(c, "db", waiter_count=1)
    # recipe 9 rest
    assert waiting.result().token


def hotfixes(c):
    order = []

    def deploy():
        order.append("hotfix")

    def hotfix():
        # recipe 10

    def deployment():
        with c.lease("release"):
            order.append("deployment")

    c.put("release", 1, head_start=900)
    with c.lease("release", wait=0):
        requests = [pool.submit(deployment)]
        await_shown(c, "release", waiter_count=1)
        requests.append(pool.submit(hotfix))
        await_shown(c, "release", waiter_count=2)
    for request in requests:
        request.result()
    assert order == ["hotfix", "deployment"], order


with Client(os.environ["A"]) as client:
    for recipe in (customers, branches, calls, tokens, both, gpus, deployments, lost, pause, hotfixes):
        recipe(client)
print_line("all recipes are as expected")
