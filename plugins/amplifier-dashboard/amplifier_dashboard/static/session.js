// The transcript of a session: stays at its end while it grows, leads to messages, sends with Ctrl+Enter.
"use strict";
(() => {
  const list = document.getElementById("messages");
  const NEAR = 120;
  let follows = true;
  let last = lastNumber();

  function lastNumber() { return Number(list?.lastElementChild?.dataset.number ?? 0); }
  function isAtEnd() { return innerHeight + scrollY > document.documentElement.scrollHeight - NEAR; }
  function toEnd() { if (follows) scrollTo(0, document.documentElement.scrollHeight); }

  function showMessage() {
    const found = /^#m(\d+)$/.exec(location.hash);
    if (!found) return false;
    if (document.getElementById(`m${found[1]}`)) return true;
    const asked = new URLSearchParams(location.search).get("to");
    const to = `m${Number(found[1]) + 100}`;
    if (asked !== to) location.replace(`${location.pathname}?to=${to}${location.hash}`);
    return true;
  }

  function markFork() {
    const source = document.getElementById("source");
    const point = source && document.getElementById(`s${source.dataset.shared}`);
    if (!point) return;
    point.classList.add("fork-point");
    source.scrollTop = point.offsetTop - source.offsetTop - source.clientHeight / 2;
  }

  document.addEventListener("scroll", () => { follows = isAtEnd(); }, { passive: true });
  document.addEventListener("amplifier:changed", (event) => {
    if (event.detail === list) {
      const fresh = [...list.children].filter((each) => Number(each.dataset.number) > last);
      last = lastNumber();
      if (fresh.some((each) => each.dataset.role === "assistant")) document.querySelector("#live .written")?.remove();
    }
    toEnd();
  });
  document.addEventListener("keydown", (event) => {
    const form = event.target.closest?.("form[data-act]");
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && event.target.matches("textarea") && form) {
      event.preventDefault();
      form.requestSubmit();
    }
  });
  document.addEventListener("amplifier:done", (event) => {
    if (event.detail.ok) event.target.querySelectorAll("textarea").forEach((each) => { each.value = ""; });
    follows = true;
  });
  addEventListener("hashchange", showMessage);
  markFork();
  if (!showMessage() && !new URLSearchParams(location.search).has("to")) toEnd();
})();
