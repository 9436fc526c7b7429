"use strict";

// A list that is sorted by a cluster's number goes up, by anything else down.
function sortBy(key) {
  for (const list of document.querySelectorAll("[data-sorted]")) {
    const value = (item) => Number(item.dataset[key]);
    const sign = key === "index" ? 1 : -1;
    [...list.children]
      .sort((a, b) => sign * (value(a) - value(b)) || a.dataset.index - b.dataset.index)
      .forEach((item) => list.append(item));
  }
  for (const choice of document.querySelectorAll(".sort input")) {
    choice.checked = choice.value === key;
  }
}

// A link may lead to a cluster that is folded up.
function unfold() {
  const target = document.getElementById(location.hash.slice(1));
  if (target instanceof HTMLDetailsElement) {
    target.open = true;
    target.scrollIntoView();
  }
}

// Where nothing can point, a tap shows what a tooltip says, and the next tap puts it away.
function tell(event) {
  const told = document.querySelector(".told");
  const drawing = event.target.closest(".sample svg[role], .how svg[role], .portrait circle");
  const text = drawing === null ? "" : drawing.querySelector("title").textContent;
  told.hidden = text === "" || text === told.textContent;
  told.textContent = told.hidden ? "" : text;
}

for (const control of document.querySelectorAll(".sort")) {
  control.hidden = false;
  control.addEventListener("change", (event) => sortBy(event.target.value));
}
addEventListener("click", tell);
addEventListener("hashchange", unfold);
unfold();
