// the reader: one session with its facts and messages, or with its trace

function drawReader(session) {
  const reader = find("reader");
  const back = make("a", {class: "back", href: address({session: ""})}, "‹ All sessions");
  back.addEventListener("click", (event) => { event.preventDefault(); goBack(); });
  const view = (name, text) => make("a", {href: address({session: session.id, view: name}), ...(state.view === name ? {"aria-current": "page"} : {})}, text);
  const views = make("nav", {class: "views", "aria-label": "Views of this session"}, view("", "Messages"), view("trace", "Trace"));
  reader.replaceChildren(back, ...heading(session), views, ...(state.view === "trace" ? drawTrace(session) : conversation(session)));
  reader.scrollTop = 0;
  const message = state.message && reader.querySelector(`[data-message="${CSS.escape(state.message)}"]`);
  if (message) message.scrollIntoView();
}

function heading(session) {
  const facts = make("dl");
  const fact = (label, ...value) => facts.append(make("dt", {}, label), make("dd", {}, ...value));
  const all = (label, listed) => {
    if (!listed.length) return;
    const links = listed.slice(0, 20).flatMap((each, index) => [index ? ", " : "", link(each.id)]);
    fact(label, ...links, listed.length > 20 ? ` and ${plural(listed.length - 20, "other")}` : "");
  };
  const below = children.get(session.id) || [];
  if (session.name) fact("name", session.name);
  if (session.bundle && session.bundle !== session.name) fact("bundle", session.bundle);
  if (session.parent && session.parent !== session.fork_of) fact("made by", link(session.parent));
  if (session.agent) fact("agent", session.agent);
  if (session.host) fact("host", session.host);
  if (session.fork_of) fact("fork of", link(session.fork_of), ` at m${session.fork_at}`);
  if (session.woken) fact("woken by", ...linked(session.woken.what, [session.woken.by]));
  fact("began", moment(session.created));
  fact("changed", `${moment(session.updated)}, ${lasted(session.updated - session.created)} later`);
  if (spent(session).length) fact("took", spent(session).join(", "));
  all("forks", below.filter((each) => each.fork_of === session.id));
  all("children", below.filter((each) => each.fork_of !== session.id));
  all("woke", woke.get(session.id) || []);
  if (session.error) facts.append(make("dt", {}, "error"), make("dd", {class: "error"}, session.error));
  return [make("h2", {id: "reader-title"}, session.id), make("span", {class: `pill ${tone(session)}`}, session.status), facts];
}

// A fork's page data holds what it says itself; the rest is its source's, up to the point where it was forked.
function said(session, limit = Infinity) {
  const pieces = [];
  for (let each = session, stop = limit; each; ) {
    const own = messagesOf(each);
    if (own === null) return null;
    pieces.unshift(own.slice(0, Math.max(0, stop - each.start)));
    stop = Math.min(stop, each.start);
    each = each.start > 0 ? byId.get(each.fork_of) : null;
  }
  return pieces.flat();
}

function conversation(session) {
  const messages = said(session);
  if (messages === null) {
    return [make("p", {class: "message"}, `What it says is not in this page: amplifier session show ${session.id}`)];
  }
  if (!messages.length) return [make("p", {class: "message"}, "Nothing was said.")];
  const elements = messages.map((message, index) => show(message, index + 1, index < (session.fork_at || 0)));
  if (session.fork_of) {
    elements.splice(session.fork_at, 0, make("div", {class: "parting"}, make("span", {}, "forked from ", link(session.fork_of))));
  }
  return elements;
}

function show(message, number, shared) {
  const role = ["user", "assistant", "tool"].includes(message.role) ? message.role : "system";
  const heading = message.hook ? "hook" : message.title;
  const element = make("div", {class: `message ${role}${shared ? " shared" : ""}`, "data-message": number});
  element.append(make("h3", {}, heading, make("span", {}, `m${number}`)));
  if (message.text) element.append(make("p", {}, message.text));
  for (const call of message.calls) element.append(make("div", {class: "call"}, call));
  return element;
}
