// What the settings of a semaphore mean, its groups, and what its lost leases held.
import { el, table, button, sessionLink, meet, groupName, ranges, clientMetadata, count, plural, age, left, duration } from "./dom.js";
import { read, path, encode } from "./api.js";
import { listed } from "./pages.js";

const shownGroups = 100;
const groupPages = 5; // of a thousand waiting groups each, that one read of a page looks through

const time = (ms) => (ms % 1000 ? count(ms) + " ms" : duration(ms));
const words = {
  Groups: (s) => s.groups && (s.groups === "owner" ? "the caller's identity names the group" : "each request names its group") + (s.sweeping ? "; another limit still reaches them, one after another" : ""),
  Permits: (s) => s.permits === null && "no limit in all, only one for each group",
  "Per group": (s) => s.per_group && `${plural(s.per_group, "permit")}, where a group has no other limit`,
  Window: (s) => s.window_ms && `what is granted is spent, and comes back ${time(s.window_ms)} after the grant`,
  Cooldown: (s) => s.cooldown_ms && `what a lease gives up rests for ${time(s.cooldown_ms)}`,
  "On lost": (s) => s.on_lost && `what a lost lease held ${s.on_lost === "quarantine" ? "stays away until somebody frees it" : "comes back after " + s.on_lost.replace(/([hm])(0[ms])+$/, "$1")}`,
  "Max hold": (s) => s.max_hold_ms && `a lease ends ${time(s.max_hold_ms)} after its grant, however often it is renewed`,
  Slots: (s) => s.slots && "leases say which permits they have",
  "Max waiting": (s) => s.max_waiting && `${plural(s.max_waiting, "request")} in ${s.groups ? "the line of each group" : "the line"}; another one ${s.when_full === "refuse" ? "is refused" : "ends the oldest of them"}`,
  "Head start": (s) => s.head_start_ms && `a request may stand where it would if it had come up to ${time(s.head_start_ms)} earlier`,
};

// settings lists the settings that are set.
export function settings(s) {
  const set = Object.entries(words).flatMap(([name, meaning]) => [meaning(s)].filter(Boolean).map((text) => [el("dt", {}, name), el("dd", {}, text)]));
  return set.length ? el("section", { "data-key": "settings" }, el("h2", {}, "Settings"), el("dl", {}, set)) : null;
}

// groups has the groups of a semaphore whose first requests wait longest, and others by name after them.
export function groups(name) {
  const at = path`/v1/semaphores/${name}/groups`;
  let rows = [], more = false;
  return {
    async load(s, min, signal) {
      if (!s.groups_count) return void ([rows, more] = [[], false]);
      const waiting = []; // rows stay as they are while pages are read
      let cursor = "";
      for (let page = 0; page < groupPages && cursor !== null; page++) {
        const { body } = await read(`${at}?waiting=true&limit=1000` + (cursor && "&cursor=" + encode(cursor)), min, signal);
        waiting.push(...body.groups);
        cursor = body.next;
      }
      const others = waiting.length < shownGroups ? (await read(`${at}?limit=${shownGroups}`, min, signal)).body.groups : [];
      const names = new Set(waiting.map((g) => g.group));
      rows = [...waiting.sort((a, b) => b.oldest_wait_ms - a.oldest_wait_ms), ...others.filter((g) => !names.has(g.group))].slice(0, shownGroups);
      more = cursor !== null;
    },
    longest: () => rows[0]?.oldest_wait_ms ?? 0,
    render: (s) => (s.groups_count === undefined ? null : el("section", { "data-key": "groups" },
      el("h2", {}, "Groups ", el("span", { class: "note" }, count(s.groups_count))),
      s.groups_count > rows.length ? el("p", { class: "note" }, `${plural(rows.length, "group")}, longest wait first`, more ? ", of those that were looked through." : ".") : null,
      rows.length ? table("Groups, longest wait first", ["Group", "#Used", "#Limit", "#Held", "#Waiting", "Longest wait"], rows.map((g) => ({
        key: "group " + g.group,
        cells: [groupName(g.group), count(g.used), [g.limit === null ? "none" : count(g.limit), g.own ? el("span", { class: "tag" }, "own") : null], count(g.held), count(g.waiting), g.waiting ? age(g.oldest_wait_ms) : ""],
      }))) : el("p", { class: "note" }, "No group is in use."))),
  };
}

// lost has what leases held that ended unasked.
export function lost(name) {
  const list = listed("lost", path`/v1/semaphores/${name}/lost`);
  return {
    async load(s, min, signal) {
      await list.load([], s.lost_count ?? 0, min, signal);
      for (const l of list.rows) meet(l.session, l.metadata);
    },
    step: list.step,
    find: (token) => list.rows.find((l) => String(l.token) === token),
    render: (s) => (s.lost_count ? el("section", { "data-key": "lost" }, el("h2", {}, "Lost ", el("span", { class: "note" }, count(s.lost_count))), list.steps(s.lost_count),
      table("Lost", ["Client", s.groups ? "Group" : null, "#Permits", s.slots ? "Slots" : null, "#Token", "Lost", "Back in", "Metadata", ""], list.rows.map((l) => ({
        key: "lost " + l.token,
        cells: [sessionLink(l.session), groupName(l.group), count(l.count), ranges(l.slots), String(l.token), age(l.lost_ms, " ago"), l.back_in_ms === null ? "when freed" : left(l.back_in_ms), clientMetadata(l),
          button("Free…", "free", { token: l.token }, { class: "quiet", "aria-label": `Free what token ${l.token} held` })],
      })))) : null),
  };
}
