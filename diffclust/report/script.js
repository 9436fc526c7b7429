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
// The order in which pages of members are written.
const nearest = (a, b) => compare(a, b, "distance", 1);
let order = "kind";
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

function sortMembers(box) {
  const list = box.querySelector(".samples");
  if (list === null) return;
  const [heading, compared] = orders[order] ?? [box.dataset.nearest, nearest];
  const where = +box.dataset.shown > +box.dataset.step && order in orders ? ", on each page" : "";
  box.className = `group everyone by-${order}`;
  box.querySelector(".soft").textContent = heading[0].toLowerCase() + heading.slice(1) + where;
  list.append(...[...list.children].sort(compared));
  makeFocusable(list);
}

// All samples of a cluster in one list, each of them once; or back in their groups.
function orderSamples(key) {
  order = key;
  document.querySelectorAll(".everyone").forEach(sortMembers);
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
  document.querySelectorAll(".groups .samples").forEach(makeFocusable);
}

// The same picture shows a film or its stills, whichever source is taken.
function toggleStills(button) {
  const source = button.closest("figure").querySelector("source");
  const still = matchMedia(source.media).matches;
  source.media = still ? "not all" : "all";
  button.textContent = still ? "Show stills" : "Show the film";
}

// A page of members is a script beside this file, which calls `members` with their HTML.
const folder = document.body.dataset.files;
const waiting = new Map();

function members(name, html) {
  waiting.get(name)(html);
}

function load(name) {
  return new Promise((resolve, reject) => {
    const script = document.createElement("script");
    waiting.set(name, resolve);
    script.onerror = reject;
    script.onload = () => script.remove();
    script.src = `${folder}/${name}.js`;
    document.head.append(script);
  });
}

async function showMembers(box, page) {
  const { cluster, shown, step } = box.dataset;
  const [button, note] = box.querySelectorAll("button, .soft");
  let html;
  try {
    html = await load(`${cluster}-${page}`);
  } catch {
    note.textContent = `They are in the folder ${decodeURI(folder)}, which is not beside this file.`;
    return;
  }
  let list = box.querySelector(".samples");
  if (list === null) {
    list = document.createElement("div");
    list.className = "samples";
    box.append(list);
    if (+shown > +step) {
      const pages = document.createElement("select");
      pages.ariaLabel = "Page of members";
      for (let first = 0; first < shown; first += +step) {
        pages.add(new Option(`${first + 1} to ${Math.min(first + +step, shown)} of ${shown}`));
      }
      pages.addEventListener("change", () => showMembers(box, pages.selectedIndex));
      button.before(pages);
    }
    button.textContent = "Next page";
  }
  box.dataset.page = page;
  button.hidden = (page + 1) * step >= shown;
  const pages = box.querySelector("select");
  if (pages !== null) pages.selectedIndex = page;
  list.innerHTML = html;
  sortMembers(box);
}

// One stop of the tab key for each list: in the large view arrows go on from there.
function makeFocusable(list) {
  list.querySelectorAll(":scope > .sample > svg").forEach((drawing, i) => {
    drawing.tabIndex = i === 0 ? 0 : -1;
  });
}

const dialog = document.querySelector("dialog");
let current;

// A file, or a part of one (left, top, width, height) of a whole (width, height).
function fullView(where) {
  const [file, left, top, width, height, ...whole] = where.split(" ");
  const source = `${folder}/${file}`;
  const kind = file.endsWith(".flac") ? "audio" : whole.length ? "svg" : "img";
  if (kind === "svg") {
    const view = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    view.setAttribute("viewBox", `${left} ${top} ${width} ${height}`);
    view.innerHTML = `<image href="${source}" width="${whole[0]}" height="${whole[1]}"/>`;
    return view;
  }
  const view = document.createElement(kind);
  view.src = source;
  view.controls = true;
  return view;
}

// Small ones are enlarged, by a whole number, so that pixels stay squares.
const LARGE = 288;

function enlarge(view, { width, height }) {
  const factor = Math.max(1, Math.floor(LARGE / Math.max(width, height)));
  view.style.width = `${Math.min(factor, (0.7 * innerHeight) / height) * width}px`;
}

