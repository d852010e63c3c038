// Items: all of them, page by page, and one with its value.
import { el, table, button, sessionLink, itemLink, link, figures, count, plural, left, copyable } from "./dom.js";
import { read, path, encode, curl, verb } from "./api.js";
import { history } from "./events.js";
import { listed } from "./pages.js";
import * as actions from "./actions.js";

const shownText = 4096; // characters of a value
const shownBytes = 256; // of a value that is no text

const isText = (i) => i.value !== undefined;
const size = (i) => (isText(i) ? new TextEncoder().encode(i.value).length : i.value_base64.length / 4 * 3 - /=*$/.exec(i.value_base64)[0].length);
const holder = (i) => (i.session === null ? "" : sessionLink(i.session));

export function items(prefix) {
  const list = listed("items", "/v1/items?prefix=" + encode(prefix));
  const view = {
    page: "items", title: "Items", rest: 500, // a page has up to 4 MiB of values
    query: prefix ? "prefix=" + encode(prefix) : "",
    async load(min, signal) {
      const got = await list.load([], Infinity, min, signal);
      view.contact = got.contact;
      return got.index;
    },
    event: (kind, data) => Boolean(data.item),
    input(kind, from) {
      if (kind === "change" && from.id === "items-prefix") location.hash = from.value ? "#/items/" + encodeURIComponent(from.value) : "#/items";
    },
    act(act) {
      if (act !== "next" && act !== "previous") return;
      list.step(act);
      view.changed();
    },
    render: () => [el("h1", {}, "Items"), el("div", { class: "bar-of-tools", "data-key": "tools" },
      el("label", {}, "Begins with", el("input", { id: "items-prefix", type: "search", value: prefix, autocomplete: "off", spellcheck: "false", size: 18 }))),
    el("div", { "data-key": "list" }, list.rows.length ? [list.steps(Infinity), rows()] : empty())],
  };

  const rows = () => table("Items", ["Name", "#Bytes", "#Version", "Held by"], list.rows.map((i) => ({
    key: i.name, kinds: ["", "num", "num"], cells: [itemLink(i.name), count(size(i)), String(i.version), holder(i)],
  })));
  const empty = () => el("div", { class: "panel" }, prefix ? "No name begins like this." : [el("p", {}, "There are no items yet. This makes one:"), actions.copyCurl("Make an item", "/v1/items/mode", "-X PUT", `-d '{"value":"fast"}'`)]);
  return view;
}

export function item(name) {
  let i = null, gone = false;
  const events = history(50);
  const unaskable = name === "." || name === ".."; // browsers remove these from a path

  const view = {
    page: "item", title: name, last: 50,
    query: "name=" + encode(name),
    async load(min, signal) {
      try {
        if (unaskable) throw Object.assign(new Error("A browser can't ask for an item of this name. Use curl --path-as-is."), { status: 404 });
        const got = await read(path`/v1/items/${name}`, min, signal);
        if (!i) await events.setTime(signal);
        [i, gone, view.problem, view.contact] = [got.body, false, null, got.contact];
        return got.index;
      } catch (e) {
        if (e.status === 404 && i) gone = true;
        else if (e.status === 403 || e.status === 404) view.problem = e;
        else throw e;
        return 0;
      }
    },
    event: (kind, data, id) => Boolean(data.item) && events.add(kind, data, id), // a semaphore may have the same name
    act(act) {
      if (act === "delete") actions.removeItem(view, i);
    },
    render() {
      if (gone) return [el("h1", { class: "mono" }, name), el("div", { class: "panel", "data-key": "gone" }, el("p", {}, "This item was deleted."), link("All items", "#/items")), happened()];
      return [head(), value(), happened(), commands()];
    },
  };

  const head = () => el("div", { "data-key": "head" },
    el("div", { class: "bar-of-tools" }, el("h1", { class: "mono" }, name), el("span", { class: "grow" }), button("Delete…", "delete")),
    figures([["version", String(i.version)], ["created", String(i.created)], ["locks", count(i.locks)], ["flags", Number.isSafeInteger(i.flags) ? String(i.flags) : "above 2^53: see curl"], i.delay_ms ? ["no session acquires it for", left(i.delay_ms)] : null]),
    el("p", {}, i.session === null ? "No session holds it." : ["Held by session ", sessionLink(i.session)]));

  function value() {
    const cut = isText(i) ? i.value.length > shownText : size(i) > shownBytes;
    return el("section", { "data-key": "value" }, el("h2", {}, "Value ", el("span", { class: "note" }, plural(size(i), "byte") + (isText(i) ? "" : ", no text"))),
      size(i) ? el("pre", { class: "shape" }, isText(i) ? visible(i.value.slice(0, shownText)) : hex(i.value_base64)) : el("p", { class: "note" }, "Empty."),
      cut ? el("p", { class: "note" }, `Only the first ${isText(i) ? plural(shownText, "character") : plural(shownBytes, "byte")} are shown.`) : null);
  }

  const happened = () => el("section", { "data-key": "events" }, el("h2", {}, "Last events"), events.render("Last events, newest first", "item"));
  const commands = () => el("section", { "data-key": "commands" }, el("h2", {}, "The same from a terminal"),
    copyable("Read this item", curl(path`/v1/items/${name}`)), copyable("Follow its events", curl(`/v1/events?name=${encode(name)}`, "-N")), copyable("Print its value", verb("item get", [name])));
  return view;
}

// visible writes out the characters that show nothing, or turn the order of others.
const visible = (text) => text.replace(/[^\P{C}\n\t]/gu, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);
const hex = (base64) => Array.from(atob(base64).slice(0, shownBytes), (c) => c.charCodeAt(0).toString(16).padStart(2, "0")).join(" ");
