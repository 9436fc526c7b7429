"use strict";

// What is shown: a cluster (its number, or "doubtful"), or the samples that are like one of them.
const view = { cluster: null, order: "least certain first", page: 0, similar: null };
// Pictures are kept by the browser; their address tells this session's from another one's.
const session = Math.random().toString(36).slice(2);
const selected = new Set();
let state = null;
let shown = [];
let last = null;
let drawing = 0;

function deselect() {
  selected.clear();
  last = null;
}

const find = (id) => document.getElementById(id);
const picture = (id) => `picture?sample=${id}&v=${session}`;

// An element; all text is set as text, never as HTML.
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

function say(text, wrong = false) {
  find("message").textContent = text;
  find("message").classList.toggle("wrong", wrong);
}

async function ask(path, content) {
  const options =
    content === undefined
      ? {}
      : {
          method: "POST",
          headers: { "Content-Type": "application/json" },
          body: JSON.stringify(content),
        };
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    throw new Error("diffclust review has ended; start it again and open the new address");
  }
  const answered = await answer.json();
  if (answer.ok) return answered;
  if (answer.status === 409) await load();
  throw new Error(answered.error);
}

// Says what went wrong wherever it did.
function guarded(action) {
  return async (...given) => {
    try {
      await action(...given);
    } catch (error) {
      say(error.message, true);
    }
  };
}

const label = (cluster) => cluster.name || `Cluster ${cluster.id}`;
const named = (id) => label(state.clusters.find((cluster) => cluster.id === id));
const count = (n) => `${n.toLocaleString("en")} ${n === 1 ? state.noun : state.nouns}`;

async function load() {
  show(await ask("state"));
  await draw();
}

function show(next) {
  state = next;
  const ids = state.clusters.map((cluster) => cluster.id);
  if (view.cluster !== "doubtful" && !ids.includes(view.cluster)) {
    Object.assign(view, { cluster: ids[0], page: 0 });
  }
}

// One edit after another: each is of the state that the one before it left.
let edits = Promise.resolve();
const change = (...given) => (edits = edits.then(() => changeNow(...given)));
const changeNow = guarded(async (path, content, text) => {
  const message = typeof text === "function" ? text() : text;
  if (message === null) return;
  say("Saving …");
  const next = await ask(path, { revision: state.revision, ...content });
  const before = new Set(state.clusters.map((cluster) => cluster.id));
  if (content.edit?.kind === "merge") Object.assign(view, { cluster: content.edit.into, page: 0 });
  show(next);
  const added = state.clusters.find((cluster) => !before.has(cluster.id));
  deselect();
  await draw();
  say(added && path === "edit" ? `${message} New: ${label(added)}, ${count(added.size)}.` : message);
});
const edit = (content, message) => change("edit", { edit: content }, `Saved: ${message}.`);

const open = guarded(async (cluster) => {
  Object.assign(view, { cluster, page: 0, similar: null });
  deselect();
  say("");
  await draw();
});

const searchLike = guarded(async (id) => {
  view.similar = id;
  deselect();
  await draw();
  scrollTo(0, 0);
});

let released = Promise.resolve();
addEventListener(
  "pointerdown",
  () => {
    released = new Promise((done) => {
      for (const end of ["pointerup", "pointercancel"]) {
        addEventListener(end, () => setTimeout(done), { once: true });
      }
    });
  },
  true,
);

// Everything anew: the list of clusters, the samples, and what can be done with them.
async function draw() {
  const turn = ++drawing;
  const { cluster, order, page, similar } = view;
  const found = await ask(
    similar === null
      ? `members?cluster=${cluster}&order=${encodeURIComponent(order)}&page=${page}`
      : `similar?sample=${similar}`,
  );
  await released; // or what was pressed would be replaced before it is clicked
  if (turn !== drawing) return; // another view was asked for in the meantime
  if (found.samples.length === 0 && page > 0) {
    view.page = Math.max(0, Math.ceil(found.total / found.page) - 1);
    await draw();
    return;
  }
  shown = found.samples;
  const focused = document.activeElement;
  document.title = `${state.title}: diffclust review`;
  find("title").textContent = state.title;
  drawUndo();
  drawClusters();
  if (similar === null) drawAbout(found);
  else drawSimilar(found);
  drawSamples();
  drawPages(similar === null ? found : null);
  drawActions();
  keepFocus(focused);
}

// Who uses the keyboard stays where they were, although all is drawn anew.
function keepFocus(focused) {
  if (focused === null || focused.isConnected) return;
  const { cluster, sample } = focused.dataset;
  let again = null;
  if (focused.id) again = find(focused.id);
  else if (cluster) again = document.querySelector(`[data-cluster="${cluster}"]`);
  else if (sample) again = document.querySelector(`[data-sample="${sample}"]`);
  if (again === null || again.disabled) again = find("samples").firstElementChild ?? find("name");
  again?.focus();
}

