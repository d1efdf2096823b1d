// The dashboard: a list that is asked for every two seconds, and one event stream for the run that is looked at.
const $ = (selector, within = document) => within.querySelector(selector);
const STATUSES = ["queued", "running", "waiting", "input_required", "auth_required", "cancel_requested", "completed",
  "failed", "canceled", "interrupted", "rolled_back", "timed_out", "rejected", "orphaned"];
const TERMINAL = new Set(STATUSES.slice(6));
const KEPT_EVENTS = 300, TREE_ROWS = 400, VALUE_CHARS = 400, STATE_PAUSE_MS = 1000;

function make(tag, options = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(options)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "class") node.className = value;
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}
const pill = (status, text = status.replace("_", " ")) => make("span", { class: `pill ${status}` }, text);
const clock = (text) => new Date(text).toLocaleTimeString();
const short = (id) => (id.includes("~") ? `~${id.split("~")[1].slice(0, 8)}` : id);

function span(run) {
  const began = Date.parse(run.started_at || run.created_at);
  const seconds = ((run.ended_at ? Date.parse(run.ended_at) : Date.now()) - began) / 1000;
  if (!(seconds >= 0)) return "";
  return seconds < 10 ? `${seconds.toFixed(1)} s` : seconds < 120 ? `${Math.round(seconds)} s` : `${Math.round(seconds / 60)} min`;
}

async function ask(path, options) {
  const answer = await fetch(path, options);
  const body = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(body.detail), body);
  return body;
}

// --- the list -------------------------------------------------------------------------------------------------------

let pages = [null], chosen = null, page = null;

async function refresh() {
  const filters = new URLSearchParams({ limit: 50 });
  if ($("#status").value) filters.set("status", $("#status").value);
  if ($("#agent").value.trim()) filters.set("agent", $("#agent").value.trim());
  try {
    const runs = [];
    let next = null;
    for (const cursor of pages) {
      const found = await ask(`/runs?${filters}${cursor ? `&cursor=${encodeURIComponent(cursor)}` : ""}`);
      runs.push(...found.runs);
      next = found.next;
    }
    showList(runs, next);
    $("#notice").hidden = true;
  } catch (error) {
    $("#notice").hidden = false;
    $("#notice").textContent = error.detail || "The gateway does not answer.";
  }
}

function showList(runs, next) {
  const shown = $("#roots").checked ? runs.filter((run) => !run.parent) : runs;
  $("#runs").replaceChildren(...shown.map((run) =>
    make("li", { class: run.id === chosen ? "chosen" : "" },
      make("button", { type: "button", onclick: () => { location.hash = run.id; } },
        pill(run.status), make("span", { class: "name" }, run.agent || `topic ${run.topic}`),
        make("span", { class: "dim" }, span(run)),
        make("span", { class: "id" }, run.id), make("span", { class: "dim" }, clock(run.created_at))))));
  if (!shown.length) $("#runs").append(make("li", { class: "empty" }, make("p", { class: "empty" }, "No runs.")));
  $("#more").hidden = !next;
  $("#more").onclick = () => { pages.push(next); refresh(); };
}

async function health() {
  try {
    const text = await (await fetch("/metrics")).text();
    const counts = [...text.matchAll(/^callboard_runs\{status="(\w+)"\} (\S+)/gm)].filter((found) => Number(found[2]) > 0);
    $("#counts").replaceChildren(...STATUSES.flatMap((status) =>
      counts.filter((found) => found[1] === status).map((found) => pill(status, `${status.replace("_", " ")} ${Number(found[2])}`))));
    const ready = await (await fetch("/readyz")).json();
    $("#health").textContent = ready.ready ? "● connected" : `○ ${ready.reason}`;
  } catch {
    $("#health").textContent = "○ the gateway does not answer";
  }
}

// --- one run --------------------------------------------------------------------------------------------------------

class RunPage {
  constructor(id) {
    this.id = id;
    this.runs = new Map();
    this.progress = new Map();
    this.events = [];
    this.root = $("#detail");
    this.root.replaceChildren($("#run-page").content.cloneNode(true));
    $(".cancel", this.root).onclick = () => ask(`/runs/${id}/cancel`, { method: "POST" }).catch((error) => alert(error.message));
    this.open();
  }

  async open() {
    try {
      for (const run of (await ask(`/runs/${this.id}/tree`)).runs) this.runs.set(run.id, run);
    } catch (error) {
      this.root.replaceChildren(make("p", { class: "empty" }, error.detail || "The gateway does not answer."));
      return;
    }
    this.draw();
    this.source = new EventSource(`/runs/${this.id}/events?tree=true`);
    for (const kind of ["state", "step", "effect", "message", "delta", "artifact", "checkpoint", "custom"])
      this.source.addEventListener(kind, (event) => this.take(JSON.parse(event.data)));
    this.source.addEventListener("end", () => { this.source.close(); this.ended = true; this.soon(); });
    this.source.onopen = this.source.onerror = () => this.soon();
  }

