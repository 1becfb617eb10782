"use strict";
// Everything that was said is put in as text (textContent, attributes of no meaning to a browser), never as markup.
const {title, sessions} = JSON.parse(document.getElementById("data").textContent);
const byId = new Map(sessions.map((session) => [session.id, session]));
const SVG = "http://www.w3.org/2000/svg";
const MARKS = {file_change: "file", timer: "timer", session_event: "event", manual: "hand"};
const KNOWN = ["running", "completed", "failed", "cancelled", "interrupted", "idle"];

function make(tag, attributes = {}, ...content) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...content);
  return element;
}

function draw(tag, attributes = {}, ...content) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...content);
  return element;
}

const pad = (number) => String(number).padStart(2, "0");
const status = (session) => (KNOWN.includes(session.status) ? session.status : "idle");
const plural = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;

function moment(seconds, {day = true} = {}) {
  const date = new Date(seconds * 1000);
  const clock = `${pad(date.getUTCHours())}:${pad(date.getUTCMinutes())}:${pad(date.getUTCSeconds())}`;
  return day ? `${date.toISOString().slice(0, 10)} ${clock} UTC` : clock;
}

function lasted(seconds) {
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.round((seconds % 3600) / 60)} min`;
  return `${(seconds / 86400).toFixed(1)} days`;
}

function above(session) {
  const id = session.fork_of || session.parent;
  return byId.get(id);
}

function selectable(element, session) {
  element.dataset.session = session.id;
  element.addEventListener("click", () => choose(session.id));
  return element;
}

// the lineage: rows, and beside them the lines from each session to the one it stands below

function drawLineage() {
  const box = document.getElementById("lineage");
  const deepest = sessions.reduce((most, session) => Math.max(most, session.depth), 0);
  const step = Math.min(22, 220 / Math.max(1, deepest)), height = 36;
  const left = (session) => 27 + session.depth * step, middle = (index) => index * height + height / 2;
  const rowOf = new Map(sessions.map((session, index) => [session.id, index]));
  const lines = draw("svg", {width: 40 + (deepest + 1) * step, height: sessions.length * height, "aria-hidden": "true"});
  sessions.forEach((session, index) => {
    const parent = above(session);
    if (parent && parent !== session && rowOf.get(parent.id) < index) {
      const x = left(parent), y = middle(rowOf.get(parent.id)), bend = Math.min(9, step);
      const path = `M${x} ${y + 6} V${middle(index) - bend} q0 ${bend} ${bend} ${bend} H${Math.max(left(session) - 6, x + bend)}`;
      lines.append(draw("path", {d: path, class: session.fork_of === parent.id ? "fork" : "made"}));
    }
  });
  sessions.forEach((session, index) => {
    const done = session.status === "completed" || session.status === "failed" ? " done" : "";
    lines.append(draw("circle", {cx: left(session), cy: middle(index), r: 5, class: `dot ${status(session)}${done}`}));
    const row = make("button", {type: "button", class: "row"}, make("span", {class: "id"}, session.id), ...noteOf(session));
    row.append(make("span", {class: "size"}, [plural(session.turns, "turn"), plural(session.count, "message"), ...spent(session)].join(" · ")));
    row.style.paddingLeft = `${left(session) + 16}px`;
    box.append(selectable(row, session));
  });
  box.prepend(lines);
}

function spent(session) {
  return [session.lasted === null ? "" : lasted(session.lasted), session.cost].filter(Boolean);
}

function noteOf(session) {
  if (session.agent) return [make("span", {class: "note"}, `agent ${session.agent}`)];
  if (session.fork_of) return [make("span", {class: "note fork"}, `fork of ${session.fork_of} at m${session.fork_at}`)];
  if (session.woken) return [make("span", {class: "note woke"}, session.woken.what)];
  if (session.error) return [make("span", {class: "note"}, session.error)];
  return [make("span", {class: "note"}, session.name && !session.id.startsWith(session.name) ? session.name : "")];
}

// the timeline: a lane for each session in the order they began, and a curve from what emitted an event to what it woke

function drawTimeline() {
  const box = document.getElementById("timeline");
  const lanes = [...sessions].sort((a, b) => a.created - b.created);
  const from = Math.min(...lanes.map((each) => each.created)), to = Math.max(...lanes.map((each) => each.updated));
  const span = Math.max(to - from, 1), width = Math.max(420, box.clientWidth - 40), height = 26, top = 26;
  const labels = Math.min(220, 22 + 7.3 * Math.max(...lanes.map((each) => each.id.length)));
  const at = (time) => labels + ((time - from) / span) * (width - labels - 14);
  const chart = draw("svg", {width, height: top + lanes.length * height + 6, role: "img", "aria-label": "Timeline"});
  for (const time of ticks(from, from + span, Math.floor((width - labels) / 110))) {
    chart.append(draw("line", {x1: at(time), x2: at(time), y1: top - 4, y2: top + lanes.length * height, class: "grid"}));
    chart.append(draw("text", {x: at(time), y: 13, "text-anchor": "middle", class: "axis"}, tickLabel(time, span)));
  }
  const laneOf = new Map(lanes.map((session, index) => [session.id, top + index * height + height / 2]));
  for (const session of lanes) {
    const y = laneOf.get(session.id), lane = draw("g", {class: `lane ${status(session)}`});
    lane.append(draw("rect", {x: 0, y: y - height / 2, width, height, rx: 5, class: "hit"}));
    const shown = session.id.length > 28 ? `${session.id.slice(0, 27)}…` : session.id;
    lane.append(draw("text", {x: 4, y: y + 4}, shown));
    const length = Math.max(5, at(session.updated) - at(session.created));
    lane.append(draw("rect", {x: at(session.created), y: y - 4.5, width: length, height: 9, rx: 4.5, class: "bar"}));
    lane.append(draw("title", {}, `${session.id}: ${moment(session.created)}, ${lasted(session.updated - session.created)}`));
    chart.append(selectable(lane, session));
  }
  for (const session of lanes) chart.append(...curves(session, laneOf, at));
  box.append(chart);
}

function curves(session, laneOf, at) {
  const x = at(session.created), y = laneOf.get(session.id), found = [];
  const fork = session.fork_of !== null, sourceId = fork ? session.fork_of : session.woken && session.woken.by;
  const source = byId.get(sourceId);
  if (source && source !== session) {
    const start = Math.max(at(source.created), Math.min(x, at(source.updated))), from = laneOf.get(sourceId);
    const path = `M${start} ${from} C${start} ${(from + 3 * y) / 4} ${x} ${(3 * from + y) / 4} ${x} ${y}`;
    const curve = draw("path", {d: path, class: fork ? "fork curve" : "woke curve"});
    curve.dataset.ends = `${sourceId} ${session.id}`;
    found.push(curve);
  }
  if (session.woken && !fork) found.push(draw("circle", {cx: x, cy: y, r: 3, class: "event"}));
  return found;
}

function ticks(from, to, most) {
  const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400];
  const wanted = (to - from) / Math.max(2, most);
  const step = steps.find((each) => each >= wanted) || Math.ceil(wanted / 86400) * 86400;
  const found = [];
  for (let time = Math.ceil(from / step) * step; time <= to; time += step) found.push(time);
  return found;
}

function tickLabel(time, span) {
  const text = new Date(time * 1000).toISOString();
  if (span > 3 * 86400) return text.slice(5, 10);
  return span > 3600 ? `${span > 86400 ? text.slice(8, 10) + ". " : ""}${text.slice(11, 16)}` : text.slice(11, 19);
}

// the workflows: each picture is shown with its run, and with the sessions of its tasks

function bindWorkflows() {
  for (const task of document.querySelectorAll(".workflow [data-session]")) {
    const session = byId.get(task.dataset.session);
    if (!session) continue;
    task.setAttribute("tabindex", "0");
    task.setAttribute("role", "button");
    task.addEventListener("keydown", (event) => { if (event.key === "Enter") choose(session.id); });
    selectable(task, session);
  }
}

function showWorkflow(session) {
  const pictures = [...document.querySelectorAll(".workflow")], passed = new Set();
  let run = session;
  while (run && !passed.has(run.id) && !pictures.some((each) => each.dataset.run === run.id)) {
    passed.add(run.id);
    run = byId.get(run.parent) || above(run);
  }
  for (const each of pictures) each.hidden = !run || each.dataset.run !== run.id;
}

// what woke what

function drawCauses() {
  const woken = sessions.filter((session) => session.woken).sort((a, b) => a.woken.at - b.woken.at);
  document.getElementById("causes-section").hidden = !woken.length;
  for (const session of woken) {
    const {what, at, state, type} = session.woken;
    const row = make("button", {type: "button", class: "cause", title: MARKS[type] || type});
    row.append(make("time", {}, moment(at, {day: false})), make("span", {class: "what"}, what));
    row.append(make("span", {class: "arrow"}, "→"), make("span", {class: "id"}, session.id));
    row.append(make("span", {class: "state"}, state));
    document.getElementById("causes").append(make("li", {}, selectable(row, session)));
  }
}

// the reader

function choose(id, {keep = true} = {}) {
  for (const element of document.querySelectorAll("[data-session]")) {
    element.setAttribute("aria-current", String(element.dataset.session === id));
  }
  for (const curve of document.querySelectorAll(".curve")) {
    curve.classList.toggle("lit", curve.dataset.ends.split(" ").includes(id));
  }
  const session = byId.get(id), reader = document.getElementById("reader");
  showWorkflow(session);
  reader.replaceChildren(...heading(session), ...history(session));
  reader.scrollTop = 0;
  scrollInside(document.getElementById("lineage"), [...document.querySelectorAll(".row")].find((row) => row.dataset.session === id));
  if (!keep) return;
  if (matchMedia("(max-width: 900px)").matches) reader.scrollIntoView();
  try { window.history.replaceState(null, "", `#${id}`); } catch { /* a page opened from a file may not */ }
}

