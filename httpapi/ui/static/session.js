// Sessions: all of them, page by page, and one with what it holds and what it waits for.
import { el, table, button, sessionName, sessionLink, meet, semaphoreLink, inGroup, ranges, itemLink, metadata, figures, count, age, left, duration, copyable } from "./dom.js";
import { read, path, encode, curl, verb } from "./api.js";
import { history, renewalsFilter, renewalsButton } from "./events.js";
import { obstacles } from "./semaphore.js";
import { sliced, listed } from "./pages.js";
import * as actions from "./actions.js";

export function sessions() {
  const list = listed("sessions", "/v1/sessions");
  const some = (all, link) => [all.slice(0, 3).flatMap((one, i) => [i ? ", " : "", link(one)]), all.length > 3 ? ` and ${count(all.length - 3)} more` : ""];
  const view = {
    page: "sessions", title: "Sessions", rest: 500, every: 2000,
    query: "renewals=false",
    async load(min, signal) {
      const got = await list.load([], Infinity, min, signal);
      view.contact = got.contact;
      for (const s of list.rows) meet(s.session, s.metadata);
      return got.index;
    },
    event: (kind, data) => Boolean(data.session),
    act(act) {
      if (act !== "next" && act !== "previous") return;
      list.step(act);
      view.changed();
    },
    render: () => [el("h1", {}, "Sessions"), el("div", { "data-key": "list" }, list.rows.length ? [list.steps(Infinity), rows()] : el("p", { class: "panel" }, "No session lives."))],
  };
  const rows = () => table("Sessions", ["Client", "Holds", "#Waits", "Time left"], list.rows.map((s) => ({
    key: s.session, kinds: ["", "", "num"],
    cells: [sessionLink(s.session), [some(s.leases.filter((l) => !l.revoked).map((l) => l.semaphore), semaphoreLink), s.items.length ? [" items: ", some(s.items, itemLink)] : null],
      s.waiting_count ? count(s.waiting_count) : "", left(s.expires_in_ms)],
  })));
  return view;
}

