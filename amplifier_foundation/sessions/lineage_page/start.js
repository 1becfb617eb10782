// what is shown follows the address; keys and clicks change the address

const narrow = matchMedia("(max-width: 900px)");
let shownId = null, focusReader = false, cameFromList = false;

function read(id) {
  focusReader = true;
  if (state.session === id && !state.view) return apply();
  location.hash = address({session: id});
}

function goBack() {
  focusReader = false;
  if (narrow.matches && cameFromList) return window.history.back();
  if (narrow.matches) location.hash = address({session: ""});
  find("lineage").focus();
}

function newestWithContent() {
  const runs = new Set([...document.querySelectorAll(".workflow")].map((each) => each.dataset.run));
  const full = sessions.filter((session) => session.count || session.turns || runs.has(session.id));
  return (full.length ? full : sessions).reduce((a, b) => (b.updated > a.updated ? b : a)).id;
}

function apply() {
  const before = state;
  state = readAddress();
  if (shownId === null || FILTERS.some((part) => before[part] !== state[part])) {
    for (const part of FILTERS) if (find(`filter-${part}`).value !== state[part]) find(`filter-${part}`).value = state[part];
    filterSessions();
    if (shownId !== null) drawRows();
    drawTimeline();
    drawCauses();
  }
  if (!sessions.length) return;
  const isOpen = byId.has(state.session), id = isOpen ? state.session : shownId || newestWithContent();
  if (id !== shownId) reveal(shownId = id);
  mark(id);
  showWorkflow(byId.get(id));
  drawReader(byId.get(id));
  document.body.classList.toggle("reading", isOpen);
  find("overview").inert = find("top").inert = narrow.matches && isOpen;
  if (isOpen && (focusReader || narrow.matches)) find("reader").focus({preventScroll: !narrow.matches});
  else if (!isOpen && narrow.matches && before.session) find("lineage").focus();
  focusReader = false;
}

function mark(id) {
  for (const element of document.querySelectorAll("[data-session]")) {
    if (element.getAttribute("role") === "treeitem") element.setAttribute("aria-selected", String(element.dataset.session === id));
    else element.setAttribute("aria-current", String(element.dataset.session === id));
  }
  for (const curve of document.querySelectorAll(".curve")) curve.classList.toggle("lit", curve.dataset.ends.split(" ").includes(id));
}

function onKey(event) {
  const isTyping = event.target.closest("input, select"), isModified = event.altKey || event.ctrlKey || event.metaKey;
  if (find("keys").open || isModified) return;
  if (event.key === "Escape") {
    event.preventDefault();
    goBack();
  } else if (!isTyping && event.key === "/") {
    event.preventDefault();
    if (narrow.matches && state.session) location.hash = address({session: ""});
    find("filter-text").focus();
  } else if (!isTyping && event.key === "?") {
    find("keys").showModal();
  }
}

function bindFilter() {
  const used = new Set(sessions.map((session) => session.status));
  find("filter-status").append(...[...used].sort().map((each) => make("option", {value: each}, each)));
  for (const part of FILTERS) {
    find(`filter-${part}`).addEventListener("input", (event) => {
      location.replace(address({[part]: event.target.value, view: state.view, message: state.message}));
    });
  }
  find("filter").addEventListener("submit", (event) => event.preventDefault());
  find("filter").addEventListener("keydown", (event) => {
    if (event.key !== "ArrowDown" && event.key !== "Enter" || event.target.tagName !== "INPUT") return;
    event.preventDefault();
    find("lineage").focus();
  });
  find("help").addEventListener("click", () => find("keys").showModal());
}

function begin() {
  find("where").textContent = title;
  const forks = sessions.filter((session) => session.fork_of).length;
  const woken = sessions.filter((session) => session.woken).length;
  find("summary").textContent = [plural(sessions.length, "session"), plural(forks, "fork"), `${woken} woken by events`].join(" · ");
  if (!sessions.length) {
    find("overview").replaceChildren(make("p", {class: "empty"}, "No sessions yet."));
    find("reader").hidden = true;
    return;
  }
  bindFilter();
  bindWorkflows();
  let isDrawing = false;
  find("lineage").addEventListener("keydown", onTreeKey);
  find("lineage").addEventListener("scroll", () => {
    if (!isDrawing) requestAnimationFrame(() => { isDrawing = false; drawRows(); });
    isDrawing = true;
  });
  document.addEventListener("keydown", onKey);
  window.addEventListener("hashchange", (event) => {
    cameFromList = !readAddress(new URL(event.oldURL).hash).session && Boolean(readAddress().session);
    apply();
  });
  narrow.addEventListener("change", () => { drawTimeline(); apply(); });
  apply();
}

begin();