  close() { this.source?.close(); cancelAnimationFrame(this.frame); this.closed = true; }

  take(event) {
    const entry = event.entry;
    if (event.kind === "state") {
      this.runs.set(event.run, { ...this.runs.get(event.run), error: null, ended_at: null, reason: null, interrupts: null, ...entry });
      if (TERMINAL.has(entry.status)) this.progress.delete(event.run);
    }
    if (event.kind === "custom" && entry.type === "progress") this.progress.set(event.run, entry.data?.json ?? {});
    if (event.kind === "checkpoint" && event.run === this.id) this.saved = event.sequence;
    this.events.push(event);
    if (this.events.length > KEPT_EVENTS) this.events.shift();
    this.soon();
  }

  soon() { if (!this.frame && !this.closed) this.frame = requestAnimationFrame(() => { this.frame = 0; this.draw(); }); }

  draw() {
    const run = this.runs.get(this.id);
    if (!run) return;
    $("h2", this.root).replaceChildren(run.agent || `topic ${run.topic}`, pill(run.status), make("span", { class: "id" }, run.id));
    $(".cancel", this.root).disabled = TERMINAL.has(run.status);
    const facts = { created: clock(run.created_at), duration: span(run), attempt: run.attempt || 0, steps: run.steps || 0,
      topic: run.topic, thread: run.thread, worker: run.worker };
    const wide = { reason: run.reason, error: run.error && `${run.error.code}: ${run.error.message}`,
      metadata: run.metadata && JSON.stringify(run.metadata) };
    const row = (name, value, kind = "") => make("div", { class: kind }, make("dt", {}, name), make("dd", {}, String(value)));
    $("dl", this.root).replaceChildren(
      ...Object.entries(facts).filter(([, value]) => value != null && value !== "").map(([name, value]) => row(name, value)),
      ...Object.entries(wide).filter(([, value]) => value).map(([name, value]) => row(name, value, "wide")),
      make("div", { class: "wide" }, make("a", { href: `/runs/${run.id}/input` }, "input"), " · ",
        make("a", { href: `/runs/${run.id}/result` }, "result"), " · ", make("a", { href: `/runs/${run.id}/steps` }, "journal")));
    this.drawTree();
    this.drawAsks();
    this.drawState();
    this.drawArtifacts();
    $(".live", this.root).textContent = this.ended ? "· ended" : this.source?.readyState === 1 ? "· live" : "· connecting";
    $(".events", this.root).replaceChildren(...this.events.slice().reverse().map(eventRow));
  }

  drawTree() {
    const children = new Map();
    for (const run of this.runs.values()) children.set(run.parent, [...(children.get(run.parent) || []), run]);
    const rows = [], stack = [[this.runs.get(this.id), 0]];
    let total = 0, done = 0;
    while (stack.length) {
      const [run, depth] = stack.pop();
      total += 1;
      done += TERMINAL.has(run.status);
      if (rows.length < TREE_ROWS) rows.push(this.treeRow(run, depth));
      for (const child of (children.get(run.id) || []).slice().reverse()) stack.push([child, depth + 1]);
    }
    $(".summary", this.root).textContent = `· ${done} of ${total} ended${total > TREE_ROWS ? `, the first ${TREE_ROWS} shown` : ""}`;
    $(".overall i", this.root).style.width = `${(100 * done) / total}%`;
    $(".tree", this.root).replaceChildren(...rows);
  }

  treeRow(run, depth) {
    const found = this.progress.get(run.id);
    const part = found && found.total ? Math.min(1, found.current / found.total) : null;
    const line = make("li", {},
      make("span", { class: "name" }, run.agent || `topic ${run.topic}`, " ", make("a", { class: "id", href: `#${run.id}` }, short(run.id))),
      pill(run.status), make("span", { class: "dim" }, span(run)),
      part === null ? make("span", { class: "dim" }, found?.message || run.error?.message || "")
        : make("span", { class: "progress", title: found.message || "" }, bar(part), make("span", { class: "dim" }, found.message || `${found.current} of ${found.total}`)));
    line.style.setProperty("--depth", depth);
    return line;
  }

  drawAsks() {
    const open = [...this.runs.values()].flatMap((run) => (run.interrupts || []).map((one) => [`${run.id}/${one.id}`, run, one]));
    const keys = open.map(([key]) => key).join();
    $(".asks", this.root).hidden = !open.length;
    if (keys === this.asked) return; // what is being typed stays
    this.asked = keys;
    $(".asks ul", this.root).replaceChildren(...open.map(([, run, one]) => askRow(run, one)));
  }

