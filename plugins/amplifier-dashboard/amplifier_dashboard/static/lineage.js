// The tree of sessions: opens and closes branches, by click and by arrow keys; what is closed stays closed after an update.
"use strict";
(() => {
  const closed = new Set();
  let active = null;

  const rows = () => [...document.querySelectorAll("#rows [role=treeitem]")];
  const depth = (row) => Number(row.dataset.depth);
  const seen = () => rows().filter((row) => !row.hidden);

  function show() {
    let below = Infinity;
    for (const row of rows()) {
      const hidden = depth(row) > below;
      if (row.hidden !== hidden) row.hidden = hidden;
      if (hidden) continue;
      below = Infinity;
      if (row.hasAttribute("aria-expanded")) {
        const isClosed = closed.has(row.id);
        row.setAttribute("aria-expanded", String(!isClosed));
        if (isClosed) below = depth(row);
      }
    }
    const all = seen();
    const now = all.find((row) => row.id === active) ?? all.find((row) => row.ariaCurrent === "true") ?? all[0];
    for (const row of all) row.tabIndex = row === now ? 0 : -1;
  }

  function focus(row) {
    if (!row) return;
    active = row.id;
    show();
    row.focus();
    row.scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  function turn(row, close) {
    if (close) closed.add(row.id); else closed.delete(row.id);
    show();
  }

  function press(key, row) {
    const all = seen();
    const at = all.indexOf(row);
    const opens = row.getAttribute("aria-expanded");
    if (key === "ArrowDown") focus(all[at + 1]);
    else if (key === "ArrowUp") focus(all[at - 1]);
    else if (key === "Home") focus(all[0]);
    else if (key === "End") focus(all.at(-1));
    else if (key === "ArrowRight" && opens === "false") turn(row, false);
    else if (key === "ArrowRight" && opens === "true") focus(all[at + 1]);
    else if (key === "ArrowLeft" && opens === "true") turn(row, true);
    else if (key === "ArrowLeft") focus(all.slice(0, at).reverse().find((each) => depth(each) < depth(row)));
    else if (key === "Enter") row.querySelector("a").click();
    else return false;
    return true;
  }

  document.addEventListener("keydown", (event) => {
    const row = event.target.closest?.("#rows [role=treeitem]");
    if (!row || event.target !== row || event.ctrlKey || event.metaKey || event.altKey) return;
    if (press(event.key, row)) { event.preventDefault(); event.stopPropagation(); }
  }, true);
  document.addEventListener("click", (event) => {
    const row = event.target.closest?.("[aria-expanded] > .twist")?.parentElement;
    if (row) turn(row, row.getAttribute("aria-expanded") === "true");
  });
  document.addEventListener("focusin", (event) => {
    const row = event.target.closest?.("#rows [role=treeitem]");
    if (row && row.id !== active) { active = row.id; show(); }
  });
  document.addEventListener("amplifier:changed", (event) => { if (event.detail?.id === "tree") show(); });
  show();
  document.querySelector("#rows [aria-current]")?.scrollIntoView({ block: "center" });
})();