// An edit in words; clusters by their numbers, as they may be gone.
function describe(edited) {
  const { kind, samples, doubtful } = edited;
  if (kind === "name") return `name cluster ${edited.cluster} “${edited.name}”`;
  if (kind === "merge") return `merge ${edited.clusters.join(", ")} into cluster ${edited.into}`;
  if (kind === "mark") return `mark ${count(samples.length)} ${doubtful ? "as doubtful" : "as certain"}`;
  return `move ${count(samples.length)} to ${edited.to === null ? "a new cluster" : `cluster ${edited.to}`}`;
}

function drawUndo() {
  const undo = find("undo");
  undo.disabled = state.undo.length === 0;
  undo.title = state.undo.length ? `Undo: ${describe(state.undo[0])}` : "Nothing to undo";
  const choice = find("export");
  if (choice.length === 1) choice.append(...state.exports.map((name) => element("option", {}, name)));
}

function drawClusters() {
  const list = find("clusters");
  const cards = state.clusters.map((cluster) =>
    card(cluster.id, label(cluster), count(cluster.size), cluster.cover),
  );
  if (state.doubtful > 0) cards.unshift(card("doubtful", "Doubtful", count(state.doubtful), []));
  // The same pictures at the same place do not flicker.
  const top = list.scrollTop;
  list.replaceChildren(...cards);
  list.scrollTop = top;
}

// Small pictures are shown pixel by pixel, larger ones smoothly.
function sharpen(event) {
  const { naturalWidth, naturalHeight } = event.target;
  if (Math.max(naturalWidth, naturalHeight) <= 64) document.body.classList.add("small");
}

function card(id, name, size, cover) {
  const pictures = cover.map((one) => element("img", { src: picture(one), alt: "", loading: "lazy" }));
  return element(
    "button",
    {
      type: "button",
      class: "cluster-card",
      "data-cluster": id,
      "aria-current": String(view.cluster === id && view.similar === null),
      onclick: () => open(id),
    },
    element("span", { class: "cover", "aria-hidden": "true" }, ...pictures),
    element("span", {}, element("b", {}, name), size),
  );
}

function choice(text, first, options, chosen) {
  return element(
    "select",
    {
      "aria-label": text,
      onchange: ({ target }) => {
        const { value } = target;
        target.value = ""; // so that the same can be chosen again, should it fail
        chosen(value);
      },
    },
    element("option", { value: "" }, first),
    ...options.map(([value, shownText]) => element("option", { value }, shownText)),
  );
}

const others = (id) =>
  state.clusters.filter((one) => one.id !== id).map((one) => [String(one.id), label(one)]);

function orderChoice() {
  const select = element(
    "select",
    {
      id: "order",
      onchange: guarded(async (event) => {
        Object.assign(view, { order: event.target.value, page: 0 });
        await draw();
      }),
    },
    ...state.orders.map((name) => element("option", { selected: name === view.order }, name)),
  );
  return element("label", {}, "Order", select);
}

function drawAbout(found) {
  if (view.cluster === "doubtful") {
    find("about").replaceChildren(
      element("h2", {}, `Doubtful: ${count(found.total)}`),
      element("div", { class: "controls" }, orderChoice()),
    );
    return;
  }
  const cluster = state.clusters.find((one) => one.id === view.cluster);
  const name = element("input", {
    id: "name",
    value: cluster.name,
    placeholder: `Cluster ${cluster.id}`,
    maxlength: 200,
    autocomplete: "off",
    onchange: (event) => {
      const given = event.target.value;
      edit({ kind: "name", cluster: cluster.id, name: given }, `the name of cluster ${cluster.id}`);
    },
  });
  const merge = choice("Merge into", "Merge into …", others(cluster.id), (into) => {
    const merged = { kind: "merge", clusters: [cluster.id], into: Number(into) };
    edit(merged, `${label(cluster)} is merged into ${named(Number(into))}`);
  });
  merge.id = "merge";
  const split = element(
    "button",
    {
      type: "button",
      id: "split",
      disabled: cluster.size < 2,
      title: "By 2-means; the smaller part becomes a new cluster",
      onclick: () => edit({ kind: "split", cluster: cluster.id }, `${label(cluster)} is split`),
    },
    "Split in two",
  );
  find("about").replaceChildren(
    element("h2", {}, `${label(cluster)}: ${count(cluster.size)}`),
    element(
      "div",
      { class: "controls" },
      element("label", {}, "Name", name),
      split,
      merge,
      orderChoice(),
    ),
  );
}

function drawSimilar(found) {
  const back = element("button", { type: "button", id: "back", onclick: () => open(view.cluster) });
  back.textContent = "Back to the cluster";
  const note = `The nearest by Euclidean distance; compared are ${found.compared}.`;
  find("about").replaceChildren(
    element("h2", {}, `Most like ${found.samples[0].name}`),
    element("p", { class: "note" }, note),
    element("div", { class: "controls" }, back),
  );
}

function drawSamples() {
  const crossing = view.similar !== null || view.cluster === "doubtful";
  find("samples").replaceChildren(
    ...shown.map((sample, place) =>
      element(
        "button",
        {
          type: "button",
          class: `sample${sample.doubtful ? " doubtful" : ""}`,
          "data-sample": sample.id,
          "aria-pressed": String(selected.has(sample.id)),
          "aria-label": `${sample.name}${sample.doubtful ? ", doubtful" : ""}`,
          title: sample.name,
          onclick: (event) => choose(place, event.shiftKey),
        },
        element("img", { src: picture(sample.id), alt: "", loading: "lazy", onload: sharpen }),
        ...(crossing ? [element("span", {}, named(sample.cluster))] : []),
      ),
    ),
  );
}

