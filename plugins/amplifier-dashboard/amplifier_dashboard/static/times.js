// Shows times as people here write them; the machine's form stays in the title.
"use strict";
(() => {
  const near = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
  const far = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
  function showTimes(root) {
    for (const each of root.querySelectorAll("time[datetime]")) {
      const moment = new Date(each.dateTime);
      const today = moment.toDateString() === new Date().toDateString();
      const text = (today ? near : far).format(moment);
      if (each.textContent !== text) each.textContent = text;
      each.title = each.dateTime;
    }
  }
  document.addEventListener("amplifier:changed", (event) => event.detail && showTimes(event.detail));
  showTimes(document);
})();
