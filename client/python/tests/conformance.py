"""Runs the cases of client/conformance/cases.json with this client, for TestConformance.

Its input is lines of JSON: first the configuration, then an empty line for each thing that it has asked for. Its output is lines of JSON too:
{"ask": "restart"} or {"ask": "cut"}, and at last {"results": {name of the case: [result of each step]}}. client/conformance/README.md has the steps.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable, Dict, List

sys.path.insert(0, str(Path(__file__).parents[1]))

import signalbox as sb  # noqa: E402

Step = Dict[str, Any]
Result = Dict[str, Any]


class Harness:
    """The test that has started this program, and its cluster."""

    def __init__(self) -> None:
        self.config = json.loads(sys.stdin.readline())
        self._lock = threading.Lock()
        self.barrier = threading.Barrier(1)

    def ask(self, what: str) -> None:
        with self._lock:
            print(json.dumps({"ask": what}), flush=True)
            sys.stdin.readline()

    def restart(self) -> None:
        """Restarts the leader once all cases with a restart have come to it."""
        if self.barrier.wait(60) == 0:
            self.ask("restart")
        self.barrier.wait(60)


class Case:
    def __init__(self, harness: Harness, number: int, case: Dict[str, Any]) -> None:
        self.harness, self.case = harness, case
        self.prefix = f"{harness.config['prefix']}/{number}/"
        self.clients: Dict[str, sb.Client] = {}
        self.held: Dict[str, Any] = {}  # leases and sessions
        self.epochs: Dict[str, int] = {}
        self.waits: Dict[str, "Future[Result]"] = {}
        self.cancels: Dict[str, sb.Cancel] = {}
        self.reasons: Dict[str, str] = {}

    def run(self) -> List[Result]:
        results = [self.step(step) for step in self.case["steps"]]
        for client in self.clients.values():
            client.close(1)
        return results

    def client(self, actor: str) -> sb.Client:
        if actor not in self.clients:
            own, config = self.case.get("actors", {}).get(actor, {}), self.harness.config
            times = {key: own[key] for key in ("attempt_timeout", "give_up_after") if key in own}
            token = own.get("token", "admin")
            secret = {"token_file": config["token_file"]} if token == "file" else {"token": config["tokens"][token]} if token != "none" else {}
            addresses = [config["addresses"][name] for name in own.get("addresses", ("n1", "n2", "n3"))]
            self.clients[actor] = sb.Client(addresses, in_order="addresses" in own, ca=config["ca"], **secret, **times)
        return self.clients[actor]

    def step(self, step: Step) -> Result:
        if step.get("background"):
            self.cancels[step["as"]] = sb.Cancel()
            future = self.waits[step["as"]] = Future()
            client = self.client(step.get("actor", "a"))
            threading.Thread(target=lambda: future.set_result(self.outcome(step, client)), daemon=True).start()
            return {}
        return self.outcome(step, self.client(step.get("actor", "a")))

    def outcome(self, step: Step, client: sb.Client) -> Result:
        try:
            method: Callable[[Step, sb.Client], Result] = getattr(self, step["do"].replace("-", "_"))
            return method(step, client) or {}
        except sb.Refused as e:
            told = getattr(e, "available_in", None) is not None
            return {"error": e.code, **({"available_in": True} if told else {})}
        except (sb.Lost, sb.Closed, sb.Canceled, sb.Unreachable) as e:
            return {"error": type(e).__name__.lower()}
        except Exception as e:
            return {"error": repr(e)}

    def name(self, step: Step) -> str:
        return self.prefix + step["semaphore"] if step["semaphore"] else ""

    def options(self, step: Step) -> Dict[str, Any]:
        options = {key: step[key] for key in ("wait", "count", "ttl", "group", "head_start") if key in step}
        if "epoch_of" in step:
            options["epoch"] = self.epochs[step["epoch_of"]]
        if step.get("background"):
            options["cancel"] = self.cancels[step["as"]]
        return options

    # Steps

    SETTINGS = ("groups", "per_group", "paused", "max_waiting", "when_full", "head_start", "window", "cooldown", "on_lost", "max_hold", "slots")

    def create(self, step: Step, client: sb.Client) -> Result:
        settings = {key: step[key] for key in self.SETTINGS if key in step}
        made, created = client.create(self.name(step), step["permits"], level=step.get("level"), metadata=step.get("metadata"), **settings)
        self.epochs[step.get("as", "")] = made.epoch
        return {"created": created, **self.shown(made)}

    def put(self, step: Step, client: sb.Client) -> Result:
        settings = {key: step[key] for key in ("permits", "metadata", "only_new", *self.SETTINGS) if key in step}
        made, created = client.put(self.name(step), **settings)
        return {"created": created, **self.shown(made)}

    def get(self, step: Step, client: sb.Client) -> Result:
        return self.shown(client.get(self.name(step)))

    def shown(self, s: sb.Semaphore) -> Result:
        return {"permits": s.permits, "held": s.held, "available": s.available, "level": s.level, "metadata": dict(s.metadata),
                "holders": s.holder_count, "waiters": s.waiter_count, "groups": s.groups or "", "per_group": s.per_group or 0, "paused": s.paused or "",
                "max_waiting": s.max_waiting or 0, "when_full": s.when_full or "", "head_start": s.head_start,
                "window": s.window or 0, "cooldown": s.cooldown, "on_lost": s.on_lost, "max_hold": s.max_hold or 0, "slots": s.slots,
                "returning": s.returning, "lost_count": s.lost_count}  # fmt: skip

    def await_(self, step: Step, client: sb.Client) -> Result:
        """Reads the semaphore until it is as expected."""
        late = time.monotonic() + 20
        while True:
            shown = self.get(step, client)
            if shown.items() >= step["expect"].items() or time.monotonic() >= late:
                return {key: shown[key] for key in step["expect"]}
            time.sleep(0.02)

    def list(self, step: Step, client: sb.Client) -> Result:
        return {"names": [s.name[len(self.prefix):] for s in client.list(self.name(step))]}

    def delete(self, step: Step, client: sb.Client) -> None:
        options = self.options(step)
        client.delete(self.name(step), **options)

    def up(self, step: Step, client: sb.Client) -> Result:
        return {"value": client.up(self.name(step), **self.options(step))}

    def set(self, step: Step, client: sb.Client) -> Result:
        return {"value": client.set_value(self.name(step), step["value"])}

    def down(self, step: Step, client: sb.Client) -> Result:
        return {"granted": client.down(self.name(step), partial=step.get("partial", False), **self.options(step))}

    def lease(self, step: Step, client: sb.Client) -> Result:
        return self.leased(step, client.lease(self.name(step), **self.options(step)))

    def leased(self, step: Step, lease: sb.Lease) -> Result:
        self.held[step["as"]] = lease
        return {"count": lease.count, "token": lease.token, "group": lease.group, "spent": lease.spent, "slots": lease.slots}

    def session(self, step: Step, client: sb.Client) -> None:
        self.held[step["as"]] = client.session(**self.options(step))

    def acquire(self, step: Step, client: sb.Client) -> Result:
        return self.leased(step, self.held[step["session"]].acquire(self.name(step), **self.options(step)))

    def acquire_all(self, step: Step, client: sb.Client) -> Result:
        return self.several(self.held[step["session"]].acquire_all(self.wants(step), **self.options(step)))

    def acquire_any(self, step: Step, client: sb.Client) -> Result:
        return self.several([self.held[step["session"]].acquire_any(self.wants(step), **self.options(step))])

    def wants(self, step: Step) -> Any:
        if any(len(members) > 2 for members in step["semaphores"]):
            return [sb.Want(self.prefix + name, *more) for name, *more in step["semaphores"]]
        wants = {self.prefix + name: count for name, count in step["semaphores"]}
        return wants if len(wants) == len(step["semaphores"]) else [self.prefix + name for name, _ in step["semaphores"]]

    def several(self, leases: List[sb.Lease]) -> Result:
        return {"leases": [[lease.semaphore[len(self.prefix):], lease.count, *([lease.group] if lease.group else [])] for lease in leases]}

    def pause_semaphore(self, step: Step, client: sb.Client) -> None:
        client.pause(self.name(step), step["reason"])

    def resume(self, step: Step, client: sb.Client) -> None:
        client.resume(self.name(step))

    def group(self, step: Step, client: sb.Client) -> Result:
        group = client.group(self.name(step), step["group"])
        return {key: getattr(group, key) for key in ("group", "limit", "own", "used", "held", "waiting")}

    def groups(self, step: Step, client: sb.Client) -> Result:
        return {"names": [group.group for group in client.groups(self.name(step), waiting=step.get("waiting", False))]}

    def group_limit(self, step: Step, client: sb.Client) -> None:
        if step["limit"] is None:
            client.clear_group_limit(self.name(step), step["group"])
        else:
            client.set_group_limit(self.name(step), step["group"], step["limit"])

    def settle(self, step: Step, client: sb.Client) -> Result:
        return {"settled": self.held[step["of"]].settle(step["count"])}

    def lost_holds(self, step: Step, client: sb.Client) -> Result:
        holds = client.lost_holds(self.name(step))
        return {"holds": [{"count": h.count, "group": h.group, "slots": list(h.slots), "comes_back": h.back_in is not None} for h in holds]}

    def free_lost(self, step: Step, client: sb.Client) -> None:
        client.free_lost(self.name(step), self.held[step["of"]].token, step.get("reason", ""))

    def release(self, step: Step, client: sb.Client) -> Result:
        return {} if self.held[step["of"]].release(20) else {"error": "not confirmed"}

    def close(self, step: Step, client: sb.Client) -> Result:
        return {} if self.held[step["of"]].close(20) else {"error": "not confirmed"}

    def lost(self, step: Step, client: sb.Client) -> Result:
        return {"lost": self.held[step["of"]].lost.is_set()}

    def await_lost(self, step: Step, client: sb.Client) -> Result:
        held = self.held[step["of"]]
        if not held.lost.wait(20):
            return {"error": "not lost"}
        reason = held.error.__cause__
        if isinstance(reason, sb.NotRenewed):
            return {"reason": "not-renewed", "words": ""}
        return {"reason": reason.code, "words": reason.reason}

    def session_of(self, step: Step) -> str:
        held = self.held[step["of"]]
        return str(held.session if isinstance(held, sb.Lease) else held.id)

    def revoke(self, step: Step, client: sb.Client) -> None:
        lease = self.held[step["of"]]
        client.revoke(lease.semaphore, self.session_of(step), step.get("reason", ""), group=lease.group)

    def revoke_session(self, step: Step, client: sb.Client) -> None:
        client.revoke_session(self.session_of(step), step.get("reason", ""))

    def end_session(self, step: Step, client: sb.Client) -> None:
        client.end_session(self.session_of(step))

    def join(self, step: Step, client: sb.Client) -> Result:
        return self.waits[step["of"]].result(30)

    def cancel(self, step: Step, client: sb.Client) -> None:
        self.cancels[step["of"]].cancel()

    def pause(self, step: Step, client: sb.Client) -> None:
        time.sleep(step["seconds"])

    def restart(self, step: Step, client: sb.Client) -> None:
        self.harness.restart()

    def close_client(self, step: Step, client: sb.Client) -> Result:
        return {} if client.close(20) else {"error": "not confirmed"}

    def cut(self, step: Step, client: sb.Client) -> None:
        self.harness.ask("cut")


setattr(Case, "await", Case.await_)


def main() -> None:
    harness = Harness()
    with open(harness.config["cases"], encoding="utf-8") as file:
        cases = [Case(harness, number, case) for number, case in enumerate(json.load(file)["cases"])]
    results = {}
    restarts = [c for c in cases if any(step["do"] == "restart" for step in c.case["steps"])]
    harness.barrier = threading.Barrier(len(restarts) or 1)
    for group, at_once in (([c for c in cases if c not in restarts], 16), (restarts, len(restarts) or 1)):
        with ThreadPoolExecutor(at_once) as pool:
            for case, result in zip(group, pool.map(Case.run, group)):
                results[case.case["name"]] = result
    print(json.dumps({"results": results}), flush=True)


if __name__ == "__main__":
    main()
