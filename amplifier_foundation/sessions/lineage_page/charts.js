// the timeline: a lane for each session in the order they began, and a curve from what emitted an event to what it woke

function newest(listed, time) {
  return [...listed].sort((a, b) => time(b) - time(a)).slice(0, MOST).reverse();
}

function only(shown, all, noun) {
  const text = `the newest ${shown} of ${plural(all, noun)}; filter to see others`;
  return shown < all ? [make("p", {class: "only"}, text)] : [];
}

function drawTimeline() {
  const box = find("timeline"), lanes = newest(found, (each) => each.created);
  if (!lanes.length) return box.replaceChildren(make("p", {class: "empty"}, "No session matches."));
  const from = Math.min(...lanes.map((each) => each.created)), to = Math.max(...lanes.map((each) => each.updated));
  const span = Math.max(to - from, 1), width = Math.max(300, box.clientWidth - 40), height = 26, top = 26;
  const labels = Math.min(220, width / 2.4, 22 + 7.3 * Math.max(...lanes.map((each) => each.id.length)));
  const at = (time) => labels + ((time - from) / span) * (width - labels - 14);
  const chart = draw("svg", {width, height: top + lanes.length * height + 6, role: "group", "aria-label": "Timeline"});
  for (const time of ticks(from, from + span, Math.floor((width - labels) / 110))) {
    chart.append(draw("line", {x1: at(time), x2: at(time), y1: top - 4, y2: top + lanes.length * height, class: "grid"}));
    chart.append(draw("text", {x: at(time), y: 13, "text-anchor": "middle", class: "axis"}, tickLabel(time, span)));
  }
  const laneOf = new Map(lanes.map((session, index) => [session.id, top + index * height + height / 2]));
  for (const session of lanes) {
    const y = laneOf.get(session.id), told = `${session.id}: ${session.status}, ${moment(session.created)}, ${lasted(session.updated - session.created)}`;
    const lane = draw("a", {href: address({session: session.id}), class: `lane ${tone(session)}`, "data-session": session.id, "aria-label": told});
    lane.append(draw("rect", {x: 0, y: y - height / 2, width, height, rx: 5, class: "hit"}));
    lane.append(draw("text", {x: 4, y: y + 4}, cut(session.id, Math.floor((labels - 8) / 7.3))));
    const length = Math.max(5, at(session.updated) - at(session.created));
    lane.append(draw("rect", {x: at(session.created), y: y - 4.5, width: length, height: 9, rx: 4.5, class: "bar"}), draw("title", {}, told));
    chart.append(lane);
  }
  for (const session of lanes) chart.append(...curves(session, laneOf, at));
  box.replaceChildren(chart, ...only(lanes.length, found.length, "session"));
}

function curves(session, laneOf, at) {
  const x = at(session.created), y = laneOf.get(session.id), drawn = [];
  const fork = session.fork_of !== null, sourceId = fork ? session.fork_of : session.woken && session.woken.by;
  const source = laneOf.has(sourceId) ? byId.get(sourceId) : undefined;
  if (source && source !== session) {
    const start = Math.max(at(source.created), Math.min(x, at(source.updated))), from = laneOf.get(sourceId);
    const path = `M${start} ${from} C${start} ${(from + 3 * y) / 4} ${x} ${(3 * from + y) / 4} ${x} ${y}`;
    drawn.push(draw("path", {d: path, class: fork ? "fork curve" : "woke curve", "data-ends": `${sourceId} ${session.id}`}));
  }
  if (session.woken && !fork) drawn.push(draw("circle", {cx: x, cy: y, r: 3, class: "event"}));
  return drawn;
}

function ticks(from, to, most) {
  const steps = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400];
  const wanted = (to - from) / Math.max(2, most);
  const step = steps.find((each) => each >= wanted) || Math.ceil(wanted / 86400) * 86400;
  const found = [];
  for (let count = Math.ceil(from / step); count * step <= to; count++) found.push(count * step);
  return found;
}

function tickLabel(time, span) {
  const text = new Date(time * 1000).toISOString();
  if (span > 3 * 86400) return text.slice(5, 10);
  return span > 3600 ? `${span > 86400 ? text.slice(8, 10) + ". " : ""}${text.slice(11, 16)}` : text.slice(11, 19);
}

// what woke what

function drawCauses() {
  const all = found.filter((session) => session.woken), woken = newest(all, (each) => each.woken.at);
  find("causes-section").hidden = !all.length;
  find("causes").replaceChildren(...woken.map((session) => {
    const {what, at, state, by} = session.woken;
    const time = make("time", {datetime: new Date(at * 1000).toISOString()}, moment(at, {day: false}));
    const row = make("li", {class: "cause", "data-session": session.id}, time, make("span", {class: "what"}, ...linked(what, [by])));
    row.append(make("span", {class: "arrow"}, "→"), make("span", {class: "id"}, link(session.id)), make("span", {class: "state"}, state));
    return row;
  }), ...only(woken.length, all.length, "event"));
}

// the workflows: each picture is shown with its run, and with the sessions of its tasks

