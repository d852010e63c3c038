// Lists in pages: a page has a hundred rows, however long its list is.
import { el, button, count } from "./dom.js";
import { read, encode } from "./api.js";

export const pageSize = 100;

// steps returns the buttons to the pages before and after, and which page is shown. A button
// stays where it leads to no page, so that the keyboard keeps its place.
function steps(list, shown, all, page, before, after) {
  const step = (text, act, leads) => button(text, act, { list, key: act }, { "aria-label": `${text} ${list}`, "aria-disabled": leads ? null : "true" });
  return el("div", { class: "bar-of-tools", role: "group", "aria-label": "Pages of the " + list, "data-key": list + " steps" },
    el("span", { class: "note" }, `${all < Infinity ? `${count(shown)} of ${count(all)}, page` : "Page"} ${count(page)}`), el("span", { class: "grow" }),
    el("span", { class: "group" }, step("Previous", "previous", before), step("Next", "next", after)));
}

// listed goes through a list of the API, at a path, by its cursors. Where nobody counts its
// members, all is Infinity.
export function listed(list, of) {
  let cursors = [""], next = null;
  const own = {
    rows: [],
    // load reads the page shown, unless first, which another read has found, is the whole list.
    async load(first, all, min, signal) {
      if (first.length >= all) {
        [cursors, next, own.rows] = [[""], null, first];
        return;
      }
      for (;;) {
        const cursor = cursors.at(-1);
        const got = await read(`${of}${of.includes("?") ? "&" : "?"}limit=${pageSize}` + (cursor ? "&cursor=" + encode(cursor) : ""), min, signal);
        if (got.body[list].length || cursors.length === 1) {
          [next, own.rows] = [got.body.next, got.body[list]];
          return got;
        }
        cursors.pop(); // the members of this page are gone
      }
    },
    step(act) {
      if (act === "next" && next) cursors.push(next);
      next = null; // unknown until the page is read: a second click on the same button has no effect
      if (act === "previous" && cursors.length > 1) cursors.pop();
    },
    steps: (all) => (own.rows.length && (all > own.rows.length || cursors.length > 1) ? steps(list, own.rows.length, all, cursors.length, cursors.length > 1, next) : null),
  };
  return own;
}

// sliced goes through a list that a view has in whole.
export function sliced(list) {
  let page = 0;
  const last = (all) => Math.max(0, Math.ceil(all.length / pageSize) - 1);
  return {
    rows(all) {
      page = Math.min(page, last(all));
      return all.slice(page * pageSize, (page + 1) * pageSize);
    },
    step(act) { page = Math.max(0, page + (act === "next" ? 1 : -1)); },
    steps(all) {
      return all.length > pageSize ? steps(list, this.rows(all).length, all.length, page + 1, page > 0, page < last(all)) : null;
    },
  };
}
