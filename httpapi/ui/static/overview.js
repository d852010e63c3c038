// All semaphores, page by page, and the nodes.
import { el, table, meter, used, totalOf, button, semaphoreLink, count, plural, age, duration } from "./dom.js";
import { record, line, plots } from "./plot.js";
import { read, encode, path, call } from "./api.js";
import * as actions from "./actions.js";

const pageSize = 50;     // names shown at a time
const scanPage = 1000;   // names that one request of a search through all of them reads
const scanMost = 20000;  // names that one search looks through before it asks
const facets = { all: "All", contended: "Contended", full: "Full", idle: "Idle" };
const matches = {
  all: () => true,
  contended: (s) => s.waiter_count > 0,
  full: (s) => s.available !== null && s.available <= 0 && used(s) > 0,
  idle: (s) => used(s) === 0 && s.waiter_count === 0,
};
const orders = {
  name: null,
  queue: (a, b) => b.waiter_count - a.waiter_count,
  use: (a, b) => share(b) - share(a),
};
const countsEvery = 5000;
const disks = { room: "has room", low: "nearly full", full: "full" };
const share = (s) => (s.permits === null ? 0 : s.permits > 0 ? used(s) / s.permits : used(s) > 0 ? 1 : 0);
const asked = { prefix: "", facet: "all", order: "name" }; // stay when one comes back