function bindWorkflows() {
  for (const task of document.querySelectorAll(".workflow [data-session]")) {
    if (!byId.has(task.dataset.session)) continue;
    const open = () => read(task.dataset.session);
    task.setAttribute("tabindex", "0");
    task.setAttribute("role", "button");
    task.addEventListener("keydown", (event) => { if (event.key === "Enter") open(); });
    task.addEventListener("click", open);
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

// the trace of one session: sums, the slowest calls, and all steps on an axis of time

const KINDS = {turn: "turns", model: "model", tool: "tool", session: "children"};

const SUM = ["kind", "name", "count", "seconds", "untimed", "tokens_in", "tokens_out", "cost"];
const SPAN = ["kind", "name", "message", "start", "seconds", "is_bound", "tokens", "cost", "session_id"];
const named = (names, values) => Object.fromEntries(names.map((name, index) => [name, values[index]]));

function drawTrace(session) {
  if (!session.trace) return [make("p", {class: "message"}, "Nothing is known about its calls.")];
  const trace = {...session.trace, sums: session.trace.sums.map((each) => named(SUM, each)), spans: session.trace.spans.map((each) => named(SPAN, each))};
  const rest = trace.rest === null ? [] : [["rest of the turns", "", lasted(trace.rest), "", "", ""]];
  const sums = trace.sums.map((each) => [
    `${KINDS[each.kind]} ${each.name}`, each.count, each.seconds === null ? "unknown" : lasted(each.seconds) + (each.untimed ? " + ?" : ""),
    each.tokens_in.toLocaleString("en"), each.tokens_out.toLocaleString("en"), each.cost || "unknown",
  ]);
  for (const [index, each] of trace.sums.entries()) {
    if (each.kind === "turn" || each.kind === "tool") sums[index].splice(3, 3, "", "", "");
  }
  const calls = trace.spans.filter((span) => span.seconds !== null && (span.kind === "model" || span.kind === "tool"));
  const slowest = calls.sort((a, b) => b.seconds - a.seconds).slice(0, 10);
  return [
    table("Where the time and the money went (in, out: tokens)", ["where", "count", "time", "in", "out", "cost"], [...sums, ...rest]),
    ...trace.notes.map((text) => make("p", {class: "unknown"}, text)),
    table("The slowest calls", ["call", "message", "time", "cost"], slowest.map((span) => [
      `${span.kind} ${span.name}`, place(session, span), `${span.is_bound ? "≤ " : ""}${lasted(span.seconds)}`, span.cost,
    ])),
    ...drawSpans(session, trace.spans),
  ];
}

function place(session, span) {
  return make("a", {class: "link", href: address({session: session.id, message: String(span.message)})}, `m${span.message}`);
}

function table(caption, headings, lines) {
  const cell = (value, index) => make(index ? "td" : "th", index ? {} : {scope: "row"}, value instanceof Node ? value : String(value));
  return make("div", {class: "table"}, make("table", {}, make("caption", {}, caption),
    make("thead", {}, make("tr", {}, ...headings.map((text) => make("th", {scope: "col"}, text)))),
    make("tbody", {}, ...lines.map((line) => make("tr", {}, ...line.map(cell))))));
}

function drawSpans(session, spans) {
  const timed = spans.filter((span) => span.start !== null && span.seconds !== null), shown = timed.slice(0, MOST);
  if (!shown.length) return [];
  shown.sort((a, b) => a.start - b.start || b.seconds - a.seconds);
  const from = Math.min(...shown.map((each) => each.start)), to = Math.max(...shown.map((each) => each.start + each.seconds));
  const width = Math.max(300, find("reader").clientWidth - 50), labels = Math.min(190, width / 2.6), height = 22, top = 24;
  const span = Math.max(to - from, 0.01), at = (time) => labels + ((time - from) / span) * (width - labels - 30);
  const chart = draw("svg", {width, height: top + shown.length * height + 4, role: "group", "aria-label": "Steps on an axis of time"});
  for (const time of ticks(0, span, Math.floor((width - labels) / 80))) {
    chart.append(draw("line", {x1: at(from + time), x2: at(from + time), y1: top - 4, y2: top + shown.length * height, class: "grid"}));
    chart.append(draw("text", {x: at(from + time), y: 13, "text-anchor": "middle", class: "axis"}, lasted(time)));
  }
  shown.forEach((each, index) => {
    const y = top + index * height, told = [`${each.kind} ${each.name}`, `${each.is_bound ? "at most " : ""}${lasted(each.seconds)}`, each.tokens ? `${each.tokens} tokens` : "", each.cost].filter(Boolean).join(", ");
    const id = each.session_id || session.id;
    const bar = draw("a", {class: `span ${each.kind}`, href: address({session: id, message: each.message ? String(each.message) : ""}), "aria-label": told});
    bar.append(draw("rect", {x: 0, y, width, height, rx: 4, class: "hit"}), draw("title", {}, told));
    bar.append(draw("text", {x: each.kind === "turn" ? 4 : 14, y: y + 15}, cut(each.kind === "turn" ? each.name : `${each.kind} ${each.name}`, Math.floor((labels - 18) / 7.3))));
    bar.append(draw("rect", {x: at(each.start), y: y + 6, width: Math.max(3, at(each.start + each.seconds) - at(each.start)), height: 10, rx: 3, class: "bar"}));
    chart.append(bar);
  });
  return [make("h3", {}, "Steps"), make("div", {class: "steps", tabindex: "0", role: "region", "aria-label": "Steps"}, chart), ...only(shown.length, timed.length, "step")];
}
