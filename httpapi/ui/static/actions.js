// What an operator can change. Each action says what will happen, and wants a word typed.
import { el, plural, count, copyable, called } from "./dom.js";
import { call, download, newKey, path, encode, curl } from "./api.js";

const dialog = document.getElementById("dialog");
export const copyCurl = (label, of, ...flags) => copyable(label, curl(of, ...flags));

// ask opens the dialog. An attempt that fails can be repeated with the same key: a repeat
// has no second effect.
function ask(view, { title, says, word, fields = [], does, run }) {
  const key = newKey();
  const inputs = fields.map((f) => (f.options
    ? el("select", { id: f.id }, f.options.map(([value, text]) => el("option", { value }, text)))
    : el("input", { id: f.id, type: f.type ?? "text", value: f.value, min: f.min, max: f.max, required: f.required, autocomplete: "off", "aria-describedby": "dialog-says" })));
  const typed = el("input", { id: "typed", autocomplete: "off", autocapitalize: "off", spellcheck: "false", required: true });
  const sure = el("button", { class: "main", id: "sure", disabled: true }, does);
  const cancel = el("button", { type: "button", id: "cancel" }, "Cancel");
  const error = el("p", { class: "error", role: "alert" });
  const form = el("form", { method: "post" }, el("h2", { id: "dialog-title" }, title), el("ul", { id: "dialog-says" }, says.filter(Boolean).map((text) => el("li", {}, text))),
    fields.map((f, i) => [el("label", { for: f.id }, f.label), inputs[i]]),
    word ? [el("label", { for: "typed" }, "Type ", el("strong", { class: "mono" }, word), " to confirm"), typed] : null, error, el("div", { class: "answer" }, cancel, sure));
  const check = () => { sure.disabled = (word && typed.value.trim() !== word) || inputs.some((input) => !input.checkValidity()); };
  form.addEventListener("input", check);
  form.addEventListener("change", check);
  cancel.addEventListener("click", () => dialog.close());
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    event.stopPropagation();
    sure.disabled = true;
    error.textContent = "";
    try {
      const done = await run(Object.fromEntries(fields.map((f, i) => [f.id, inputs[i].value])), key);
      dialog.close();
      view.say(title + ": done.");
      view.changed(done?.index);
    } catch (e) {
      error.textContent = (e.status === 403 ? "Your token does not allow this. " : "") + e.message;
      sure.textContent = "Try again";
      sure.disabled = false;
    }
  });
  check();
  dialog.replaceChildren(form);
  dialog.showModal();
  (inputs[0] ?? typed).focus();
}

// wordFor is a name that can be typed, or else a plain word.
const wordFor = (name, otherwise) => (/^[\x21-\x7e]{1,32}$/.test(name) ? name : otherwise);
const reasonField = { id: "reason", label: "Reason, which the client gets (may be empty)", max: 256 };
const mayRun = (token) => `The holder is not stopped: it may still be running. Token ${token} fences it: the next grant has a larger one, and a resource that checks tokens then refuses the old one.`;
const ofEpoch = (epoch) => (epoch ? "?epoch=" + epoch : "");

export function resize(view, s) {
  ask(view, {
    title: `Change the permits of ${s.name}`, word: wordFor(s.name, "change"), does: "Change permits",
    says: [`It has ${plural(s.permits, "permit")}, of which ${count(s.held)} are held${s.waiter_count ? `, and ${plural(s.waiter_count, "request waits", "requests wait")}` : ""}.`,
      "With more permits, waiting requests that fit are granted at once, in their order.",
      "With fewer than are held, no lease is taken away: nothing is granted until enough are released.",
      "A waiting request for more than there will ever be ends with an error."],
    fields: [{ id: "permits", label: "Permits", type: "number", value: s.permits, min: 0, max: Number.MAX_SAFE_INTEGER, required: true }],
    run: ({ permits }, key) => call("PUT", path`/v1/semaphores/${s.name}` + ofEpoch(s.epoch), { body: { permits: Number(permits) }, key }),
  });
}