  drawState() {
    if (this.saved && this.saved !== this.shown && !this.asking) this.loadState(this.saved);
    if (!this.state) return;
    const { checkpoint, values, detail } = this.state;
    $(".state", this.root).hidden = false;
    $(".state span", this.root).textContent = checkpoint
      ? `· checkpoint ${checkpoint.id}, step ${checkpoint.step}${checkpoint.next.length ? `, then ${checkpoint.next.join(", ")}` : ""}` : `· ${detail}`;
    $(".state ul", this.root).replaceChildren(...Object.entries(values || {}).map(([name, value]) =>
      make("li", {}, make("b", {}, name), " ", cut(JSON.stringify(value)))));
  }

  async loadState(saved) {
    this.asking = true;
    this.state = await ask(`/runs/${this.id}/state`).catch((error) => ({ detail: error.detail || "not to be had now" }));
    this.shown = saved;
    setTimeout(() => { this.asking = false; this.soon(); }, STATE_PAUSE_MS);
    this.soon();
  }

  drawArtifacts() {
    const found = new Map();
    for (const event of this.events) if (event.kind === "artifact") found.set(`${event.run}/${event.entry.name}`, event);
    $(".artifacts", this.root).replaceChildren(...[...found.values()].map(({ run, entry }) => make("li", {},
      make("a", { href: `/runs/${run}/artifacts/${encodeURIComponent(entry.name)}` }, entry.name), " ",
      make("span", { class: "dim" }, `${entry.media_type}, ${entry.size} bytes`))));
    if (!found.size) $(".artifacts", this.root).append(make("li", { class: "dim" }, "none yet"));
  }
}

function askRow(run, one) {
  const words = make("input", { placeholder: "answer: text or JSON", "aria-label": `Answer to ${one.id}`, autocomplete: "off" });
  const trouble = make("span", { class: "trouble", role: "status" });
  const send = async (action) => {
    const body = { id: one.id, action };
    if (action === "respond" || action === "edit") body.value = parsed(words.value);
    try {
      await ask(`/runs/${run.id}/resume`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
      trouble.textContent = "";
    } catch (error) {
      trouble.textContent = error.detail || "The gateway does not answer.";
    }
  };
  const taken = one.actions || ["respond", "approve", "edit", "reject"];
  const form = make("form", { onsubmit: (event) => { event.preventDefault(); send(taken.includes("respond") ? "respond" : "edit"); } },
    ...(taken.includes("respond") || taken.includes("edit") ? [words, make("button", {}, "answer")] : []),
    ...["approve", "reject"].filter((action) => taken.includes(action)).map((action) =>
      make("button", { type: "button", onclick: () => send(action) }, action)), trouble);
  return make("li", {}, make("b", {}, one.id), " ", make("span", { class: "dim" }, `${run.agent}${one.to ? `, for ${one.to}` : ""} `),
    cut(JSON.stringify(one.payload?.json ?? "")), form);
}

function parsed(text) {
  try { return JSON.parse(text); } catch { return text; }
}

const cut = (text) => (text.length > VALUE_CHARS ? `${text.slice(0, VALUE_CHARS)}…` : text);

function bar(part) {
  const inner = make("i");
  inner.style.width = `${100 * part}%`;
  return make("div", { class: "bar" }, inner);
}

function saved(entry) {
  const list = (word, names) => (names?.length ? [`${word} ${names.join(", ")}`] : []);
  return [`${entry.source}${entry.step ? ` ${entry.step}` : ""}`, ...list("ran", entry.ran), ...list("wrote", Object.keys(entry.put || {})),
    ...list("next", entry.next)].join("; ");
}

function eventRow(event) {
  const entry = event.entry;
  const what = event.kind === "state" ? `${entry.status}${entry.reason ? `: ${entry.reason}` : ""}`
    : event.kind === "step" ? `${entry.name} ${entry.status || "done"}${entry.ms ? ` in ${entry.ms.toFixed(1)} ms` : ""}`
    : event.kind === "checkpoint" ? saved(entry) : event.kind === "artifact" ? entry.name : `${entry.type || ""} ${JSON.stringify(entry.data?.json ?? entry)}`;
  return make("li", {}, make("span", {}, String(event.sequence)), make("span", {}, clock(event.time)),
    make("span", {}, event.kind), make("span", {}, short(event.run)), make("span", { class: "what", title: what }, what));
}

// --- together -------------------------------------------------------------------------------------------------------

function choose() {
  const id = decodeURIComponent(location.hash.slice(1));
  page?.close();
  chosen = id || null;
  page = id ? new RunPage(id) : null;
  for (const item of document.querySelectorAll("#runs li")) item.classList.toggle("chosen", $(".id", item)?.textContent === id);
}

for (const status of STATUSES) $("#status").append(make("option", { value: status }, status.replace("_", " ")));
for (const control of ["#status", "#agent", "#roots"]) $(control).addEventListener("input", () => { pages = [null]; refresh(); });
$("#filter").addEventListener("submit", (event) => event.preventDefault());
addEventListener("hashchange", choose);
choose();
refresh();
health();
setInterval(refresh, 2000);
setInterval(health, 5000);
setInterval(() => page?.soon(), 1000);
