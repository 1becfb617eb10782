// Keeps the page as it is on the server: applies its events, and comes back after a lost connection.
"use strict";
(() => {
  const root = document.documentElement;
  const status = document.getElementById("connection");
  const AGAIN = [250, 500, 1000, 2000, 4000];
  let cursor = root.dataset.cursor || "";
  let tries = 0;
  let source = null;
  let resting = 0;

  function show(text) { if (status.textContent !== text) status.textContent = text; }

  const title = document.title.replace(/^\(\d+\) /, "");
  function showInTitle() {
    const number = Number(document.getElementById("views").dataset.inTitle);
    document.title = number ? `(${number}) ${title}` : title;
  }

  function applyPart({ id, html }) {
    const element = document.getElementById(id);
    if (!element) return;
    amplifier.keepFocus(element, () => Idiomorph.morph(element, html, {
      ignoreActiveValue: document.activeElement.matches("input, textarea, select"), // the content of others is updated
      callbacks: {
        beforeNodeMorphed: (node) => !(node.dataset && "keep" in node.dataset),
        beforeAttributeUpdated: (name, node, kind) => name !== "tabindex" || kind !== "remove", // a script has set it
      },
    }));
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
    amplifier.keepFocus(list, () => { while (list.children.length > keep) list.firstElementChild.remove(); });
    if (atEnd) list.scrollTop = list.scrollHeight;
    document.dispatchEvent(new CustomEvent("amplifier:changed", { detail: list }));
  }

  // More pages of a browser than may be live take turns; one that is looked at comes back soon.
  function rest() {
    source.close();
    resting = setTimeout(connect, document.hidden ? 30000 : 2000);
  }

  function connect() {
    resting = 0;
    const page = location.pathname.slice(amplifier.root.length) + location.search;
    source = new EventSource(`${amplifier.root}/live?page=${encodeURIComponent(page)}&cursor=${encodeURIComponent(cursor)}`);
    const on = (kind, apply) => source.addEventListener(kind, (event) => {
      cursor = event.lastEventId;
      apply(JSON.parse(event.data));
      if (kind !== "trouble") show("");
    });
    source.onopen = () => { tries = 0; show(""); root.dataset.live = "yes"; };
    on("part", applyPart);
    on("feed", applyFeed);
    source.addEventListener("rest", rest);
    on("trouble", ({ text }) => show(`Not up to date: ${text}`));
    source.onerror = () => {
      source.close();
      root.dataset.live = "no";
      show("The connection is lost. Trying again …");
      setTimeout(connect, AGAIN[Math.min(tries, AGAIN.length - 1)]);
      tries += 1;
    };
  }

  document.addEventListener("visibilitychange", () => {
    if (document.hidden || !resting) return;
    clearTimeout(resting);
    connect();
  });
  addEventListener("pagehide", () => source?.close());
  addEventListener("pageshow", (event) => { if (event.persisted) connect(); });
  connect();
})();
