// Says while typing whether the data is a JSON object, and shows what became of the event.
"use strict";
(() => {
  const form = document.getElementById("fire");
  if (!form) return;
  const rest = document.getElementById("rest");
  const problem = document.getElementById("rest-problem");
  const fired = document.getElementById("fired");
  function check() {
    let text = "";
    try {
      const value = rest.value.trim() ? JSON.parse(rest.value) : {};
      if (typeof value !== "object" || value === null || Array.isArray(value)) text = 'Write an object, such as {"path": "a.py"}.';
    } catch (failure) { text = `Not JSON: ${failure.message}`; }
    problem.textContent = text;
    rest.setCustomValidity(text);
  }
  rest.addEventListener("input", check);
  form.addEventListener("amplifier:done", ({ detail }) => {
    fired.hidden = !detail.delivery;
    if (!detail.delivery) return;
    fired.querySelector("span").textContent = detail.said;
    fired.querySelector("a").href = `${amplifier.root}/deliveries/${detail.delivery}`;
  });
})();
