// What the pages are made of. Every text of the service becomes a text node: no function
// here reads markup.

const drawn = ["svg", "path"];

export function el(tag, props, ...children) {
  const node = drawn.includes(tag) ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat(3).filter((c) => c !== null && c !== undefined && c !== false && c !== ""));
  return node;
}

// morph makes the children of a node like those of a list, and keeps the nodes of the same
// key, so that focus, selection and scrolling stay where they are.
export function morph(parent, wanted) {
  const keyed = new Map();
  for (const child of parent.childNodes) if (child.dataset?.key) keyed.set(child.dataset.key, child);
  let at = parent.firstChild;
  for (const want of wanted) {
    const key = want.dataset?.key;
    let have = key ? keyed.get(key) : at;
    if (have && !key && have.dataset?.key) have = null;
    if (!have || have.nodeName !== want.nodeName) {
      parent.insertBefore(want, at);
      continue;
    }
    if (have === at) at = at.nextSibling;
    else parent.insertBefore(have, at);
    keyed.delete(key);
    alike(have, want);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

function alike(have, want) {
  if (have.nodeType !== Node.ELEMENT_NODE) {
    if (have.data !== want.data) have.data = want.data;
    return;
  }
  for (const { name } of [...have.attributes]) if (!want.hasAttribute(name) && name !== "style") have.removeAttribute(name);
  for (const { name, value } of want.attributes) if (name !== "style" && have.getAttribute(name) !== value) have.setAttribute(name, value);
  if (want.style?.width !== have.style?.width) have.style.width = want.style.width; // the policy forbids the attribute
  if (have.nodeName !== "INPUT" && have.nodeName !== "SELECT") morph(have, [...want.childNodes]);
}

export const link = (text, href, props) => el("a", { href, ...props }, text);
export const button = (text, act, data = {}, props = {}) =>
  el("button", { type: "button", "data-act": act, ...Object.fromEntries(Object.entries(data).map(([k, v]) => ["data-" + k, v])), ...props }, text);

export const semaphoreLink = (name) => link(name, "#/semaphore/" + encodeURIComponent(name), { class: "mono name" });
export const itemLink = (name) => link(name, "#/item/" + encodeURIComponent(name), { class: "mono name" });
// who is the client of a session in short, by the metadata that clients record: host, pid and user. In a
// sentence the name of the host is enough, without its domain.
const who = ({ user, host, pid, ...rest }, inSentence) => {
  const place = [user, inSentence && /[a-z]/i.test(host) ? host.split(".")[0] : host].filter(Boolean).join("@");
  const text = place || pid ? [place, pid && "pid " + pid].filter(Boolean).join(" ") : Object.entries(rest).map(([k, v]) => `${k} ${v}`).join(", ");
  return text.length > 60 ? text.slice(0, 59) + "…" : text;
};
const clients = new Map(); // by session, those that any page has read last
const mostClients = 5000;

// meet notes whose session it is, and returns the session's id.
export function meet(id, pairs) {
  const name = id ? who(pairs ?? {}) : "";
  if (!name) return id;
  clients.delete(id);
  clients.set(id, { name, inSentence: who(pairs, true) });
  if (clients.size > mostClients) clients.delete(clients.keys().next().value);
  return id;
}

// called names a session in a sentence: its client first, if that is known, and the id.
export const called = (id, group) => (clients.has(id) ? `${clients.get(id).name} (session ${id})` : "session " + id) + (group ? " in group " + group : "");

export const sessionName = (id, form = "name") => (clients.has(id) ? [el("span", { class: "who" }, clients.get(id)[form].split(" ").flatMap((word, i) => [i ? " " : null, el("span", {}, word)])), " ", el("span", { class: "mono id after" }, id)] : el("span", { class: "mono id" }, id));
export const sessionLink = (id, form) => !id ? el("span", { class: "note", title: "Only admins see sessions from before the tokens." }, "from before") : link(sessionName(id, form), "#/session/" + encodeURIComponent(id), { class: "session" });

export const groupName = (name) => (name ? el("span", { class: "mono group-name" }, name) : el("span", { class: "note" }, "no name"));
export const inGroup = (name) => (name ? [" group ", groupName(name)] : null);

// ranges writes numbers as 0, 2–5.
export const ranges = (numbers = []) => numbers.reduce((runs, n) => {
  if (runs.length && runs.at(-1)[1] === n - 1) runs.at(-1)[1] = n;
  else runs.push([n, n]);
  return runs;
}, []).map(([from, to]) => (from === to ? from : from + "–" + to)).join(", ");

// table returns a table, whose roles are written out: narrow screens show its rows as blocks. It
// leaves a column out that is null.
export function table(label, columns, rows) {
  const of = (c) => (c.startsWith("#") ? ["num", c.slice(1)] : ["", c]);
  return el("table", { role: "table", "aria-label": label },
    el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, columns.map((c) => c !== null && el("th", { role: "columnheader", scope: "col", class: of(c)[0] || null }, of(c)[1] || el("span", { class: "hidden" }, "Actions"))))),
    el("tbody", { role: "rowgroup" }, rows.map(({ key, cells, kinds = [], mark }) =>
      el("tr", { role: "row", "data-key": key, class: mark ? "shown" : null },
        cells.map((cell, i) => columns[i] !== null && el("td", { role: "cell", "data-label": of(columns[i])[1], class: [of(columns[i])[0], kinds[i]].filter(Boolean).join(" ") || null },
          cell === "" || cell === null ? null : el("div", {}, cell)))))));
}

