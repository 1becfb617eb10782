// Keeps the page as it is on the server: applies its events, and comes back after a lost connection.
"use strict";
(() => {
  const root = document.documentElement;
  const status = document.getElementById("connection");
  const AGAIN = [250, 500, 1000, 2000, 4000];
  let cursor = root.dataset.cursor || "";
  let tries = 0;
  let source = null;

  function show(text) { if (status.textContent !== text) status.textContent = text; }

  const title = document.title.replace(/^\(\d+\) /, "");
  function showInTitle() {
    const number = Number(document.getElementById("views").dataset.inTitle);
    document.title = number ? `(${number}) ${title}` : title;
  }

  function applyPart({ id, html }) {
    const element = document.getElementById(id);
    if (!element) return;
    Idiomorph.morph(element, html, {
      ignoreActiveValue: true,
      callbacks: { beforeNodeMorphed: (node) => !(node.dataset && "keep" in node.dataset) },
    });
    if (id === "views") showInTitle();
    document.dispatchEvent(new CustomEvent("amplifier:changed", { detail: document.getElementById(id) }));
  }

  function applyFeed({ id, html, keep, left_out: leftOut }) {
    const list = document.getElementById(id);
    if (!list) return;
    const atEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 40;
    const last = Number(list.lastElementChild?.dataset.number ?? 0);
    const made = document.createElement("template");
    made.innerHTML = html;
    if (leftOut) {
      const note = document.createElement("li");
      note.className = "left-out";
      note.textContent = `… ${leftOut.toLocaleString()} more`;
      list.append(note);
    }
    for (const entry of [...made.content.children]) {
      if (Number(entry.dataset.number) > last) list.append(entry);
    }
    while (list.children.length > keep) list.firstElementChild.remove();
    if (atEnd) list.scrollTop = list.scrollHeight;
    document.dispatchEvent(new CustomEvent("amplifier:changed", { detail: list }));
  }

  function connect() {
    const page = location.pathname + location.search;
    source = new EventSource(`/live?page=${encodeURIComponent(page)}&cursor=${encodeURIComponent(cursor)}`);
    const on = (kind, apply) => source.addEventListener(kind, (event) => {
      cursor = event.lastEventId;
      apply(JSON.parse(event.data));
      if (kind !== "trouble") show("");
    });
    source.onopen = () => { tries = 0; show(""); root.dataset.live = "yes"; };
    on("part", applyPart);
    on("feed", applyFeed);
    on("trouble", ({ text }) => show(`Not up to date: ${text}`));
    source.onerror = () => {
      source.close();
      root.dataset.live = "no";
      show("The connection is lost. Trying again …");
      setTimeout(connect, AGAIN[Math.min(tries, AGAIN.length - 1)]);
      tries += 1;
    };
  }

  addEventListener("pagehide", () => source?.close());
  addEventListener("pageshow", (event) => { if (event.persisted) connect(); });
  connect();
})();
