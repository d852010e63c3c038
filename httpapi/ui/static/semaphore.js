// One semaphore: who holds it, who waits and why, and what happened last.
import { el, table, meter, used, totalOf, button, sessionLink, semaphoreLink, groupName, inGroup, ranges, meet, called, link, metadata, clientMetadata, figures, count, plural, age, left, duration, copyable, quoted } from "./dom.js";
import { read, path, encode, curl, verb } from "./api.js";
import { history } from "./events.js";
import { listed, pageSize } from "./pages.js";
import { record, plots } from "./plot.js";
import { settings, groups, lost } from "./settings.js";
import * as actions from "./actions.js";

export function semaphore(name) {
  let s = null, gone = false;
  const lists = { holders: listed("holders", path`/v1/semaphores/${name}/holders`), waiters: listed("waiters", path`/v1/semaphores/${name}/waiters`), lost: lost(name) };
  const grouped = groups(name);
  const events = history(50);
  const unaskable = name === "." || name === ".."; // browsers remove these from a path

  const view = {
    page: "semaphore", title: name, last: 50,
    query: "name=" + encode(name),
    async load(min, signal) {
      try {
        const got = await (unaskable ? readFromList(min, signal) : read(path`/v1/semaphores/${name}` + `?holders=${pageSize}&waiters=${pageSize}`, min, signal));
        if (!s) await events.setTime(signal);
        if (!unaskable) await Promise.all([grouped.load(got.body, got.index, signal), lists.lost.load(got.body, got.index, signal), lists.holders.load(got.body.holders, got.body.holder_count, got.index, signal), lists.waiters.load(got.body.waiters, got.body.waiter_count, got.index, signal)]);
        [s, gone, view.problem, view.contact] = [got.body, false, null, got.contact];
        record("semaphore " + s.epoch, used(s), s.waiter_count, Math.max(grouped.longest(), ...s.waiters.map((w) => w.waiting_ms)));
        for (const one of [...s.holders, ...lists.holders.rows, ...lists.waiters.rows]) meet(one.session, one.metadata);
        return got.index;
      } catch (e) {
        if (e.status === 404 && s) gone = true;
        else if (e.status === 403 || e.status === 404) view.problem = e;
        else throw e;
        return 0;
      }
    },
    event: (kind, data, id) => Boolean(data.semaphore) && events.add(kind, data, id), // an item may have the same name
    act(act, data) {
      if (act === "next" || act === "previous") lists[data.list].step(act);
      else if (act === "resize") return actions.resize(view, s);
      else if (act === "delete") return actions.remove(view, s);
      else if (act === "pause") return actions.pause(view, s);
      else if (act === "resume") return actions.resume(view, s);
      else if (act === "free") return actions.free(view, s, lists.lost.find(data.token));
      else if (act === "revoke") return actions.revoke(view, s.name, s.epoch, lists.holders.rows.find((h) => String(h.token) === data.token));
      else if (act === "withdraw") return actions.withdraw(view, s.name, data.session, data.group);
      else return;
      view.changed();
    },
    render() {
      if (gone) return [el("h1", { class: "mono" }, name), el("div", { class: "panel", "data-key": "gone" }, el("p", {}, "This semaphore was deleted."), link("All semaphores", "#/")), happened()];
      return [head(), plotted(), settings(s), grouped.render(s), lists.lost.render(s), holders(), queue(), happened(), commands()];
    },
  };

  const plotted = () => plots("semaphore " + s.epoch, "The last 15 minutes", [
    { label: s.returning === undefined ? "Held" : "Held or returning", top: totalOf(s), text: count }, { label: "Waiting", text: count }, { label: "Longest wait", top: 10000, text: duration }]);

  async function readFromList(min, signal) {
    const got = await read(`/v1/semaphores?limit=1&prefix=${encode(name)}`, min, signal);
    const found = got.body.semaphores[0];
    if (found?.name !== name) throw Object.assign(new Error("There is no such semaphore."), { status: 404 });
    return { ...got, body: { ...found, holders: [], waiters: [] } };
  }

  function head() {
    const family = s.permits === null;
    return el("div", { "data-key": "head" },
      el("div", { class: "bar-of-tools" }, el("h1", { class: "mono" }, name), el("span", { class: "grow" }), family ? null : [s.paused ? button("Resume…", "resume") : button("Pause…", "pause"), button("Change permits…", "resize")], button("Delete…", "delete")),
      s.paused ? el("p", { class: "panel warn", "data-key": "paused" }, el("strong", {}, "Paused. "), s.paused) : null,
      figures([["permits", family ? "no total" : count(s.permits)], s.offset ? ["offset", count(s.offset)] : null, ["held", count(s.held)], s.returning === undefined ? null : ["returning", count(s.returning)], s.next_return_in_ms === undefined ? null : ["next return in", left(s.next_return_in_ms)],
        family ? null : ["available", count(s.available)], ["waiting", count(s.waiter_count)], s.level !== null ? ["level", s.level] : null]),
      family ? null : meter(s, true),
      Object.keys(s.metadata).length ? el("p", {}, metadata(s.metadata)) : null,
      unaskable ? el("p", { class: "panel warn" }, "A browser can't ask for a semaphore of this name, so its holders and waiters are missing here. Use curl --path-as-is.") : null,
      !family && s.available < 0 ? el("p", { class: "panel" }, `${plural(-s.available, "permit")} more than there are: nothing is granted until as many are released.`) : null);
  }

  function holders() {
    const rows = lists.holders.rows.map((h) => ({
      key: "token " + h.token,
      cells: [sessionLink(h.session), groupName(h.group), count(h.count), ranges(h.slots), String(h.token), age(h.held_ms), h.revoked ? "" : h.spent ? [el("span", { class: "tag" }, "spent"), " returns in ", left(h.returns_in_ms)] : left(h.expires_in_ms),
        h.revoked ? [el("span", { class: "tag" }, "revoked"), h.reason ? " " + h.reason : null] : clientMetadata(h), h.revoked || !h.session ? "" : button("Revoke…", "revoke", { token: h.token }, { class: "quiet", "aria-label": `Revoke the lease of ${called(h.session, h.group)}` })],
    }));
    return el("section", { "data-key": "holders" }, el("h2", {}, "Holders ", el("span", { class: "note" }, count(s.holder_count))), lists.holders.steps(s.holder_count),
      rows.length ? table("Holders", ["Client", s.groups_count === undefined ? null : "Group", "#Permits", s.slots ? "Slots" : null, "#Token", "Held for", "Time left", "Metadata", ""], rows) : el("p", { class: "note" }, s.held ? "" : "None."));
  }

  function queue() {
    const waiters = lists.waiters.rows;
    const rows = waiters.map((w, i) => ({
      key: [w.session, w.position, w.group].join(" "),
      cells: [String(w.position), sessionLink(w.session), groupName(w.group), count(w.count), age(w.waiting_ms), why(w, waiters[i - 1]), [w.unowned ? el("span", { class: "tag" }, "no owner") : null, clientMetadata(w)],
        w.session && button("Withdraw…", "withdraw", { session: w.session, group: w.group ?? "" }, { class: "quiet", "aria-label": `Withdraw the request of ${called(w.session, w.group)}` })],
    }));
    return el("section", { "data-key": "queue" }, el("h2", {}, "Waiting ", el("span", { class: "note" }, count(s.waiter_count))), lists.waiters.steps(s.waiter_count),
      rows.length ? table("Waiting, in order", ["#Place", "Client", s.groups_count === undefined ? null : "Group", "#Permits", "Waits for", "Why", "Metadata", ""], rows) : el("p", { class: "note" }, "No request waits."));
  }

  // why links to what stands before a request: the one before it, the holders, or the
  // other semaphores of its list.
  function why(w, before) {
    const parts = [w.reason];
    if (w.blocked_by === "behind-others" && before && before.group === w.group) parts.push(" Before it: ", sessionLink(before.session, "inSentence"));
    if (w.blocked_by === "not-enough-available" && s.holders.length) parts.push(" Held by ", s.holders.slice(0, 3).flatMap((h, i) => [i ? ", " : "", sessionLink(h.session, "inSentence")]), s.holder_count > 3 ? ` and ${count(s.holder_count - 3)} more` : "");
    if (w.blocked_by === "other-semaphore" || w.blocked_by === "elsewhere") parts.push(obstacles(w));
    return parts;
  }

  const happened = () => el("section", { "data-key": "events" }, el("h2", {}, "Last events"), events.render("Last events, newest first", "semaphore"));

  function commands() {
    const own = path`/v1/semaphores/${name}`;
    return el("section", { "data-key": "commands" }, el("h2", {}, "The same from a terminal"),
      copyable("Read this semaphore", curl(own, ...(unaskable ? ["--path-as-is"] : []))),
      copyable("Follow its events", curl(`/v1/events?name=${encode(name)}`, "-N")),
      s.groups_count === undefined ? null : copyable("Read its groups", curl(own + "/groups")),
      s.lost_count ? copyable("Read what its lost leases held", curl(own + "/lost")) : null,
      copyable("Show this semaphore", verb("show", [name])),
      copyable("Show why requests wait", verb("why", [name])),
      copyable("Acquire a permit", verb("acquire", [name])),
      name.startsWith("-") ? null : copyable("Run a command while holding a permit", verb("run", [], quoted(name) + " -- COMMAND"))); // whose name stands before --
  }
  return view;
}

// obstacles lists the lines that stop a request.
export const obstacles = (w) => w.obstacles.map((o) => [" ", semaphoreLink(o.semaphore), inGroup(o.group), ` (needs ${count(o.needs)}, ${o.limit === undefined ? count(o.available) + " available" : `${count(o.used)} of ${count(o.limit)} used`})`]);