export function overview() {
  let cursors = [""], next = null, list = [], looked = 0, more = false, most = scanMost;
  let cluster = null, storage = "", version = "", nodesAt = -Infinity, granted = null, countedAt = -Infinity, countable = true;
  const ages = new Map(); // of queues, by epoch and modified_index

  const listPath = (limit, cursor) => `/v1/semaphores?limit=${limit}&prefix=${encode(asked.prefix)}` + (cursor ? "&cursor=" + encode(cursor) : "");
  const scans = () => asked.facet !== "all" || asked.order !== "name";

  const view = {
    page: "overview", title: "Semaphores", every: 2000, rest: 500, // a load is up to 15 requests
    get query() { return asked.prefix ? "prefix=" + encode(asked.prefix) : ""; },
    async load(min, signal) {
      if (performance.now() - nodesAt > 1000) await readNodes(signal);
      const got = await (scans() ? scan(min, signal) : readPage(min, signal));
      view.contact = got.contact;
      for (const s of list) record("semaphore " + s.epoch, used(s), s.waiter_count);
      if (countable && performance.now() - countedAt > countsEvery) await countGrants(signal);
      await queueAges(signal);
      return got.index;
    },
    render() {
      return [strip(), plots("grants", "Grants", [{ label: "Grants a second", text: (n) => n.toFixed(n < 10 ? 1 : 0) }]), el("div", { "data-key": "tools" }, tools()), el("div", { "data-key": "list" }, rows())];
    },
    input(kind, from) {
      if (from.id === "prefix" && kind === "input") asked.prefix = from.value;
      else if (from.id === "order" && kind === "change") asked.order = from.value;
      else return;
      again();
    },
    act(act, data) {
      if (act === "create") return actions.create(view);
      if (act === "facet") asked.facet = data.facet;
      else if (act === "further") most += scanMost;
      else if (act === "next" && next) {
        cursors.push(next);
        next = null; // not twice, before the page is read
      } else if (act === "previous") cursors.pop();
      else if (act === "lead") return actions.handOver(view, cluster);
      else if (act === "backup") return actions.backup(view);
      else return;
      if (act === "facet") again();
      else view.changed();
    },
  };

  function again() {
    [cursors, most] = [[""], scanMost];
    view.changed();
  }

  async function readNodes(signal) {
    const [status, ready] = await Promise.all([read("/v1/cluster", 0, signal), call("GET", "/readyz?verbose", { signal }).then((r) => r.body, (e) => e.text ?? "")]);
    cluster = status.body;
    view.trouble = cluster.majority ? "" : "No majority";
    version ||= await call("GET", "/version", { signal }).then((r) => String(r.body).trim(), () => "");
    storage = (/storage (.*)/.exec(ready)?.[1] ?? "").replace("the data folder can be written to", "has room");
    nodesAt = performance.now();
  }

  // countGrants reads this node's metrics: a node counts the grants of the whole cluster, as it applies them.
  async function countGrants(signal) {
    const text = await call("GET", "/metrics", { signal }).then((r) => String(r.body), (e) => { countable = e.status !== 403; return ""; });
    const before = granted, at = performance.now();
    countedAt = at; // also of a failed read
    granted = text ? { at, total: Number(/^signalbox_effects_total\{kind="granted"\} (\S+)$/m.exec(text)?.[1] ?? 0) } : null;
    if (granted && granted.total >= before?.total && at - before.at < 30000) record("grants", (granted.total - before.total) * 1000 / (at - before.at));
  }

  async function readPage(min, signal) {
    const got = await read(listPath(pageSize, cursors.at(-1)), min, signal);
    [list, next, looked, more] = [got.body.semaphores, got.body.next, 0, false];
    return got;
  }

  // scan looks through the names from the first one on: the API has them by name alone.
  async function scan(min, signal) {
    const [facet, order] = [matches[asked.facet], orders[asked.order]];
    let found = [], cursor = "", got, seen = 0;
    do {
      got = await read(listPath(scanPage, cursor), min, signal);
      seen += got.body.semaphores.length;
      found.push(...got.body.semaphores.filter(facet));
      if (order) found.sort(order);
      found.length = Math.min(found.length, 4 * pageSize);
      cursor = got.body.next;
    } while (cursor && seen < most);
    [list, next, looked, more] = [found, null, seen, Boolean(cursor)];
    return got;
  }

  // queueAges reads how long the first request of each line shown has waited, of 12 lines.
  async function queueAges(signal) {
    const lines = list.filter((s) => s.waiter_count > 0 && !/^\.\.?$/.test(s.name)).slice(0, 12);
    await Promise.all(lines.map(async (s) => {
      const have = ages.get(s.name);
      if (have?.version === s.modified_index) return;
      const got = await read(path`/v1/semaphores/${s.name}?holders=0&waiters=1`, 0, signal).catch((e) => { if (e.status === 429) throw e; });
      const first = got?.body.waiters[0];
      if (first) ages.set(s.name, { version: got.body.modified_index, since: performance.now() - first.waiting_ms });
      else ages.delete(s.name);
    }));
  }

  function strip() {
    const head = el("div", { class: "bar-of-tools", "data-key": "cluster" }, el("h1", {}, "Cluster"), el("span", { class: "grow" }),
      button("Hand over leadership…", "lead"), button("Download backup…", "backup"));
    const about = el("p", { class: "note", "data-key": "about" }, version ? `Signalbox ${version}, feature level ${cluster.level}. ` : null, cluster.cluster ? ["Cluster ", el("span", { class: "mono" }, cluster.cluster)] : null);
    const nodes = el("ul", { class: "nodes", "aria-label": "Nodes", "data-key": "nodes" }, cluster.members.map((m) => {
      const own = m.id === cluster.node, down = m.state === "down";
      const disk = own && storage ? storage : disks[m.storage] ?? "unknown";
      return el("li", { "data-key": m.id, class: down ? "down" : m.leader ? "leads" : null },
        el("strong", {}, m.id), down ? el("span", { class: "tag bad" }, "down") : null, el("span", { class: m.leader && !down ? "tag strong" : "tag" }, m.leader ? "leader" : m.voter ? "follower" : "no vote yet"), own ? el("span", { class: "tag" }, "this node") : null,
        el("dl", {}, el("dt", {}, "Lag"), el("dd", {}, m.lag === null ? "unknown" : m.lag === 0 ? "none" : plural(m.lag, "entry", "entries")),
          el("dt", {}, "Last contact"), el("dd", {}, own ? "here" : m.last_contact_ms === null ? (down ? "not since this node started" : "never") : m.last_contact_ms < 2000 ? "now" : duration(m.last_contact_ms) + " ago"),
          el("dt", {}, "Disk"), el("dd", {}, disk)));
    }));
    const voters = cluster.members.filter((m) => m.voter), up = voters.filter((m) => m.state === "up").length;
    const alert = !cluster.majority ? el("p", { class: "panel warn", role: "alert", "data-key": "majority" }, el("strong", {}, "No majority. "), `This node reaches ${count(up)} of ${count(voters.length)} voting nodes, itself included, and ${count(Math.floor(voters.length / 2) + 1)} are needed: nothing can be changed, and lease time stands still.`)
      : cluster.leader === null ? el("p", { class: "panel warn", "data-key": "leaderless" }, "No node leads now: requests wait for up to 5 s, and lease time stands still.") : null;
    return [head, about, alert, nodes];
  }

  function tools() {
    return [el("h2", {}, "Semaphores"), el("div", { class: "bar-of-tools" }, button("Create…", "create"),
      el("label", {}, "Begins with", el("input", { id: "prefix", type: "search", value: asked.prefix, autocomplete: "off", spellcheck: "false", size: 18 })),
      el("div", { class: "group", role: "group", "aria-label": "Show" }, Object.entries(facets).map(([key, text]) => button(text, "facet", { facet: key }, { "aria-pressed": String(asked.facet === key) }))),
      el("label", {}, "Order", el("select", { id: "order" }, [["name", "by name"], ["queue", "longest queue first"], ["use", "fullest first"]].map(([value, text]) => el("option", { value, selected: asked.order === value }, text)))))];
  }

  function rows() {
    if (list.length === 0) return empty();
    return [table("Semaphores", ["Name", "#Held", "Use", "Last 15 min", "#Waiting", "First waits", "State"], list.map((s) => ({
      key: s.name, kinds: ["", "", "wide", "wide"],
      cells: [semaphoreLink(s.name), s.permits === null ? count(s.held) : `${count(s.held)} / ${count(totalOf(s))}`, s.permits === null ? el("span", { class: "note" }, `no limit in all, ${plural(s.groups_count, "group")}`) : meter(s), line("semaphore " + s.epoch, 0, "Held or returning", totalOf(s), count), s.waiter_count ? count(s.waiter_count) : "0",
        s.waiter_count && ages.has(s.name) ? age(performance.now() - ages.get(s.name).since) : "", stateOf(s)],
    }))), foot()];
  }

  const stateOf = (s) => (s.paused ? "paused" : s.waiter_count > 0 ? "contended" : matches.full(s) ? "full" : used(s) === 0 ? "idle" : "in use") + (s.lost_count ? `, ${count(s.lost_count)} lost` : "");

  function foot() {
    const text = looked ? `${plural(list.length, "semaphore")} of the ${plural(looked, "name")} looked through` + (more ? "; there are more." : ".") : "";
    return el("div", { class: "bar-of-tools" }, el("span", { class: "note" }, text), more ? button("Look further", "further") : null, el("span", { class: "grow" }),
      el("span", { class: "group" }, cursors.length > 1 ? button("Previous", "previous", { key: "previous" }) : null, next ? button("Next", "next", { key: "next" }) : null));
  }

  function empty() {
    if (asked.prefix || asked.facet !== "all") return [el("p", { class: "panel" }, looked ? `None of the ${plural(looked, "name")} looked through matches. ` : "No name begins like this. ", more ? button("Look further", "further") : null)];
    return [el("div", { class: "panel" }, el("p", {}, "There are no semaphores yet. This makes one of three permits:"), actions.copyCurl("Create a semaphore", "/v1/semaphores/db", "-X PUT", `-d '{"permits":3}'`))];
  }
  return view;
}