const change = (s, body, key) => call("PATCH", path`/v1/semaphores/${s.name}` + ofEpoch(s.epoch), { body, key });

export function pause(view, s) {
  ask(view, {
    title: `Pause ${s.name}`, word: wordFor(s.name, "pause"), does: "Pause",
    says: ["No permit is granted until somebody resumes it. Requests keep their places.", "Leases go on: clients renew and release them as always.", "A client that does not wait is refused with your reason."],
    fields: [{ id: "reason", label: "Reason, which clients get", max: 1024, required: true }],
    run: ({ reason }, key) => change(s, { paused: reason }, key),
  });
}

export function resume(view, s) {
  ask(view, {
    title: `Resume ${s.name}`, word: wordFor(s.name, "resume"), does: "Resume",
    says: [`It is paused: ${s.paused}`, s.waiter_count ? `${plural(s.waiter_count, "request waits", "requests wait")}; those that fit are granted at once, in their order.` : "No request waits for it."],
    run: (_, key) => change(s, { paused: null }, key),
  });
}

// free brings back what a lost lease held.
export function free(view, s, l) {
  if (!l) return;
  ask(view, {
    title: `Free what token ${l.token} held`, word: "free", does: "Free",
    says: [`${plural(l.count, "permit")} of ${s.name} ${l.count === 1 ? "comes" : "come"} back at once, for the next request in line.`, `Its lease was lost, so nobody knows what became of its holder: look first. ${mayRun(l.token)}`],
    fields: [{ id: "reason", label: "Reason, for the events and the log (may be empty)", max: 256 }],
    run: ({ reason }, key) => call("DELETE", path`/v1/semaphores/${s.name}/lost/${l.token}` + `?reason=${encode(reason)}&epoch=${s.epoch}`, { key }),
  });
}

export function create(view) {
  ask(view, {
    title: "Create a semaphore", does: "Create",
    says: ["It is there at once, and its permits are free. A semaphore that exists stays as it is."],
    fields: [{ id: "name", label: "Name", required: true }, { id: "permits", label: "Permits", type: "number", value: 1, min: 0, max: Number.MAX_SAFE_INTEGER, required: true }],
    run: ({ name, permits }, key) => call("PUT", path`/v1/semaphores/${name}`, { body: { permits: Number(permits) }, key, onlyNew: true }),
  });
}

export function remove(view, s) {
  ask(view, {
    title: `Delete ${s.name}`, word: wordFor(s.name, "delete"), does: "Delete",
    says: [s.waiter_count ? `${plural(s.waiter_count, "waiting request ends", "waiting requests end")} with an error.` : "No request waits for it.",
      s.holder_count ? `${plural(s.holder_count, "lease is", "leases are")} gone at once. Their sessions live on, and the holders are not stopped: they may still be running.` : "No client holds permits of it.",
      "A client that creates the name again gets a new semaphore, whose tokens are larger than all of this one."],
    run: (_, key) => call("DELETE", path`/v1/semaphores/${s.name}` + ofEpoch(s.epoch), { key }),
  });
}

export function removeItem(view, i) {
  ask(view, {
    title: `Delete item ${i.name}`, word: wordFor(i.name, "delete"), does: "Delete",
    says: [i.session === null ? "No session holds it." : `Session ${i.session || "from before"} holds it, and lives on. Its holder is not stopped: it may still be running.`,
      i.delay_ms ? "Sessions acquire the name when its delay is over." : "Any session may acquire the name again at once: no delay follows.", `It is deleted only as it is now, at version ${i.version}.`],
    run: (_, key) => call("DELETE", path`/v1/items/${i.name}` + "?if_version=" + i.version, { key }),
  });
}

