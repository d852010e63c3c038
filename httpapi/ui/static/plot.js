// What this tab has seen in the last 15 minutes, as lines and as tables. Nodes keep no history: a series grows
// while a page is open that reads its values, and stays when its user goes to another page.
import { el, table, plural } from "./dom.js";

const step = 10000; // milliseconds that one point stands for
const steps = 90;
const stepsInMinute = 60000 / step;
const mostSeries = 500;
const height = 40;
const all = new Map(); // by name: values by the number of their step

const current = () => Math.floor(performance.now() / step);

// record adds values to a series. A point has the largest values of its step, so that a short peak shows.
export function record(name, ...values) {
  const points = all.get(name) ?? new Map(), at = current(), before = points.get(at) ?? [];
  all.delete(name);
  all.set(name, points);
  if (all.size > mostSeries) all.delete(all.keys().next().value);
  points.set(at, Array.from({ length: Math.max(values.length, before.length) }, (_, i) => Math.max(values[i] ?? 0, before[i] ?? 0)));
  for (const old of points.keys()) if (old <= at - steps) points.delete(old);
}

// column returns one value of each point, as pairs of a step and a value.
const column = (name, i) => [...(all.get(name) ?? [])].filter(([at, values]) => at > current() - steps && values[i] !== undefined).map(([at, values]) => [at, values[i]]);

// line draws one value of a series, from 0 to top or more. It breaks where no page was open.
export function line(name, i, label, top, text = String) {
  const points = column(name, i), most = Math.max(0, ...points.map(([, v]) => v)), high = Math.max(1, top, most);
  let d = "", last = NaN;
  for (const [at, value] of points) {
    const y = (height - 1 - (value / high) * (height - 2)).toFixed(1);
    d += (at === last + 1 ? "V" + y : `M${at - current() + steps - 1} ${y}`) + "h1";
    last = at;
  }
  return el("svg", { class: "plot", viewBox: `0 0 ${steps} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": `${label}: at most ${text(most)} in the last 15 minutes` }, el("path", { d }));
}

// plots shows the values of a series, each with a title, the top of its axis if it is not above, and a text.
export function plots(name, title, parts) {
  if (!all.has(name)) return null;
  const figure = ({ label, top = 1, text }, i) => {
    const values = column(name, i).map(([, v]) => v), high = Math.max(1, top, ...values);
    return el("figure", {}, el("figcaption", {}, label, el("span", { class: "note" }, values.length ? `${text(values.at(-1))} now, at most ${text(Math.max(...values))}` : "")),
      el("span", { class: "note", "aria-hidden": "true" }, text(high)), line(name, i, label, top, text), el("div", { class: "note axis", "aria-hidden": "true" }, el("span", {}, "0, 15 min ago"), el("span", {}, "now")));
  };
  const minutes = Map.groupBy(all.get(name), ([at]) => Math.floor((current() - at) / stepsInMinute));
  const rows = [...minutes].reverse().filter(([ago]) => ago < steps / stepsInMinute).map(([ago, points]) => ({
    key: title + ago, cells: [ago ? plural(ago, "minute") + " ago" : "now", ...parts.map(({ text }, i) => text(Math.max(...points.map(([, values]) => values[i] ?? 0))))],
  }));
  return el("section", { "data-key": "plots" }, el("h2", {}, title), el("div", { class: "plots" }, parts.map(figure)),
    el("div", { class: "hidden" }, table(title + ", by minute", ["Time", ...parts.map(({ label }) => "#" + label)], rows)));
}