// Bring an element into sight without moving the page.
function scrollInside(box, element) {
  const top = element.offsetTop, bottom = top + element.offsetHeight;
  if (top < box.scrollTop) box.scrollTop = top;
  if (bottom > box.scrollTop + box.clientHeight) box.scrollTop = bottom - box.clientHeight;
}

function heading(session) {
  const facts = make("dl");
  const fact = (label, ...value) => facts.append(make("dt", {}, label), make("dd", {}, ...value));
  if (session.name) fact("name", session.name);
  if (session.bundle && session.bundle !== session.name) fact("bundle", session.bundle);
  if (session.parent && session.parent !== session.fork_of) fact("made by", link(session.parent));
  if (session.agent) fact("agent", session.agent);
  if (session.fork_of) fact("fork of", link(session.fork_of), ` at m${session.fork_at}`);
  if (session.woken) fact("woken by", session.woken.what);
  fact("began", moment(session.created));
  fact("changed", `${moment(session.updated)}, ${lasted(session.updated - session.created)} later`);
  if (spent(session).length) fact("took", spent(session).join(", "));
  const forks = sessions.filter((each) => each.fork_of === session.id);
  if (forks.length) fact("forks", ...forks.flatMap((each, index) => [index ? ", " : "", link(each.id)]));
  if (session.error) {
    facts.append(make("dt", {}, "error"), make("dd", {class: "error"}, session.error));
  }
  return [make("h2", {}, session.id), make("span", {class: `pill ${status(session)}`}, session.status), facts];
}