function showLarge(figure) {
  const drawing = figure.querySelector("svg[role]");
  const copy = drawing.cloneNode(true);
  const title = drawing.querySelector("title").textContent;
  const views = [copy];
  if ("full" in figure.dataset) {
    const full = fullView(figure.dataset.full);
    if (full.localName !== "audio") full.role = "img";
    full.ariaLabel = title;
    // A picture without its alignment would be the same again.
    const same = full.localName !== "audio" && drawing.querySelectorAll("image, path").length === 1;
    full.addEventListener("error", () => full.replaceWith(copy), true);
    views.splice(0, same ? 1 : 0, full);
  }
  for (const view of new Set([...views, copy])) {
    if (view.viewBox) {
      enlarge(view, view.viewBox.baseVal);
      continue;
    }
    view.addEventListener("click", () => view.classList.toggle("whole"));
    view.addEventListener("load", () => {
      const { naturalWidth: width, naturalHeight: height } = view;
      if (Math.max(width, height) < LARGE) enlarge(view, { width, height });
    });
  }
  dialog.querySelector(".views").replaceChildren(...views);
  // What the rows of the drawing are, where these have names.
  const names = figure.parentElement.querySelector(":scope > .rows")?.cloneNode(true);
  if (names) {
    names.style.width = copy.style.width;
    copy.before(names);
  }
  const cluster = figure.closest(".cluster")?.id.replace("-", " ");
  dialog.querySelector("p").textContent = [cluster, ...title.split("\n")].filter(Boolean).join(" · ");
  current = figure;
  if (!dialog.open) dialog.showModal();
}

// The sample before or after the one that is shown, on another page where need be.
async function goOn(step) {
  const list = current.parentElement;
  const box = list.closest(".everyone");
  let samples = [...list.querySelectorAll(":scope > .sample")];
  let place = samples.indexOf(current) + step;
  if (box !== null && samples[place] === undefined) {
    const page = +box.dataset.page + step;
    if (page < 0 || page * box.dataset.step >= box.dataset.shown) return;
    await showMembers(box, page);
    samples = [...list.children];
    place = step > 0 ? 0 : samples.length - 1;
  }
  if (samples[place] !== undefined) showLarge(samples[place]);
}

// One cluster alone on the maps, or all again.
function showGroup(button) {
  const alone = button.ariaPressed !== "true";
  for (const other of document.querySelectorAll(".legend button")) other.ariaPressed = "false";
  button.ariaPressed = String(alone);
  for (const group of document.querySelectorAll(".maps [data-group]")) {
    group.classList.toggle("dim", alone && group.dataset.group !== button.value);
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

// What is folded up is printed as well.
let folded = [];

function unfoldAll() {
  folded = document.querySelectorAll("details:not([open])");
  folded.forEach((part) => (part.open = true));
}

// Where nothing can point, a tap shows what a tooltip says, and the next tap puts it away.
function showTooltip(event) {
  const tooltip = document.querySelector(".tooltip");
  const drawing = event.target.closest(".how svg[role], .centroid circle");
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
for (const box of document.querySelectorAll(".everyone")) {
  box.hidden = false;
  const next = () => showMembers(box, "page" in box.dataset ? +box.dataset.page + 1 : 0);
  box.querySelector("button").addEventListener("click", next);
}
document.querySelectorAll(".samples, .bridges li").forEach(makeFocusable);
document.querySelectorAll(".legend button").forEach((button) => {
  button.addEventListener("click", () => showGroup(button));
});
addEventListener("click", (event) => {
  const sample = event.target.closest(".sample > svg")?.parentElement;
  if (sample) showLarge(sample);
});
addEventListener("keydown", (event) => {
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (dialog.open && step && event.target.localName !== "audio") goOn(step);
  const sample = event.target.closest?.(".sample > svg")?.parentElement;
  if (event.key !== "Enter" || !sample || dialog.open) return;
  // Or it would press the button that comes into focus.
  event.preventDefault();
  showLarge(sample);
});
dialog.addEventListener("click", (event) => {
  const value = event.target.closest("button")?.value;
  if (value === "0" || event.target === dialog) dialog.close();
  else if (value) goOn(+value);
});
dialog.addEventListener("close", () => current.querySelector("svg").focus());
addEventListener("click", showTooltip);
addEventListener("hashchange", unfold);
addEventListener("beforeprint", unfoldAll);
addEventListener("afterprint", () => folded.forEach((part) => (part.open = false)));
unfold();
