// The public API of the node that served this page. The token stays in this tab: it is in
// its sessionStorage, goes with each request in a header, and never into an address.

import { quoted } from "./dom.js";

const base = new URL("../", document.baseURI);
const storage = "signalbox-token";
let token = sessionStorage.getItem(storage) ?? "";

export const hasToken = () => token !== "";
export function setToken(text) {
  token = text;
  if (text) sessionStorage.setItem(storage, text);
  else sessionStorage.removeItem(storage);
}

// Refusal is a reply that is no success.
export class Refusal extends Error {
  constructor(status, problem, text, wait = 0) {
    super(problem.detail || problem.title || "Status " + status);
    this.status = status;
    this.wait = wait; // milliseconds, as the node asked
    this.text = text;
    this.code = problem.code ?? "";
  }
}

// encode is for one segment of a path, also between a shell's quotes.
export const encode = (text) => encodeURIComponent(text).replace(/['!()*]/g, (c) => "%" + c.charCodeAt(0).toString(16).toUpperCase());
// path encodes what stands in the holes of a template.
export const path = (parts, ...holes) => parts.reduce((all, part, i) => all + encode(String(holes[i - 1])) + part);
export const address = (of) => new URL(of.slice(1), base).href;
export const curl = (of, ...flags) => ["curl", ...flags, ...(token ? ['-H "Authorization: Bearer $SIGNALBOX_API_TOKEN"'] : []), `'${address(of)}'`].join(" ");

// verb is a subcommand of signalbox on this node. The words come last, behind --, as a name
// may begin with a dash.
export const verb = (of, words = [], flags = "") => ["signalbox", of, "--addr", base.origin + base.pathname.replace(/\/$/, ""), ...(flags ? [flags] : []), ...(words.length ? ["--", ...words.map(quoted)] : [])].join(" ");

// newKey draws an Idempotency-Key: a repeat with the same one has no second effect.
export const newKey = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, "0")).join("");

async function send(method, of, { body, key, signal, onlyNew, accept = "application/json" } = {}) {
  // Without X-Requested-With a 401 would have the browser ask for a password of its own.
  const headers = { Accept: accept, "X-Requested-With": "XMLHttpRequest" };
  if (token) headers.Authorization = "Bearer " + token;
  if (key) headers["Idempotency-Key"] = key;
  if (onlyNew) headers["If-None-Match"] = "*";
  const reply = await fetch(address(of), { method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body), cache: "no-store", redirect: "error", referrerPolicy: "no-referrer" });
  if (reply.ok) return reply;
  const text = await reply.text();
  let problem = {};
  try {
    problem = JSON.parse(text);
  } catch { /* a check that failed, or a proxy's page */ }
  throw new Refusal(reply.status, problem, text, 1000 * Number(reply.headers.get("Retry-After") ?? 0) || 0);
}

// call returns the body of a reply and the index that it reflects. It gives up after 40 s:
// a node holds a request for up to 5 s, 30 s on slow networks.
export async function call(method, of, options = {}) {
  const ends = [AbortSignal.timeout(40000)];
  if (options.signal) ends.push(options.signal);
  const reply = await send(method, of, { ...options, signal: AbortSignal.any(ends) });
  const contact = reply.headers.get("X-Signalbox-Last-Contact-Ms");
  const isJSON = (reply.headers.get("Content-Type") ?? "").includes("json");
  return { body: reply.status === 204 ? null : isJSON ? await reply.json() : await reply.text(), index: Number(reply.headers.get("X-Signalbox-Index") ?? 0), contact: contact === null ? null : Number(contact) };
}

// read reads this node's own state, at least as recent as an index: quick, and without a
// leader.
export const read = (of, min, signal) => call("GET", of + (of.includes("?") ? "&" : "?") + "consistency=stale" + (min ? "&min_index=" + min : ""), { signal });

// download returns a whole file; a reply that ends early is an error.
export async function download(of) {
  const reply = await send("GET", of);
  return { blob: await reply.blob(), index: reply.headers.get("X-Signalbox-Index") };
}

// follow reads the stream of events until it ends. Each event goes to heard with its id;
// a name of "" is a sign of life. EventSource can send no token.
export async function follow(query, signal, heard) {
  const watch = new AbortController();
  let timer;
  const alive = () => {
    clearTimeout(timer);
    timer = setTimeout(() => watch.abort(new Error("The stream of events is silent.")), 40000);
  };
  alive();
  try {
    const reply = await send("GET", "/v1/events?" + query, { signal: AbortSignal.any([signal, watch.signal]), accept: "text/event-stream" });
    const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
    heard("", "", null);
    for (let text = ""; ;) {
      const { value, done } = await reader.read();
      if (done) return;
      alive();
      text += value;
      const messages = text.split("\n\n");
      text = messages.pop();
      for (const message of messages) parse(message, heard);
    }
  } finally {
    clearTimeout(timer);
  }
}

function parse(message, heard) {
  let id = "", name = "", data = "";
  for (const line of message.split("\n")) {
    if (line.startsWith("id: ")) id = line.slice(4);
    else if (line.startsWith("event: ")) name = line.slice(7);
    else if (line.startsWith("data: ")) data += line.slice(6);
  }
  heard(id, name, name ? JSON.parse(data) : null);
}
