// Tasks in the graph lead to their sessions, by click and by Enter.
"use strict";
(() => {
  function mark() {
    for (const task of document.querySelectorAll(".flow .task[data-session]")) {
      task.setAttribute("tabindex", "0");
      task.setAttribute("role", "link");
    }
  }
  function open(event) {
    const task = event.target.closest?.(".flow .task[data-session]");
    if (task) location.assign(`${amplifier.root}/sessions/${encodeURIComponent(task.dataset.session)}`);
  }
  document.addEventListener("click", open);
  document.addEventListener("keydown", (event) => { if (event.key === "Enter") open(event); });
  document.addEventListener("amplifier:changed", (event) => { if (event.detail?.id === "picture") mark(); });
  mark();
})();
