// Keeps the place of the keyboard. When a change removes or disables what has the focus, the row after it gets the focus; without
// a row, another field of its form; else the heading. Behind an open dialog, it gets the focus when the dialog closes.
"use strict";
(() => {
  const main = document.getElementById("main");
  let held = null; // has the focus, or gets it back from an open dialog
  let isOwed = false; // a dialog closes without giving it back: the browser knows only what is gone

  const isThere = (element) => element.isConnected && !element.disabled && (element.checkVisibility?.() ?? true);
  const targetOf = (row) => row.matches("[data-row]") ? row : row.querySelector("a, button") ?? row;

  function focus(element, preventScroll = false) {
    if (element.tabIndex < 0) element.tabIndex = -1;
    element.focus({ preventScroll });
  }

  function isInView(element) {
    const { top, bottom } = element.getBoundingClientRect();
    return bottom > 0 && top < innerHeight;
  }

  function headingOf(part) {
    return part.querySelector("h1, h2") ?? (part.matches("[aria-live]") ? part : main.querySelector("h1"));
  }

  function keepFocus(part, change) {
    const dialog = document.querySelector("dialog[open]");
    const isHere = held && part.contains(held) && (dialog || document.activeElement === held);
    const row = isHere && held.closest("[data-row], tbody tr, li");
    const rows = row ? [...row.parentElement.children] : [];
    const isRead = isHere && !isInView(held); // what the person reads is elsewhere, and stays where it is
    change();
    if (!isHere) return;
    if (!isThere(held)) {
      const at = rows.indexOf(row);
      const next = [...rows.slice(at), ...rows.slice(0, at).reverse()].find(isThere);
      const field = held.isConnected && [...held.form?.elements ?? []].find(isThere);
      held = next ? targetOf(next) : field || headingOf(document.getElementById(part.id));
      isOwed = Boolean(dialog);
    }
    if (!dialog && document.activeElement !== held) focus(held, isRead);
  }

  document.addEventListener("focusin", ({ target }) => { if (!target.closest("dialog")) held = target; });
  document.addEventListener("close", () => {
    if (isOwed) focus(held);
    isOwed = false;
  }, true);
  Object.assign(window.amplifier, { keepFocus, focusRow: (row) => focus(targetOf(row)) });
})();
