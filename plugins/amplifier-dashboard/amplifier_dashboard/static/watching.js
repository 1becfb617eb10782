// Shows the end of each feed at first: the newest entries.
"use strict";
for (const list of document.querySelectorAll("ol.feed")) list.scrollTop = list.scrollHeight;
// A box with `data-all` ticks all boxes of its form with such names.
document.addEventListener("change", (event) => {
  const all = event.target.dataset.all;
  if (!all) return;
  for (const box of event.target.form.querySelectorAll(`input[name^="${all}"]`)) box.checked = event.target.checked;
});