export function revoke(view, name, epoch, lease) {
  if (!lease) return;
  ask(view, {
    title: `Revoke the lease of ${called(lease.session, lease.group)}`, word: "revoke", does: "Revoke",
    says: [lease.spent ? "What it spent comes back in its time, and not before." : `${plural(lease.count, "permit")} of ${name} ${lease.count === 1 ? "goes" : "go"} back at once, or after its cooldown, to the next request in line.`, mayRun(lease.token),
      "Its next request about this lease is refused with your reason."],
    fields: [reasonField],
    run: ({ reason }, key) => call("DELETE", path`/v1/semaphores/${name}/holders/${lease.session}` + `?reason=${encode(reason)}` + (epoch ? "&epoch=" + epoch : "") + (lease.group ? "&group=" + encode(lease.group) : ""), { key }),
  });
}

export function endSession(view, s) {
  const tokens = s.leases.filter((l) => !l.revoked).map((l) => l.token);
  ask(view, {
    title: `End ${called(s.session)}`, word: "end", does: "End session",
    says: [tokens.length ? `All its leases (${count(tokens.length)}) end at once, and their permits go to the next requests in line.` : "It holds no permits.",
      s.waiting_count ? `${plural(s.waiting_count, "waiting request is", "waiting requests are")} withdrawn.` : null,
      s.items.length ? `${plural(s.items.length, "item that it holds is", "items that it holds are")} ${s.on_end_items === "delete" ? "deleted" : "released"}.` : null,
      tokens.length ? (tokens.length === 1 ? mayRun(tokens[0]) : "The client is not stopped: it may still be running. The tokens of its leases fence it: a resource that checks tokens refuses them once it has seen a larger one.") : "The client is not stopped.",
      "Its later requests are refused with your reason; the session can't be restored."],
    fields: [reasonField],
    run: ({ reason }, key) => call("POST", path`/v1/sessions/${s.session}/revoke`, { body: reason ? { reason } : {}, key }),
  });
}

export function withdraw(view, name, session, group) {
  ask(view, {
    title: `Withdraw the request of ${called(session, group)}`, word: "withdraw", does: "Withdraw",
    says: [`The session no longer waits for ${name}. A request that names several semaphores leaves all their lines.`, "Its place is lost; if the client asks again it starts at the end of the line.", "What the session holds stays."],
    run: async (_, key) => {
      try {
        return await call("DELETE", path`/v1/sessions/${session}/leases/${name}` + (group ? "?group=" + encode(group) : ""), { key });
      } catch (e) {
        if (e.code === "unknown-session") e.message = "This session belongs to another identity, or is over. An admin can withdraw its request.";
        throw e;
      }
    },
  });
}

export function handOver(view, cluster) {
  const others = cluster.members.filter((m) => m.voter && !m.leader);
  ask(view, {
    title: "Hand over leadership", word: cluster.leader ?? "leader", does: "Hand over",
    says: [cluster.leader ? `${cluster.leader} leads now, and another node takes over.` : "No node leads now.", "Requests are held for a moment. No lease is lost, and none becomes shorter."],
    fields: [{ id: "successor", label: "Next leader", options: [["", "any that has caught up"], ...others.map((m) => [m.id, m.id])] }],
    run: ({ successor }) => call("POST", "/v1/cluster/leader", { body: successor ? { id: successor } : {} }),
  });
}

export function backup(view) {
  ask(view, {
    title: "Download a backup", word: "backup", does: "Download",
    says: ["The file has the whole state at this moment: all names, metadata, sessions, leases and tokens. Keep it where only operators can read it.", "Nothing changes in the cluster. signalbox restore reads the file."],
    run: async () => {
      const { blob, index } = await download("/v1/snapshot");
      const url = URL.createObjectURL(blob);
      const a = el("a", { href: url, download: `signalbox-${index}.backup` });
      document.body.append(a);
      a.click();
      a.remove();
      setTimeout(() => URL.revokeObjectURL(url), 60000);
    },
  });
}