// used are the permits that can't be granted now: held, or on their way back.
export const used = (s) => s.held + (s.returning ?? 0);
export const totalOf = (s) => s.permits + s.offset;

// meter shows how many permits of a semaphore are held, and how many are away.
export function meter(s, big) {
  const all = totalOf(s), bar = (n, kind) => {
    const fill = el("span", { class: kind });
    fill.style.width = (all > 0 ? Math.min(1, n / Math.max(all, used(s))) * 100 : n > 0 ? 100 : 0).toFixed(1) + "%";
    return fill;
  };
  return el("span", { class: big ? "meter big" : "meter", role: "img", "aria-label": `${count(s.held)} of ${count(all)} permits held` + (s.returning ? `, ${count(s.returning)} returning` : "") },
    bar(s.held), s.returning ? bar(s.returning, "returning") : null);
}

export const metadata = (pairs) => el("span", { class: "meta" }, Object.entries(pairs ?? {}).flatMap(([k, v], i) => [i ? el("br") : null, el("span", { class: "note" }, k + " "), v]));

// clientMetadata leaves out what the client's name, which stands beside it, says already.
export const clientMetadata = ({ session, metadata: pairs }) => {
  const { user, host, pid, ...others } = pairs ?? {};
  return metadata(session ? others : pairs);
};

export const figures = (list) => el("dl", { class: "figures" }, list.filter(Boolean).map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));

export const count = (n) => Number(n).toLocaleString("en");
export const plural = (n, one, many = one + "s") => `${count(n)} ${n === 1 ? one : many}`;

// duration returns the two largest units of a time in milliseconds.
export function duration(ms) {
  const s = Math.max(0, Math.floor(ms / 1000));
  const units = [["y", 31536000], ["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const i = units.findIndex(([, of]) => s >= of);
  if (i < 0) return "0 s";
  const [unit, of] = units[i];
  const rest = units[i + 1] && Math.floor((s % of) / units[i + 1][1]);
  return `${Math.floor(s / of)} ${unit}` + (rest ? ` ${rest} ${units[i + 1][0]}` : "");
}

// age and left return times that run on by themselves, from one second to the next.
export const age = (ms, after = "") => running("since", performance.now() - ms, after);
export const left = (ms) => running("until", performance.now() + ms, "");

function running(kind, moment, after) {
  const node = el("span", { class: "num", ["data-" + kind]: Math.round(moment), "data-after": after || null });
  run(node, performance.now());
  return node;
}

function run(node, now) {
  const { since, until, after = "" } = node.dataset;
  const text = duration(since !== undefined ? now - since : until - now) + after;
  if (node.textContent !== text) node.textContent = text;
}

export function tick() {
  const now = performance.now();
  for (const node of document.querySelectorAll("[data-since], [data-until]")) run(node, now);
}

export const copyable = (label, text) => el("div", { class: "copy" }, el("pre", { tabindex: 0, "aria-label": label }, text), button("Copy", "copy", { text }, { "aria-label": "Copy: " + label }));

// quoted returns a word for a shell.
export const quoted = (text) => (/^[\w./:@%+=-]+$/.test(text) ? text : "'" + text.replaceAll("'", `'\\''`) + "'");