function link(id) {
  if (!byId.has(id)) return id;
  const button = make("button", {type: "button", class: "link"}, id);
  button.addEventListener("click", () => choose(id));
  return button;
}

// A fork's page data holds what it says itself; the rest is its source's, up to the point where it was forked.
function said(session, limit = Infinity) {
  const pieces = [];
  for (let each = session, stop = limit; each; ) {
    if (each.messages === null) return null;
    pieces.unshift(each.messages.slice(0, Math.max(0, stop - each.start)));
    stop = Math.min(stop, each.start);
    each = each.start > 0 ? byId.get(each.fork_of) : null;
  }
  return pieces.flat();
}

function history(session) {
  const messages = said(session);
  if (messages === null) {
    return [make("p", {class: "message"}, `What it says is not in this page: amplifier session show ${session.id}`)];
  }
  if (!messages.length) return [make("p", {class: "message"}, "Nothing was said.")];
  const elements = messages.map((message, index) => show(message, index + 1, index < (session.fork_at || 0)));
  if (session.fork_of) {
    elements.splice(session.fork_at, 0, make("div", {class: "parting"}, `forked from ${session.fork_of}`));
  }
  return elements;
}

function show(message, number, shared) {
  const role = ["user", "assistant", "tool"].includes(message.role) ? message.role : "system";
  const heading = message.role === "user" && !message.said ? "hook" : message.title;
  const element = make("div", {class: `message ${role}${shared ? " shared" : ""}`});
  element.append(make("h3", {}, heading, make("span", {}, `m${number}`)));
  if (message.text) element.append(make("p", {}, message.text));
  for (const call of message.calls) element.append(make("div", {class: "call"}, call));
  return element;
}

function onKey(event) {
  const step = {ArrowDown: 1, ArrowUp: -1}[event.key];
  const row = document.activeElement.closest(".row, .cause");
  if (!step || !row) return;
  const rows = [...document.querySelectorAll(row.classList.contains("row") ? ".row" : ".cause")];
  const next = rows[rows.indexOf(row) + step];
  if (!next) return;
  event.preventDefault();
  next.focus();
  choose(next.dataset.session);
}

function begin() {
  document.getElementById("where").textContent = title;
  const forks = sessions.filter((session) => session.fork_of).length;
  const woken = sessions.filter((session) => session.woken).length;
  const counts = [plural(sessions.length, "session"), plural(forks, "fork"), `${woken} woken by events`];
  document.getElementById("summary").textContent = counts.join(" · ");
  if (!sessions.length) {
    document.getElementById("overview").replaceChildren(make("p", {class: "empty"}, "No sessions yet."));
    document.getElementById("reader").hidden = true;
    return;
  }
  drawLineage();
  drawTimeline();
  drawCauses();
  bindWorkflows();
  document.addEventListener("keydown", onKey);
  const asked = decodeURIComponent(location.hash.slice(1));
  const newest = sessions.reduce((a, b) => (b.updated > a.updated && b.count ? b : a));
  choose(byId.has(asked) ? asked : newest.id, {keep: false});
}

begin();