// A click chooses a sample or lets it go; with the shift key, all from the last one to this.
function choose(place, range) {
  const chosen = !selected.has(shown[place].id);
  const before = shown.findIndex((sample) => sample.id === last);
  const from = range && before >= 0 ? Math.min(before, place) : place;
  const to = range && before >= 0 ? Math.max(before, place) : place;
  for (const sample of shown.slice(from, to + 1)) {
    if (chosen || range) selected.add(sample.id);
    else selected.delete(sample.id);
  }
  last = shown[place].id;
  drawActions();
}

function drawPages(found) {
  const pages = found === null ? 1 : Math.ceil(found.total / found.page);
  const turn = (step) =>
    guarded(async () => {
      view.page += step;
      await draw();
      scrollTo(0, 0);
    });
  const all = element("button", { type: "button", id: "all", onclick: selectAll }, "Select all shown");
  const parts = shown.length > 0 ? [all] : [];
  if (pages > 1) {
    const back = { type: "button", id: "previous", disabled: view.page === 0, onclick: turn(-1) };
    const on = { type: "button", id: "next", disabled: view.page + 1 >= pages, onclick: turn(1) };
    parts.push(
      element("button", back, "Previous"),
      element("span", {}, `page ${view.page + 1} of ${pages}`),
      element("button", on, "Next"),
    );
  }
  find("pages").replaceChildren(...parts);
}

function selectAll() {
  for (const sample of shown) selected.add(sample.id);
  drawActions();
}

function drawActions() {
  for (const button of find("samples").children) {
    button.setAttribute("aria-pressed", String(selected.has(Number(button.dataset.sample))));
  }
  const actions = find("actions");
  const ids = [...selected];
  actions.hidden = ids.length === 0;
  if (actions.hidden) {
    actions.replaceChildren();
    return;
  }
  const first = shown.find((sample) => sample.id === ids[ids.length - 1]);
  const button = (id, text, onclick) => element("button", { type: "button", id, onclick }, text);
  const here = view.similar === null && view.cluster !== "doubtful" ? view.cluster : null;
  const targets = [["new", "a new cluster"], ...others(here)];
  const move = choice("Move to", "Move to …", targets, (to) => {
    const target = to === "new" ? null : Number(to);
    const message = `${count(ids.length)} moved${target === null ? "" : ` to ${named(target)}`}`;
    edit({ kind: "move", samples: ids, to: target }, message);
  });
  move.id = "move";
  const mark = (doubtful) => () =>
    edit({ kind: "mark", samples: ids, doubtful }, `${count(ids.length)} marked`);
  const shownLast = { src: picture(ids[ids.length - 1]), alt: "" };
  const closer = { type: "button", id: "closer", title: "Look closer", onclick: lookCloser };
  const chosen = element("b", {}, `${count(ids.length)} selected`);
  actions.replaceChildren(
    element("button", closer, element("img", shownLast)),
    element("span", { class: "chosen" }, chosen, element("i", {}, first ? first.name : "")),
    ...(state.noun === "recording" && ids.length === 1
      ? [element("audio", { controls: true, src: `sound?sample=${ids[0]}&v=${session}` })]
      : []),
    move,
    button("doubtful", "Doubtful", mark(true)),
    button("certain", "Not doubtful", mark(false)),
    ...(ids.length === 1 ? [button("like", "More like this one", () => searchLike(ids[0]))] : []),
    button("clear", "Clear", clear),
  );
}

function clear() {
  const focused = document.activeElement;
  deselect();
  drawActions();
  keepFocus(focused);
}

// The last sample that was chosen, large; a click or Escape closes it.
function lookCloser() {
  const image = find("actions").querySelector("img").cloneNode();
  const dialog = element("dialog", { onclick: () => dialog.close(), onclose: () => dialog.remove() });
  dialog.append(image, element("p", { class: "note" }, find("actions").querySelector("i").textContent));
  document.body.append(dialog);
  dialog.showModal();
}

const write = guarded(async (event) => {
  const format = event.target.value;
  event.target.value = "";
  if (format === "") return;
  await edits; // so that it contains them
  say(`Writing ${format} …`);
  const { message } = await ask("export", { format });
  say(`Written: ${message}`);
});

const undo = () =>
  change("undo", {}, () => (state.undo.length ? `Undone: ${describe(state.undo[0])}.` : null));

find("undo").addEventListener("click", undo);
find("export").addEventListener("change", write);
addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, select, textarea") !== null;
  if (event.key === "Escape" && document.querySelector("dialog") === null) clear();
  if ((event.ctrlKey || event.metaKey) && event.key === "z" && !typing && state?.undo.length) {
    event.preventDefault();
    undo();
  }
});
// The token has been exchanged for a cookie, and need not stay in the address.
history.replaceState(null, "", "/");
guarded(load)();
