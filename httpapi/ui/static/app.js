// The frame of the pages: the address decides about the view, which is kept up to date
// until the next one comes.
import { el, morph, tick, button, duration } from "./dom.js";
import { call, follow, hasToken, setToken, Refusal } from "./api.js";
import { overview } from "./overview.js";
import { semaphore } from "./semaphore.js";
import { session, sessions } from "./session.js";
import { items, item } from "./items.js";
import { feed } from "./events.js";

const main = document.getElementById("main"), chip = document.getElementById("live"), status = document.getElementById("status");
const out = document.getElementById("out");
const busyEvents = 1000; // a second: beyond that the page reads at intervals

let view = null, stop = new AbortController();
let heardAt = 0, state = "", failure = null; // of the view
let refresh = async () => {};

const pause = (ms, signal) => new Promise((resolve) => {
  const timer = setTimeout(resolve, ms);
  signal.addEventListener("abort", () => { clearTimeout(timer); resolve(); }, { once: true });
});

function viewOf(hash) {
  const [, page = "", argument = ""] = hash.split("/");
  try {
    const text = decodeURIComponent(argument);
    if (page === "" || page === "overview") return overview();
    if (page === "events") return feed(text);
    if (page === "items") return items(text);
    if (page === "item" && text) return item(text);
    if (page === "semaphore" && text) return semaphore(text);
    if (page === "sessions") return sessions();
    if (page === "session" && text) return session(text);
  } catch { /* no text */ }
  return { page: "", title: "No such page", load: async () => 0, render: () => [el("h1", {}, "No such page"), el("p", {}, el("a", { href: "#/" }, "All semaphores"))] };
}

function show(next) {
  view = next;
  view.changed = (min) => refresh(min);
  view.say = say;
  view.again = route;
  document.title = view.title + " · Signalbox";
  for (const a of document.querySelectorAll("nav a")) {
    if (a.dataset.page === view.page) a.setAttribute("aria-current", "page");
    else a.removeAttribute("aria-current");
  }
  main.replaceChildren();
  out.hidden = !hasToken();
  draw();
}

function draw() {
  const nodes = [];
  const problem = view.problem ?? (failure && !view.loaded ? failure : null);
  if (state === "off" && view.loaded) nodes.push(el("p", { class: "panel warn", "data-key": "stale" }, "This page does not reach its node: what it shows is from the last update. ", failure?.message ?? ""));
  else if (view.contact === -1) nodes.push(el("p", { class: "panel warn", "data-key": "old" }, "This node has not heard from a leader since it started: what it shows may be old."));
  else if (view.contact > 3000) nodes.push(el("p", { class: "panel warn", "data-key": "old" }, `This node last heard from a leader ${duration(view.contact)} ago: what it shows may be old, and changes wait.`));
  if (problem) nodes.push(...problemOf(problem));
  else if (view.loaded || !view.load) nodes.push(...view.render());
  else nodes.push(el("h1", {}, view.title), el("p", { class: "note", "aria-busy": true }, "Loading…"));
  morph(main, nodes.flat().filter(Boolean));
  drawChip();
}

function problemOf(problem) {
  const title = problem.status === 403 ? "Your token does not allow this" : problem.status === 404 || problem.status === 410 ? "Not there" : problem instanceof Refusal ? "The node refuses this" : "The node can't be reached";
  return [el("h1", {}, view.title), el("div", { class: "panel warn" }, el("h2", {}, title), el("p", {}, problem.message),
    el("div", { class: "group" }, button("Try again", "again"), hasToken() ? button("Use another token", "out") : null, el("a", { href: "#/" }, "All semaphores")))];
}

function login(reason) {
  stop.abort();
  setState("", null);
  show({ page: "", title: "Sign in", render: () => [el("form", { class: "panel login", id: "login", method: "post" },
    el("h1", {}, "Sign in"), el("p", { class: "note" }, "This cluster asks for a token. It stays in this tab, and is forgotten when the tab is closed."),
    el("label", { for: "token" }, "Token"), el("input", { id: "token", type: "password", autocomplete: "off", spellcheck: "false", required: true, "aria-describedby": "refused" }),
    el("button", { class: "main" }, "Sign in"), el("p", { class: "error", id: "refused", role: "alert" }, reason))] });
  document.getElementById("token").focus();
}

async function signIn() {
  const text = document.getElementById("token").value.trim(), refused = document.getElementById("refused");
  if (!/^[\x21-\x7e]+$/.test(text)) {
    refused.textContent = "A token is one word of ASCII characters.";
    return;
  }
  setToken(text);
  try {
    await call("GET", "/v1/cluster");
    route();
  } catch (e) {
    setToken("");
    refused.textContent = e.status === 401 ? "The node does not know this token." : e.message;
  }
}

function say(text) {
  status.textContent = text;
}

function setState(next, why) {
  failure = why;
  if (next === state) return;
  if (next === "off") say("Connection lost, reconnecting.");
  else if (state === "off" && next === "on") say("Connected again.");
  state = next;
}

function drawChip() {
  const silent = performance.now() - heardAt, off = state === "off" || (heardAt > 0 && silent > 8000);
  const trouble = off ? "" : view.trouble || (view.contact === -1 || view.contact > 3000 ? "No leader" : "");
  chip.className = "live" + (off || trouble ? " off" : state === "on" ? " on" : "");
  chip.hidden = state === "";
  const text = !heardAt ? (off ? "Reconnecting" : "Connecting") : off ? `Reconnecting, last update ${duration(silent)} ago` : trouble ? trouble : state === "busy" ? "Busy: read at intervals" : "Live";
  if (chip.textContent !== text) chip.textContent = text;
}

