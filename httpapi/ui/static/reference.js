// The page of the API: every route of the description that this node serves, with its
// parameters, bodies, replies and problems.
import { el, table } from "./dom.js";

const main = document.getElementById("main");
let api = {}; // the description

const refName = (of) => of.$ref.split("/").pop();
const resolved = (of) => (of.$ref ? of.$ref.split("/").slice(1).reduce((at, step) => at[step], api) : of);
const code = (text) => el("span", { class: "mono" }, text);
const indented = (text) => text.replaceAll("\n", "\n  ");

// bounds are what a schema says beside its type.
function bounds(s) {
  const parts = [];
  if (s.minimum !== undefined) parts.push(`${s.minimum} or more`);
  if (s.maximum !== undefined) parts.push(`up to ${s.maximum}`);
  if (s.maxLength !== undefined) parts.push(`up to ${s.maxLength} bytes`);
  if (s.maxItems !== undefined) parts.push(`up to ${s.maxItems}`);
  if (s.default !== undefined) parts.push(`default ${s.default}`);
  return parts.length ? ` (${parts.join(", ")})` : "";
}

// shape writes a schema as a text, one member a line; inside names the schemas around it.
function shape(s, inside = []) {
  if (s.$ref) return inside.includes(refName(s)) ? refName(s) : shape(resolved(s), [...inside, refName(s)]);
  if (s.const !== undefined) return JSON.stringify(s.const);
  if (s.enum) return s.enum.map((v) => JSON.stringify(v)).join(" or ");
  if (s.oneOf) return s.oneOf.map((one) => shape(one, inside)).join(" or ");
  if (s.anyOf) return s.anyOf.map((one) => (one.$ref ? refName(one) : shape(one, inside))).join(" or ");
  const type = [s.type ?? "any"].flat().join(" or ");
  if (s.items) return `[ ${shape(s.items, inside)} ]` + bounds(s);
  if (s.properties) {
    const needed = new Set(s.required ?? []);
    return "{" + Object.entries(s.properties).map(([name, of]) => `\n  ${name}${needed.has(name) ? "" : "?"}: ${indented(shape(of, inside))}`).join("") + "\n}";
  }
  if (type.includes("object") && typeof s.additionalProperties === "object") return `{ name: ${shape(s.additionalProperties, inside)} }`;
  return type + bounds(s);
}

// content is the body of a request or a reply: its schema, and an example.
function content(of) {
  return Object.entries(of.content ?? {}).flatMap(([type, { schema, example }]) => [
    el("p", { class: "note" }, type),
    schema ? el("pre", { class: "shape" }, shape(schema)) : null,
    example ? el("pre", { class: "shape" }, JSON.stringify(example, null, 1)) : null,
  ]);
}

// problems are the codes of a refusal, each a link to its page.
function problems(of) {
  const codes = resolved(of).content["application/problem+json"].schema.allOf[1].properties.code.enum;
  return codes.flatMap((c, i) => [i ? ", " : null, el("a", { class: "mono name", href: "../problems/" + c }, c)]);
}

function operation(method, path, of) {
  const replies = Object.entries(of.responses), good = replies.filter(([, reply]) => !reply.$ref), refusals = replies.filter(([, reply]) => reply.$ref);
  return el("details", { id: of.operationId, class: "panel operation" },
    el("summary", {}, el("strong", { class: "mono" }, method.toUpperCase() + " "), el("span", { class: "mono name" }, path + " "), el("span", { class: "note" }, of.summary)),
    of.parameters.length ? table("Parameters of " + of.operationId, ["Parameter", "In", "Form"], of.parameters.map((p) => ({ key: p.in + p.name, cells: [[code(p.name), p.required ? " (needed)" : null], p.in, shape(p.schema)] }))) : null,
    of.requestBody ? [el("h3", {}, "Body"), content(of.requestBody)] : null,
    good.map(([status, reply]) => [el("h3", {}, `${status} ${reply.description}`), content(reply)]),
    el("h3", {}, "Refusals"),
    table("Refusals of " + of.operationId, ["Status", "Codes"], refusals.map(([status, reply]) => ({ key: status, cells: [status, problems(reply)] }))));
}

// reveal opens the route that the address names.
function reveal() {
  const named = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (named?.nodeName !== "DETAILS") return;
  named.open = true;
  named.scrollIntoView();
}

async function load() {
  const reply = await fetch("../v1/openapi.json", { credentials: "omit" });
  if (!reply.ok) throw new Error(`The node replies ${reply.status}.`);
  api = await reply.json();
  const routes = Object.entries(api.paths).flatMap(([path, methods]) => Object.entries(methods).map(([method, of]) => ({ path, method, of })));
  main.replaceChildren(el("h1", {}, "API"),
    el("p", {}, "This node's own description, ", el("a", { href: "../v1/openapi.json" }, "/v1/openapi.json"), " (OpenAPI 3.1). Each problem code leads to its meaning."),
    ...api.tags.flatMap((tag) => [el("h2", {}, tag.description), ...routes.filter((r) => r.of.tags.includes(tag.name)).map((r) => operation(r.method, r.path, r.of))]));
  reveal();
}

addEventListener("hashchange", reveal);
load().catch((error) => main.replaceChildren(el("h1", {}, "API"), el("div", { class: "panel warn", role: "alert" }, el("p", {}, "The description can't be read. ", error.message))));
