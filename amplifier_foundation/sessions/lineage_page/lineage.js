// the lineage: a tree whose rows are made as they come into view, with the lines to the sessions they stand below

const ROW = 46;
const deepest = sessions.reduce((most, session) => Math.max(most, session.depth), 0);
const step = Math.min(22, 220 / Math.max(1, deepest));
const left = (depth) => 22 + depth * step;
const closed = new Set();
let rows = [], found = sessions, active = 0;

function filterSessions() {
  const isFiltered = FILTERS.some((part) => state[part]);
  found = isFiltered ? sessions.filter(matches) : sessions;
  const own = new Set(found), kept = new Set(found);
  for (const session of found) {
    for (let each = above(session); each && !kept.has(each); each = above(each)) kept.add(each);
  }
  layOut(own, kept);
  const failed = found.filter((session) => session.status === "failed").length;
  const all = isFiltered ? `${found.length.toLocaleString("en")} of ${plural(sessions.length, "session")} match` : plural(found.length, "session");
  find("count").textContent = `${all} · ${failed.toLocaleString("en")} failed`;
}

function layOut(own, kept) {
  rows = [];
  let hidden = Infinity;
  for (const session of sessions) {
    if (session.depth > hidden) continue;
    hidden = Infinity;
    if (!kept.has(session)) continue;
    rows.push({session, isContext: !own.has(session), more: false, below: (children.get(session.id) || []).some((each) => kept.has(each))});
    if (closed.has(session.id)) hidden = session.depth;
  }
  const open = []; // whether a later row stands below the same session, by depth
  for (let index = rows.length - 1; index >= 0; index--) {
    const {depth} = rows[index].session;
    rows[index].more = Boolean(open[depth]);
    rows[index].guides = open.slice(1, depth);
    open[depth] = true;
    open.length = depth + 1;
  }
  const places = new Map();
  for (const row of rows) {
    const parent = above(row.session), key = parent ? parent.id : "";
    places.set(key, (places.get(key) || 0) + 1);
    row.place = places.get(key);
  }
  for (const row of rows) row.places = places.get(above(row.session) ? above(row.session).id : "");
  active = Math.min(active, Math.max(0, rows.length - 1));
}

function drawRows() {
  const box = find("lineage");
  const first = Math.max(0, Math.floor(box.scrollTop / ROW) - 4);
  const last = Math.min(rows.length, Math.ceil((box.scrollTop + (box.clientHeight || 600)) / ROW) + 4);
  const shown = [...Array(Math.max(0, last - first)).keys()].map((index) => first + index);
  if (rows.length && (active < first || active >= last)) shown.push(active);
  const inner = box.firstElementChild || box.appendChild(make("div", {class: "rows", role: "none"}));
  inner.style.height = `${Math.max(1, rows.length) * ROW}px`;
  inner.replaceChildren(...shown.map(drawRow));
  if (!rows.length) inner.append(make("p", {class: "empty"}, sessions.length ? "No session matches." : "No sessions yet."));
  if (rows.length) box.setAttribute("aria-activedescendant", `row-${active}`);
  else box.removeAttribute("aria-activedescendant");
}

function drawRow(index) {
  const {session, isContext, below, place, places} = rows[index];
  const names = ["row", isContext ? "context" : "", index === active ? "active" : ""].filter(Boolean).join(" ");
  const row = make("div", {
    class: names, role: "treeitem", id: `row-${index}`, "aria-level": session.depth + 1, "aria-setsize": places, "aria-posinset": place,
    "aria-selected": String(session.id === shownId), "aria-label": describe(session), "data-session": session.id,
  });
  if (below) row.setAttribute("aria-expanded", String(!closed.has(session.id)));
  row.style.top = `${index * ROW}px`;
  row.style.paddingLeft = `${left(session.depth) + 14}px`;
  const size = make("span", {class: "size"}, make("span", {class: "turns"}, `${plural(session.turns, "turn")}${spent(session).length ? " · " : ""}`), spent(session).join(" · "));
  row.append(
    drawGuides(rows[index]),
    make("div", {class: "line"}, make("span", {class: "id"}, session.id), make("span", {class: `pill ${tone(session)}`}, session.status), size),
    make("div", {class: "line"}, ...noteOf(session), make("span", {class: session.status === "failed" ? "outcome error" : "outcome"}, session.outcome)),
  );
  row.addEventListener("click", (event) => {
    active = index;
    if (event.target.closest(".twist")) toggle(session);
    else if (!event.target.closest("a")) read(session.id);
  });
  return row;
}