// keep keeps a view up to date by the stream of events, and by a read now and then.
async function keep(view, signal) {
  let wanted = false, least = 0, reading = null, running = null, index = 0;
  const heard = () => { heardAt = performance.now(); };
  // No read begins before these: the node asked for a pause; it gets some time, and so does the browser.
  let slow = 0, rested = 0;
  const once = async () => {
    const early = Math.max(slow, rested) - performance.now();
    if (early > 0) await pause(early, signal);
    wanted = false;
    const began = performance.now();
    index = await view.load(least, signal);
    if (signal.aborted) return;
    const took = performance.now() - began;
    rested = began + took + Math.min(1000, Math.max(view.rest ?? 60, 2 * took));
    view.loaded = true;
    heard();
    if (slow && streaming) setState("on", null);
    slow = 0;
    draw();
  };
  const reads = () => (reading ??= once().finally(() => { reading = null; })); // one at a time
  const loads = async () => {
    while (wanted && !signal.aborted) {
      await reading?.catch(() => {}); // it may have begun too early
      if (wanted) await reads();
    }
  };
  const load = (min = 0) => {
    least = Math.max(least, min);
    wanted = true;
    return (running ??= loads().finally(() => { running = null; }));
  };
  refresh = async (min) => { least = 0; return load(min).catch(fail); };
  const fail = (e) => {
    if (signal.aborted || e === stop) return;
    if (e.status === 401) return login(hasToken() ? "The node no longer takes this token." : "");
    if (e.status === 429) {
      slow = performance.now() + Math.max(1000, e.wait);
      setState("busy", null);
      return drawChip();
    }
    least = 0; // the node may have another history
    setState("off", e);
    draw();
  };
  const poll = setInterval(() => load().then(() => { if (state === "off" && streaming) { setState("on", null); draw(); } }, fail), view.every ?? 3000);
  signal.addEventListener("abort", () => clearInterval(poll));
  let streaming = false, last = view.last ?? 0;
  for (let since = "", wait = 200; !signal.aborted; wait = Math.min(wait * 2, 2000)) {
    const busy = new AbortController();
    let events = 0, second = 0;
    try {
      await reads();
      if (signal.aborted) return;
      const from = since ? "since=" + since : last ? "last=" + last : "since=" + index;
      await follow(`${view.query ?? ""}&${from}`, AbortSignal.any([signal, busy.signal]), (id, name, data) => {
        heard();
        if (!streaming) {
          streaming = true;
          wait = 100;
          setState("on", null);
          draw();
        }
        if (id) since = id;
        if (!name) return;
        const concerns = view.event?.(name, data, id) !== false;
        if (performance.now() - second > 1000) [second, events] = [performance.now(), 0];
        if (++events > busyEvents && !last) busy.abort(new Error("busy"));
        if (concerns) load(data.index).catch(fail);
      });
    } catch (e) {
      if (signal.aborted) return;
      if (busy.signal.aborted) {
        since = "";
        setState("busy", null);
      } else if (e.code === "history-gone") {
        [since, last] = ["", 0];
        continue;
      } else fail(e);
    }
    if (streaming && !busy.signal.aborted && !signal.aborted && state !== "off") setState("off", null);
    streaming = false;
    drawChip();
    await pause(busy.signal.aborted ? 2000 : wait, signal);
  }
}

function start() {
  stop.abort();
  stop = new AbortController();
  [heardAt, state, failure] = [view.loaded ? heardAt : 0, "connecting", null];
  keep(view, stop.signal);
}

function route() {
  show(viewOf(location.hash.slice(1)));
  start();
  main.focus({ preventScroll: true });
  scrollTo(0, 0);
}

async function copy(from) {
  const text = from.dataset.text;
  try {
    await navigator.clipboard.writeText(text);
    say("Copied.");
    from.textContent = "Copied";
    setTimeout(() => { from.textContent = "Copy"; }, 1500);
  } catch { // plain HTTP, or not allowed: the text is selected, for the keyboard
    getSelection().selectAllChildren(from.previousElementSibling);
    say("Selected: copy it by keyboard.");
  }
}

document.addEventListener("click", (event) => {
  const from = event.target.closest?.("[data-act]");
  if (!from || from.closest("dialog")) return;
  const { act, ...data } = from.dataset;
  if (act === "copy") copy(from);
  else if (act === "again") route();
  else if (act === "out") signOut();
  else view.act?.(act, data, from);
});
for (const kind of ["input", "change"]) document.addEventListener(kind, (event) => {
  if (!event.target.closest("dialog")) view.input?.(kind, event.target);
});
document.addEventListener("submit", (event) => {
  if (event.target.method === "dialog") return;
  event.preventDefault();
  if (event.target.id === "login") signIn();
});
document.addEventListener("visibilitychange", () => { // a hidden page takes no stream
  if (!view?.load) return;
  if (document.hidden) stop.abort();
  else start();
});
const signOut = () => { setToken(""); route(); };
out.addEventListener("click", signOut);
document.getElementById("skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
addEventListener("hashchange", route);
setInterval(() => { tick(); drawChip(); }, 500);
route();
