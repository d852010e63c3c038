// The feed of events, and what happened in words.
import { el, semaphoreLink, sessionLink, itemLink, inGroup, meet, count, plural, button, age, duration } from "./dom.js";
import { read, encode } from "./api.js";

const kept = 200; // events on the page

const causes = { released: "by its client", expired: "its time was over", revoked: "by an operator", deleted: "the semaphore was deleted", never: "the semaphore became too small", elsewhere: "served by another semaphore", resized: "a part of it", superseded: "by a newer request", "max-hold": "it was held for too long" };
const permits = (n) => plural(n, "permit");
const ms = (n) => duration(n);
const total = (n) => (n === null ? "no limit in all" : permits(n));
const words = {
  created: (e) => ["created with ", total(e.permits)],
  changed: (e) => ["changed: ", total(e.permits), e.offset ? `, offset ${e.offset}` : "", e.paused ? `, paused: “${e.paused}”` : ""],
  "group-changed": (e) => [e.limit === null ? "limit removed:" : "limit " + count(e.limit) + ":"],
  deleted: () => ["deleted"],
  granted: (e) => [e.unowned ? "taken: " : "granted: ", permits(e.count), e.token ? `, token ${e.token}` : ""],
  released: (e) => ["released: ", permits(e.count), `, token ${e.token} (${causes[e.cause] ?? e.cause})`],
  expired: (e) => ["lease expired: ", permits(e.count), `, token ${e.token}`],
  revoked: (e) => ["lease revoked: ", permits(e.count), `, token ${e.token}`, e.reason ? `, “${e.reason}”` : ""],
  returned: (e) => ["returned: ", permits(e.count)],
  lost: (e) => ["lost: ", permits(e.count), `, token ${e.token}`, e.back_in_ms === null ? ", until freed" : `, back in ${ms(e.back_in_ms)}`],
  freed: (e) => ["freed: ", permits(e.count), `, token ${e.token}`, e.reason ? `, “${e.reason}”` : ""],
  settled: (e) => ["settled: ", permits(e.count), `, token ${e.token}`],
  waiting: (e) => ["waits for ", permits(e.count)],
  withdrawn: (e) => ["no longer waits for ", permits(e.count), ` (${causes[e.cause] ?? e.cause})`],
  "session-opened": (e) => ["opened for ", ms(e.ttl_ms)],
  "session-renewed": (e) => ["renewed for ", ms(e.ttl_ms)],
  "session-ended": (e) => ["ended ", `(${causes[e.cause] ?? e.cause})`, e.reason ? `, “${e.reason}”` : ""],
  "list-ready": (e) => ["its wait list has ", permits(e.count ?? 0), " ready", e.cause ? ` (${causes[e.cause] ?? e.cause})` : ""],
  "item-changed": (e) => [e.cause ? "released" : "changed", `, version ${e.version}`, e.cause ? ` (${causes[e.cause] ?? e.cause})` : ""],
  "item-deleted": (e) => ["deleted", `, change ${e.version}`, e.cause !== "deleted" ? ` with its session (${causes[e.cause] ?? e.cause})` : ""],
  "list-left": () => ["an entry left its wait list"],
};

let renewals = false; // are shown, on all pages
export const renewalsFilter = () => (renewals ? "" : "&renewals=false");
export const renewalsButton = () => button(renewals ? "Hide renewals" : "Show renewals", "renewals", {}, { class: "quiet" });

// history keeps the last events, newest first.
export function history(most) {
  const list = [];
  let now = 0, at = 0; // cluster time, and when it was
  return {
    add(name, data, id) {
      if (list[0]?.id === id) return;
      if (data.metadata) meet(data.session, data.metadata);
      list.unshift({ name, data, id });
      list.length = Math.min(list.length, most);
      if (data.cluster_time_ms > now) [now, at] = [data.cluster_time_ms, performance.now()];
    },
    // clear shows renewals, or hides them: the page reads its events again.
    clear(view) {
      renewals = !renewals;
      list.length = 0;
      view.again();
    },
    // setTime reads the cluster's time, from which the events' ages count.
    async setTime(signal) {
      const got = await read("/v1/cluster", 0, signal);
      if (got.body.cluster_time_ms > now) [now, at] = [got.body.cluster_time_ms, performance.now()];
      return got;
    },
    render(label, without) {
      if (list.length === 0) return el("p", { class: "note" }, "No events lately.");
      return el("ol", { class: "events", "aria-label": label }, list.map(({ name, data, id }) => el("li", { "data-key": id },
        el("time", {}, age(now - data.cluster_time_ms + (performance.now() - at), " ago")),
        el("span", {}, about(name, data, without), words[name]?.(data) ?? name, inGroup(data.group),
          without !== "session" && data.session && (data.semaphore || data.item) ? [name === "granted" ? " to " : " · ", sessionLink(data.session)] : null),
        el("span", { class: "note mono" }, id))));
    },
  };
}

// about names the subject of an event, but for the one that the whole page is about.
function about(name, data, without) {
  if (data.semaphore) return without === "semaphore" ? null : [semaphoreLink(data.semaphore), " "];
  if (data.item) return without === "item" ? null : [itemLink(data.item), " "];
  return without === "session" ? null : ["session ", sessionLink(data.session), " "];
}

export function feed(prefix) {
  const events = history(kept);
  let paused = false, missed = 0;
  const view = {
    page: "events", title: "Events", last: kept,
    get query() { return (prefix ? "prefix=" + encode(prefix) : "") + renewalsFilter(); },
    async load(min, signal) {
      return (await events.setTime(signal)).body.applied_index;
    },
    event(name, data, id) {
      if (paused) missed++;
      else events.add(name, data, id);
    },
    input(kind, from) {
      if (kind === "change" && from.id === "events-prefix") location.hash = from.value ? "#/events/" + encodeURIComponent(from.value) : "#/events";
    },
    act(act) {
      if (act === "renewals") return events.clear(view);
      if (act !== "pause") return;
      [paused, missed] = [!paused, 0];
      view.changed();
    },
    render: () => [el("h1", {}, "Events"), el("div", { class: "bar-of-tools", "data-key": "tools" },
      el("label", {}, "Names that begin with", el("input", { id: "events-prefix", type: "search", value: prefix, autocomplete: "off", spellcheck: "false", size: 18 })),
      button(paused ? "Go on" : "Pause", "pause"), renewalsButton(), missed ? el("span", { class: "note" }, plural(missed, "event") + " not shown") : null),
    el("div", { "data-key": "events" }, events.render("Events, newest first"))],
  };
  return view;
}
