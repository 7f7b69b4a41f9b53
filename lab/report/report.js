"use strict";
// The page is complete without this script; it adds a filter to the overview.
(() => {
  const entries = [...document.querySelectorAll(".entry")];
  if (entries.length < 6) return;
  const bar = document.createElement("div");
  bar.className = "filter";
  bar.innerHTML = '<input type="search" placeholder="filter experiments" aria-label="filter experiments"><label><input type="checkbox"> only those that fail</label>';
  const [text, failing] = bar.querySelectorAll("input");
  const apply = () => {
    const want = text.value.toLowerCase();
    for (const e of entries) {
      e.hidden = !e.textContent.toLowerCase().includes(want) || (failing.checked && e.dataset.verdict !== "bad");
    }
  };
  bar.addEventListener("input", apply);
  document.querySelector(".overview").prepend(bar);
})();
