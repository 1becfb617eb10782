// Keys for everything; `?` shows them. A page adds its own: an element with `data-press="d"` is pressed by that key, within the
// chosen row where it stands in one; `data-press-ask` is asked first. Rows are `[data-row]`, else those of the first table.
"use strict";
(() => {
  const WAIT = 1500; // milliseconds for the second key
  const main = document.getElementById("main");
  const keys = document.getElementById("keys");
  const button = document.getElementById("keys-button");
  const ALWAYS = [
    ["?", "show the keys"], ["/", "search"], ["j", "next row"], ["k", "row before"], ["Enter", "open the row"], ["Escape", "close, leave a field"],
  ];
  const off = document.getElementById("keys-off");
  const kept = (() => { try { return localStorage; } catch { return {}; } })(); // a browser may refuse it
  let begun = -WAIT; // when `g` was pressed
  let last = -1; // the place of the row chosen last: another one may have taken it

  const rows = () => {
    const marked = [...main.querySelectorAll("[data-row]")];
    return (marked.length ? marked : [...(main.querySelector("table tbody")?.rows ?? [])]).filter((row) => row.offsetParent);
  };
  const chosen = () => rows().find((row) => row.contains(document.activeElement));
  const isTyping = (target) => target.closest?.("input, textarea, select, [contenteditable=true], .cm-editor");
  const nameOf = (element) => element.dataset.pressName || element.getAttribute("aria-label") || element.textContent.trim();

  function choose(step) {
    const all = rows();
    if (!all.length) return;
    const now = all.indexOf(chosen());
    const next = now >= 0 ? now + step : last < 0 ? 0 : last;
    last = Math.max(0, Math.min(all.length - 1, next));
    const row = all[last];
    amplifier.focusRow(row);
    row.scrollIntoView({ block: "nearest" });
  }

  async function press(key) {
    const row = chosen();
    const all = [...main.querySelectorAll(`[data-press="${CSS.escape(key)}"]`)].filter((each) => each.offsetParent && !each.disabled);
    const found = all.find((each) => row?.contains(each)) ?? all.find((each) => !rows().some((other) => other.contains(each)));
    if (!found) {
      if (all.length) amplifier.say("Choose a row first: j", true);
      return all.length > 0;
    }
    const text = found.dataset.pressAsk;
    if (!text || await amplifier.ask(text)) found.matches("input, textarea, select") ? found.focus() : found.click();
    return true;
  }

  function go(key) {
    document.querySelector(`#views a[data-key="${CSS.escape(key)}"]`)?.click();
  }

  function showKeys() {
    const list = keys.querySelector("dl");
    const own = new Map([...main.querySelectorAll("[data-press]")].map((each) => [each.dataset.press, nameOf(each)]));
    const views = [...document.querySelectorAll("#views a[data-key]")].filter((each) => each.dataset.key);
    const shown = [...ALWAYS, ...own, ...views.map((each) => [`g ${each.dataset.key}`, each.firstChild.textContent.trim()])];
    list.replaceChildren(...shown.flatMap(([key, text]) => {
      const term = document.createElement("dt");
      term.append(...key.split(" ").flatMap((each) => {
        const shape = document.createElement("kbd");
        shape.textContent = each;
        return [shape, " "];
      }));
      const meaning = document.createElement("dd");
      meaning.textContent = text;
      return [term, meaning];
    }));
    off.checked = kept.amplifierKeys === "off";
    keys.showModal();
  }

  const DO = {
    "?": showKeys,
    "/": () => document.getElementById("search").select(),
    j: () => choose(1),
    k: () => choose(-1),
    g: () => { begun = performance.now(); },
  };

  document.addEventListener("keydown", (event) => {
    const { key, target } = event;
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || document.querySelector("dialog[open]")) return;
    if (isTyping(target)) {
      if (key === "Escape" && !target.closest(".cm-editor")) target.blur();
      return;
    }
    const goes = performance.now() - begun < WAIT;
    begun = -WAIT;
    if (goes) return go(key);
    if (key === "Enter" && target.matches?.("[data-row], tr")) return target.querySelector("a")?.click();
    if (kept.amplifierKeys === "off") return;
    if (DO[key]) {
      event.preventDefault();
      return DO[key]();
    }
    if (key.length === 1 && key !== " ") press(key);
  });
  off.addEventListener("change", () => { kept.amplifierKeys = off.checked ? "off" : "on"; });
  button.hidden = false;
  button.addEventListener("click", showKeys);
})();
