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
  for (const choice of document.querySelectorAll(".sort:not(.order) input")) {
    choice.checked = choice.value === key;
  }
}

// Where each sample stands when samples are shown in groups.
const homes = [...document.querySelectorAll(".group .samples")].map((list) => [
  list,
  [...list.children],
]);
const orders = {
  certainty: ["The least certain first", (a, b) => compare(a, b, "certainty", 1)],
  distance: ["The worst fit first", (a, b) => compare(a, b, "distance", -1)],
  label: [
    "By class, the least certain first",
    (a, b) =>
      (a.dataset.label ?? "").localeCompare(b.dataset.label ?? "", undefined, { numeric: true }) ||
      compare(a, b, "certainty", 1),
  ],
};

function compare(a, b, key, sign) {
  const value = (item) => (key in item.dataset ? Number(item.dataset[key]) : sign * Infinity);
  const [first, second] = [value(a), value(b)];
  return first === second ? 0 : sign * (first < second ? -1 : 1);
}

// All samples of a cluster in one list, each of them once; or back in their groups.
function orderSamples(key) {
  for (const [list, children] of homes) list.append(...children);
  for (const groups of document.querySelectorAll(".groups")) {
    groups.querySelector(".every")?.remove();
    for (const group of groups.children) group.hidden = key !== "kind";
    if (key === "kind") continue;
    const [heading, first] = orders[key];
    const every = document.createElement("div");
    every.className = `group every by-${key}`;
    every.innerHTML = `<h3>${heading}</h3><div class="samples"></div>`;
    const names = groups.querySelector(".rows");
    const once = new Map();
    for (const sample of groups.querySelectorAll(".sample")) {
      if (!once.has(sample.dataset.position)) once.set(sample.dataset.position, sample);
    }
    const sorted = [...once.values()].sort(first);
    every.lastChild.append(...(names === null ? [] : [names.cloneNode(true)]), ...sorted);
    groups.append(every);
  }
}

// The same picture shows a film or its stills, whichever source is taken.
function toggleStills(button) {
  const source = button.closest("figure").querySelector("source");
  const still = matchMedia(source.media).matches;
  source.media = still ? "not all" : "all";
  button.textContent = still ? "Show stills" : "Show the film";
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
function showTooltip(event) {
  const tooltip = document.querySelector(".tooltip");
  const drawing = event.target.closest(".sample svg[role], .how svg[role], .portrait circle");
  const text = drawing === null ? "" : drawing.querySelector("title").textContent;
  tooltip.hidden = text === "" || text === tooltip.textContent;
  tooltip.textContent = tooltip.hidden ? "" : text;
}

for (const control of document.querySelectorAll(".sort")) {
  control.hidden = false;
  const sort = control.classList.contains("order") ? orderSamples : sortBy;
  control.addEventListener("change", (event) => sort(event.target.value));
}
for (const button of document.querySelectorAll("button.stills")) {
  button.hidden = false;
  const source = button.closest("figure").querySelector("source");
  if (matchMedia(source.media).matches) button.textContent = "Show the film";
  button.addEventListener("click", () => toggleStills(button));
}
addEventListener("click", showTooltip);
addEventListener("hashchange", unfold);
unfold();