export function session(id) {
  let s = null, over = null;
  const lists = { leases: sliced("leases"), requests: sliced("requests"), entries: sliced("entries"), items: sliced("items") };
  const events = history(50);

  const view = {
    page: "session", title: "Session " + id, last: 50,
    get query() { return "session=" + encode(id) + renewalsFilter(); },
    async load(min, signal) {
      try {
        const got = await read(path`/v1/sessions/${id}`, min, signal);
        if (!s) await events.setTime(signal);
        [s, over, view.problem, view.contact] = [got.body, null, null, got.contact];
        meet(id, s.metadata);
        return got.index;
      } catch (e) {
        if ((e.status === 404 || e.status === 410) && s) over = e;
        else if (e.status >= 400 && e.status < 500 && e.status !== 401) view.problem = e;
        else throw e;
        return 0;
      }
    },
    event: (kind, data, at) => events.add(kind, data, at),
    act(act, data) {
      if (act === "end") actions.endSession(view, s);
      else if (act === "revoke") actions.revoke(view, data.semaphore, 0, s.leases.find((l) => String(l.token) === data.token));
      else if (act === "withdraw") actions.withdraw(view, data.semaphore, id, data.group);
      else if (act === "renewals") events.clear(view);
      else if (act === "next" || act === "previous") {
        lists[data.list].step(act);
        view.changed();
      }
    },
    render() {
      if (over) return [el("h1", {}, "Session ", sessionName(id)), el("p", { class: "panel", "data-key": "over" }, "This session is over. ", over.message), happened()];
      return [head(), leases(), items(), waits(), waitList(), happened(), commands()];
    },
  };

  const head = () => el("div", { "data-key": "head" },
    el("div", { class: "bar-of-tools" }, el("h1", {}, "Session ", sessionName(id)), el("span", { class: "grow" }), button("End session…", "end")),
    figures([["time left", left(s.expires_in_ms)], ["given by each renewal", duration(s.ttl_ms)], ["leases", count(s.leases.length)], ["waiting", count(s.waiting_count)]]),
    s.one_shot ? el("p", { class: "note" }, "Made for one acquire: it ends with its lease.") : null,
    Object.keys(s.metadata).length ? el("p", {}, metadata(s.metadata)) : null);

  const part = (key, title, content) => el("section", { "data-key": key }, el("h2", {}, title), content);
  const none = (text) => el("p", { class: "note" }, text);

  const leases = () => part("leases", "Holds", s.leases.length ? [lists.leases.steps(s.leases), table("Holds", ["Semaphore", "#Permits", "#Token", "Time left", ""], lists.leases.rows(s.leases).map((l) => ({
    key: "token " + l.token,
    cells: [[semaphoreLink(l.semaphore), inGroup(l.group), l.slots ? ` slots ${ranges(l.slots)}` : null], count(l.count), String(l.token), l.revoked ? [el("span", { class: "tag" }, "revoked"), l.reason ? " " + l.reason : null] : l.spent ? [el("span", { class: "tag" }, "spent"), " returns in ", left(l.returns_in_ms)] : left(l.expires_in_ms),
      l.revoked ? "" : button("Revoke…", "revoke", { semaphore: l.semaphore, token: l.token }, { class: "quiet", "aria-label": `Revoke the lease of ${l.semaphore}` })],
  })))] : none("No permits."));

  const items = () => (s.items.length ? part("items", "Holds items", [lists.items.steps(s.items), table("Items", ["Item"], lists.items.rows(s.items).map((name) => ({ key: name, cells: [itemLink(name)] })))]) : null);

  const wanted = (w) => w.members ?? Object.entries(w.semaphores).map(([name, n]) => ({ name, count: n }));
  const waits = () => part("waits", "Waits for", s.waiting.length ? [lists.requests.steps(s.waiting), table("Waits for", ["Semaphores", "#Place", "For", "Why", ""], lists.requests.rows(s.waiting).map((w, i) => ({
    key: "w" + wanted(w).map((m) => m.name).join(" ") + i,
    cells: [wanted(w).flatMap((m, j) => [j ? (w.mode === "any" ? " or " : " and ") : "", semaphoreLink(m.name), inGroup(m.group), m.count > 1 ? " × " + count(m.count) : ""]), String(w.position), age(w.waiting_ms),
      [w.reason, obstacles(w)], button("Withdraw…", "withdraw", { semaphore: wanted(w)[0].name, group: wanted(w)[0].group ?? "" }, { class: "quiet", "aria-label": `Withdraw the request for ${wanted(w).map((m) => m.name).join(", ")}` })],
  })))] : none("Nothing."));

  const waitList = () => (s.waitlist.length ? part("list", "Wait list", [lists.entries.steps(s.waitlist), table("Wait list", ["Semaphore", "#Wanted", "#Granted", "#Place", "For"], lists.entries.rows(s.waitlist).map((e) => ({
    key: [e.name, e.epoch, e.group].join(" "),
    cells: [[e.deleted ? e.name + " (deleted)" : semaphoreLink(e.name), inGroup(e.group)], count(e.wanted), count(e.granted), e.position ? String(e.position) : "", e.position ? age(e.waiting_ms) : ""],
  })))]) : null);

  const happened = () => part("events", ["Last events ", renewalsButton()], events.render("Last events, newest first", "session"));
  const commands = () => part("commands", "The same from a terminal", [copyable("Read this session", curl(path`/v1/sessions/${id}`)), copyable("Follow its events", curl(`/v1/events?session=${encode(id)}`, "-N")),
    copyable("Show why its requests wait", verb("why", [id])), copyable("Release all that it holds", verb("release", [id])), copyable("End it, as an operator", verb("end", [id])),
    ...s.leases.filter((l) => !l.revoked).slice(0, 5).map((l) => copyable(`Take ${l.semaphore} away, as an operator`, verb("revoke", [l.semaphore, id])))]);
  return view;
}
