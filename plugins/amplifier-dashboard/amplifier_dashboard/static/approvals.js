// Asks for the reason of a denial, in a dialog that outlives updates; says when somebody else has answered meanwhile.
"use strict";
(() => {
  const dialog = document.getElementById("deny");
  const form = dialog.querySelector("form");
  const note = document.getElementById("deny-note");
  const submit = form.querySelector("button");
  let asked = "";
  document.addEventListener("click", ({ target }) => {
    const button = target.closest("[data-deny]");
    if (!button) return;
    asked = button.dataset.deny;
    form.action = `${amplifier.root}/approvals/${asked}/deny`;
    form.reset();
    note.textContent = "";
    submit.disabled = false;
    document.getElementById("deny-title").textContent = `Deny ${document.getElementById(`call-${asked}`).textContent}`;
    dialog.showModal();
  });
  document.getElementById("deny-cancel").addEventListener("click", () => dialog.close());
  form.addEventListener("amplifier:done", ({ detail }) => { if (detail.ok) dialog.close(); });
  document.addEventListener("amplifier:changed", ({ detail }) => {
    if (detail?.id !== "answered" || !dialog.open || document.getElementById(`approval-${asked}`)) return;
    note.textContent = "This call was answered meanwhile; see below.";
    if (document.activeElement === submit) document.getElementById("deny-cancel").focus();
    submit.disabled = true;
  });
})();
