"use strict";
// Everything that was said is put in as text (textContent, attributes of no meaning to a browser), never as markup.
const NOTHING = {
  name: "", error: "", bundle: "", parent: null, fork_of: null, fork_at: null, agent: "", host: "", lasted: null, cost: "", turns: 0, count: 0,
  woken: null, start: 0, depth: 0, outcome: "", trace: null,
};
const data = JSON.parse(document.getElementById("data").textContent), title = data.title;
const sessions = data.sessions.map((session) => ({...NOTHING, ...session}));
let messages = null;

function messagesOf(session) {
  messages = messages || JSON.parse(document.getElementById("messages").textContent);
  return Object.hasOwn(messages, session.id) ? messages[session.id].map((each) => ({title: each.role, text: "", calls: [], ...each})) : null;
}

const byId = new Map(sessions.map((session) => [session.id, session]));
const SVG = "http://www.w3.org/2000/svg";
const MOST = 300; // lanes, rows and bars of one chart

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

const find = (id) => document.getElementById(id);
const pad = (number) => String(number).padStart(2, "0");
const KNOWN = ["running", "completed", "failed", "cancelled", "interrupted", "waiting", "idle"];
const tone = (session) => (KNOWN.includes(session.status) ? session.status : "idle");
const plural = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

function moment(seconds, {day = true} = {}) {
  const date = new Date(seconds * 1000);
  const clock = `${pad(date.getUTCHours())}:${pad(date.getUTCMinutes())}:${pad(date.getUTCSeconds())}`;
  return day ? `${date.toISOString().slice(0, 10)} ${clock} UTC` : clock;
}

function lasted(seconds) {
  if (seconds < 1) return `${seconds.toFixed(2)} s`;
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.round((seconds % 3600) / 60)} min`;
  return `${(seconds / 86400).toFixed(1)} days`;
}

function spent(session) {
  return [session.lasted === null ? "" : lasted(session.lasted), session.cost].filter(Boolean);
}

// the tree: a session stands below its source or its parent, unless a damaged store has them in a circle

function above(session) {
  return session.depth ? byId.get(session.fork_of || session.parent) : undefined;
}

const children = new Map(), woke = new Map();

function note(map, id, session) {
  if (!map.has(id)) map.set(id, []);
  map.get(id).push(session);
}

for (const session of sessions) {
  const parent = above(session);
  if (parent) note(children, parent.id, session);
  if (session.woken && byId.has(session.woken.by)) note(woke, session.woken.by, session);
}

// the address: what is shown stands in the fragment, so that a link can be passed on, and Back works

const PARTS = ["session", "view", "message", "status", "name", "text"];
const FILTERS = ["status", "name", "text"];

function readAddress(address = location.hash) {
  const text = address.slice(1), empty = Object.fromEntries(PARTS.map((part) => [part, ""]));
  if (!text.includes("=")) {
    try { return {...empty, session: decodeURIComponent(text)}; } catch { return {...empty, session: text}; }
  }
  const read = new URLSearchParams(text);
  return Object.fromEntries(PARTS.map((part) => [part, read.get(part) || ""]));
}

let state = readAddress("");

function address(changes) {
  const next = {...state, view: "", message: "", ...changes};
  const written = new URLSearchParams(PARTS.filter((part) => next[part]).map((part) => [part, next[part]]));
  return `#${written}`;
}

function link(id, text = id, attributes = {}) {
  if (!byId.has(id)) return document.createTextNode(text);
  return make("a", {href: address({session: id}), class: "link", ...attributes}, text);
}

// Text with the ids of these sessions as links.
function linked(text, ids, attributes) {
  const id = ids.find((each) => each && byId.has(each) && text.includes(each));
  if (!id) return [text];
  const at = text.indexOf(id);
  return [text.slice(0, at), link(id, id, attributes), ...linked(text.slice(at + id.length), ids, attributes)];
}

// the filter

const texts = new Map();

function textOf(session) {
  if (!texts.has(session.id)) {
    const said = (messagesOf(session) || []).flatMap((message) => [message.text, ...message.calls]);
    const about = [session.error, session.outcome, session.woken ? session.woken.what : "", session.bundle];
    texts.set(session.id, [...about, ...said].join("\n").toLowerCase());
  }
  return texts.get(session.id);
}

function matches(session) {
  if (state.status && session.status !== state.status) return false;
  const name = state.name.toLowerCase(), text = state.text.toLowerCase();
  const names = `${session.name}\n${session.id}\n${session.agent}`.toLowerCase();
  return (!name || names.includes(name)) && (!text || names.includes(text) || textOf(session).includes(text));
}