function describe(session) {
  const facts = [session.name || session.id, session.status, plural(session.turns, "turn"), ...spent(session), noteText(session), session.outcome];
  return facts.filter(Boolean).join(", ");
}

function drawGuides({session, more, guides, below}) {
  const width = left(session.depth) + 12, x = left(session.depth), middle = ROW / 2;
  const lines = draw("svg", {width, height: ROW, "aria-hidden": "true"});
  guides.forEach((isOpen, index) => {
    if (isOpen) lines.append(draw("path", {d: `M${left(index)} 0 V${ROW}`, class: "made"}));
  });
  if (session.depth) {
    const from = left(session.depth - 1), bend = Math.min(9, step), kind = session.fork_of && above(session).id === session.fork_of ? "fork" : "made";
    if (more) lines.append(draw("path", {d: `M${from} 0 V${ROW}`, class: "made"}));
    lines.append(draw("path", {d: `M${from} 0 V${middle - bend} q0 ${bend} ${bend} ${bend} H${Math.max(x - 6, from + bend)}`, class: kind}));
  }
  if (below && !closed.has(session.id)) lines.append(draw("path", {d: `M${x} ${middle + 6} V${ROW}`, class: "made"}));
  const done = session.status === "completed" || session.status === "failed" ? " done" : "";
  lines.append(draw("circle", {cx: x, cy: middle, r: 5, class: `dot ${tone(session)}${done}`}));
  if (below) {
    const sign = closed.has(session.id) ? `M${x - 3} ${middle} h6 M${x} ${middle - 3} v6` : `M${x - 3} ${middle} h6`;
    const twist = draw("g", {class: "twist"}, draw("circle", {cx: x, cy: middle, r: 9, class: `knob ${tone(session)}`}), draw("path", {d: sign}));
    lines.append(twist);
  }
  return lines;
}

function noteText(session) {
  if (session.agent) return `agent ${session.agent}`;
  if (session.fork_of) return `fork of ${session.fork_of} at m${session.fork_at}`;
  if (session.woken) return `woken by ${session.woken.what}`;
  return session.name && !session.id.startsWith(session.name) ? session.name : "";
}

function noteOf(session) {
  const text = noteText(session);
  if (!text) return [];
  const kind = session.agent ? "" : session.fork_of ? " fork" : session.woken ? " woke" : "";
  return [make("span", {class: `note${kind}`}, ...linked(text, [session.fork_of, session.woken && session.woken.by], {tabindex: "-1"}))];
}

function toggle(session) {
  if (!closed.delete(session.id)) closed.add(session.id);
  filterSessions();
  drawRows();
}

function move(index) {
  if (!rows.length) return;
  active = Math.max(0, Math.min(rows.length - 1, index));
  const box = find("lineage"), top = active * ROW;
  if (top < box.scrollTop) box.scrollTop = top;
  if (top + ROW > box.scrollTop + box.clientHeight) box.scrollTop = top + ROW - box.clientHeight;
  drawRows();
}

function reveal(id) {
  for (let each = above(byId.get(id)); each; each = above(each)) closed.delete(each.id);
  filterSessions();
  const index = rows.findIndex((row) => row.session.id === id);
  if (index >= 0) move(index);
  else drawRows();
}

function onTreeKey(event) {
  const row = rows[active];
  if (!row || event.altKey || event.ctrlKey || event.metaKey) return;
  const {session, below} = row, page = Math.max(1, Math.floor(find("lineage").clientHeight / ROW) - 1);
  const isOpen = below && !closed.has(session.id), parent = rows.findIndex((each) => each.session === above(session));
  const acts = {
    ArrowDown: () => move(active + 1), ArrowUp: () => move(active - 1), Home: () => move(0), End: () => move(rows.length - 1),
    PageDown: () => move(active + page), PageUp: () => move(active - page),
    ArrowRight: () => (below && !isOpen ? toggle(session) : isOpen && move(active + 1)),
    ArrowLeft: () => (isOpen ? toggle(session) : parent >= 0 && move(parent)),
    Enter: () => read(session.id), " ": () => read(session.id),
  };
  if (!(event.key in acts)) return;
  event.preventDefault();
  acts[event.key]();
}
