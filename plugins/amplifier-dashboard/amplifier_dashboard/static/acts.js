// Sends forms with `data-act` without leaving the page, and says what came of it. `data-ask` of a form or its button is asked first.
// It runs before the page is read: without it, forms have no token and are refused, and style.css hides their buttons.
"use strict";
(() => {
  document.documentElement.dataset.scripts = "yes";
  const { root } = document.documentElement.dataset; // of all paths; known.js goes there from an address without it
  try { localStorage.amplifierRoot = root; } catch { /* a browser may refuse it */ }
  const sending = new WeakSet(); // forms; their buttons stay enabled: a disabled one loses the focus
  const read = new Promise((done) => document.addEventListener("DOMContentLoaded", done, { once: true }));
  function say(text, failed) {
    const toast = document.createElement("p");
    toast.className = failed ? "toast failed" : "toast";
    toast.textContent = text;
    const toasts = document.getElementById("toasts");
    for (const each of [...toasts.children]) if (each.textContent === text) each.remove();
    toasts.append(toast);
    setTimeout(() => toast.remove(), failed ? 12000 : 5000);
  }
  function ask(text) {
    const question = document.getElementById("ask");
    document.getElementById("ask-text").textContent = text;
    question.returnValue = "no";
    question.showModal();
    return new Promise((answer) => {
      question.addEventListener("close", () => answer(question.returnValue === "yes"), { once: true });
    });
  }
  async function send(form, button, values) {
    const action = button?.hasAttribute("formaction") ? button.formAction : form.action;
    values.set("form_token", document.documentElement.dataset.formToken);
    const answer = await fetch(action, { method: "POST", body: values, headers: { Accept: "application/json" } });
    const told = await answer.json().catch(() => ({ error: `The server answered ${answer.status}.` }));
    say(told.error || told.said, !answer.ok);
    form.dispatchEvent(new CustomEvent("amplifier:done", { bubbles: true, detail: { ok: answer.ok, ...told } }));
    if (answer.ok && told.to) location.assign(told.to);
  }
  document.addEventListener("submit", async (event) => {
    const form = event.target;
    if (!("act" in form.dataset)) return;
    event.preventDefault();
    if (sending.has(form)) return;
    sending.add(form);
    const button = event.submitter, text = button?.dataset.ask || form.dataset.ask;
    try {
      await read;
      if (text && !(await ask(text))) return;
      button?.setAttribute("aria-disabled", "true");
      await send(form, button, new FormData(form, button));
    } catch { say("The server does not answer.", true); } finally {
      button?.removeAttribute("aria-disabled");
      sending.delete(form);
    }
  });
  window.amplifier = { root, say, ask };
})();
