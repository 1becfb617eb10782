// Sends forms with `data-act` without leaving the page, and says what came of it.
"use strict";
(() => {
  const toasts = document.getElementById("toasts");
  function say(text, failed) {
    const toast = document.createElement("p");
    toast.className = failed ? "toast failed" : "toast";
    toast.textContent = text;
    toasts.append(toast);
    setTimeout(() => toast.remove(), failed ? 12000 : 5000);
  }
  async function send(form, button) {
    const values = new FormData(form, button);
    values.set("form_token", document.documentElement.dataset.formToken);
    const answer = await fetch(form.action, { method: "POST", body: values, headers: { Accept: "application/json" } });
    const told = await answer.json().catch(() => ({ error: `The server answered ${answer.status}.` }));
    say(told.error || told.said, !answer.ok);
    form.dispatchEvent(new CustomEvent("amplifier:done", { bubbles: true, detail: { ok: answer.ok, ...told } }));
    if (answer.ok && told.to) location.assign(told.to);
  }
  document.addEventListener("submit", async (event) => {
    const form = event.target;
    if (!("act" in form.dataset)) return;
    event.preventDefault();
    const button = event.submitter;
    if (button) button.disabled = true;
    try { await send(form, button); } catch { say("The server does not answer.", true); }
    if (button) button.disabled = false;
  });
  window.amplifier = { say };
})();
