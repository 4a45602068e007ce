// Any sentence of the development set, as each row translates it.

const LISTED = 60;  // sentences that a search offers

/* Words of `text` that are not in the longest common subsequence with `other`, and where words of
   `other` are missing: a list of {word, isNew, missing}. */
function compareWords(text, other) {
  const a = text.split(" ").filter(Boolean), b = other.split(" ").filter(Boolean);
  const best = Array.from({length: a.length + 1}, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      best[i][j] = a[i] === b[j] ? best[i + 1][j + 1] + 1 : Math.max(best[i + 1][j], best[i][j + 1]);
    }
  }
  const found = [];
  let i = 0, j = 0, missing = [];
  const push = (word, isNew) => { found.push({word, isNew, missing}); missing = []; };
  while (i < a.length) {
    if (j < b.length && a[i] === b[j]) { push(a[i], false); i++; j++; }
    else if (j < b.length && best[i][j + 1] >= best[i + 1][j]) missing.push(b[j++]);
    else push(a[i++], true);
  }
  push("", false);
  found[found.length - 1].missing.push(...b.slice(j));
  return found;
}

// Marks what is new; a caret stands where words are missing and nothing stands in their place.
function writeCompared(element, text, other) {
  const words = compareWords(text, other);
  words.forEach(({word, isNew, missing}, place) => {
    const replaced = isNew || (place > 0 && words[place - 1].isNew);
    if (missing.length && !replaced) {
      const note = "missing here: " + missing.join(" ");
      add(element, "span", {class: "gap", title: note, "aria-label": note, role: "note"}, "‸");
    }
    if (isNew) add(element, "mark", {}, word); else element.append(word);
    element.append(" ");
  });
}

function addTranslations() {
  const data = readData("translations");
  if (!data.rows.length) return;
  const section = show("translations");
  const state = {row: (data.rows[1] || data.rows[0]).name, order: "file", place: 0, seed: null, marks: "against"};
  const byName = new Map(data.rows.map(row => [row.name, row]));
  const chosen = () => byName.get(state.row);
  const runOf = row => row.runs.find(run => String(run.seed) === state.seed) || row.runs[0];
  const sentences = () => data.sets[chosen().set];
  const numbers = () => Object.keys(sentences().references).map(Number);  // all, or those that are published
  const againstOf = row => byName.get(row.against);
  let order = [];

  function scoreGap(i) {
    const base = againstOf(chosen());
    if (!base) return 0;
    const ours = runOf(chosen()).scores, theirs = runOf(base).scores;
    return ours.length && theirs.length ? ours[i] - theirs[i] : 0;
  }

  function sort() {
    const {sources, references} = sentences(), texts = sources.length ? sources : references;
    const place = {file: () => 0, worst: scoreGap, best: i => -scoreGap(i), longest: i => -texts[i].split(" ").length}[state.order];
    order = numbers().sort((a, b) => place(a) - place(b) || a - b);
  }

  const controls = add(section, "div", {class: "controls"});
  const rowChoice = addChoice(controls, "Row", data.rows.map(row => [row.name, labelOf(row.name)]), name => {
    state.row = name;
    sort();
    go(["worst", "best"].includes(state.order) ? 0 : state.place);
  });
  rowChoice.value = state.row;
  const seeds = [...new Set(data.rows.flatMap(row => row.runs.map(run => run.seed)))].sort((a, b) => a - b);
  if (seeds.length > 1) {
    addChoice(controls, "Seed", seeds.map(seed => [seed, seed]), seed => { state.seed = seed; sort(); go(state.place); });
  }
  addChoice(controls, "Marked is what differs from", [["against", "base"], ["reference", "the reference"]],
    value => { state.marks = value; draw(); });
  const orders = add(controls, "div", {class: "switch", role: "group", "aria-label": "Order of the sentences"});
  for (const [value, text] of [["file", "by number"], ["worst", "worst against base"], ["best", "best against base"], ["longest", "longest"]]) {
    addButton(orders, text, () => { state.order = value; sort(); go(0); }, {"data-order": value});
  }
  const moves = add(section, "div", {class: "controls"});
  const previous = addButton(moves, "← previous", () => go(state.place - 1));
  const next = addButton(moves, "next →", () => go(state.place + 1));
  const number = add(add(moves, "label", {}, "Number"), "input", {type: "number", min: 1, id: "sentence-number"});
  number.addEventListener("change", () => goTo(Number(number.value) - 1));
  const search = add(add(moves, "label", {}, "Search"), "input", {type: "search", id: "sentence-search", placeholder: "words"});
  let first;  // sentence that a search has found
  search.addEventListener("keydown", event => { if (event.key === "Enter") goTo(first); });
  const hits = add(section, "div", {class: "chips", id: "sentence-hits", "aria-live": "polite"});
  search.addEventListener("input", () => {
    const {sources, references} = sentences(), wanted = search.value.trim().toLowerCase();
    const said = data.rows.filter(row => row.set === chosen().set).map(row => runOf(row).hypotheses);
    const found = !wanted ? [] : numbers().filter(i => [references, sources, ...said]
      .some(texts => (texts[i] || "").toLowerCase().includes(wanted)));
    first = found[0];
    hits.replaceChildren();
    if (wanted) add(hits, "span", {}, `${found.length.toLocaleString("en")} found`);
    for (const i of found.slice(0, LISTED)) addButton(hits, String(i + 1), () => goTo(i));
  });
  const where = add(section, "p", {class: "caption", id: "sentence-place", "aria-live": "polite"});
  const sentence = add(section, "div", {class: "sentence", id: "sentence"});
  const texts = add(section, "div", {id: "texts"});

  function go(place) {
    state.place = Math.max(0, Math.min(order.length - 1, place));
    draw();
  }

  function goTo(i) {
    const isThere = order.includes(i);
    go(isThere ? order.indexOf(i) : state.place);
    if (!isThere && i >= 0) where.prepend(`Of sentence ${(i + 1).toLocaleString("en")} there is no text here. `);
  }

  function draw() {
    const i = order[state.place], {sources, references, total} = sentences();
    number.value = i + 1;
    number.max = total;
    previous.disabled = !state.place;
    next.disabled = state.place === order.length - 1;
    for (const button of orders.children) button.setAttribute("aria-pressed", button.dataset.order === state.order);
    where.textContent = `Sentence ${(i + 1).toLocaleString("en")} of ${total.toLocaleString("en")}`
      + (order.length < total ? `, of which ${order.length} are published` : "")
      + (state.order === "file" ? "" : `, ${(state.place + 1).toLocaleString("en")} in this order`)
      + (state.order === "longest" ? sources.length ? ", by words of the source" : ", by words of the reference" : "")
      + `. Numbers are ${data.measure}` + (againstOf(chosen()) ? ", and its difference from base's."
        : "; base has left no translations, and marked is what differs from the reference.");
    sentence.replaceChildren();
    const source = sources.length ? sources[i] : "not among these results";
    for (const [name, text] of [["source", source], ["reference", references[i]]]) {
      const line = add(sentence, "p");
      add(line, "span", {}, name);
      line.append(" ", text);
    }
    const base = againstOf(chosen()), others = data.rows.filter(row => row.set === chosen().set);
    texts.replaceChildren();
    for (const row of new Set([base, chosen(), ...others].filter(Boolean))) drawRow(row, base, i, references[i]);
  }

  function drawRow(row, base, i, reference) {
    const run = runOf(row), hypothesis = run.hypotheses[i], theirs = base && runOf(base);
    const line = add(texts, "div", {class: row === chosen() || row === base ? "chosen" : ""});
    const isOther = state.seed !== null && String(run.seed) !== state.seed;
    add(line, "div", {class: "name"}, labelOf(row.name) + (isOther ? ` (seed ${run.seed})` : ""));
    const has = run.scores.length, gap = has && base && theirs.scores.length ? run.scores[i] - theirs.scores[i] : null;
    add(line, "div", {class: "score"}, (has ? (run.scores[i] / 10).toFixed(1) : "")
      + (row === base || gap === null ? "" : ` (${signed(gap / 10, 1)})`));
    const text = add(line, "div", {class: "text"});
    const other = state.marks === "reference" || !base ? reference : row === base ? hypothesis : theirs.hypotheses[i] ?? reference;
    if (hypothesis === undefined) add(text, "span", {class: "reason"}, "(not published)");
    else if (hypothesis.trim()) writeCompared(text, hypothesis, other);
    else add(text, "span", {class: "reason"}, "(nothing)");
  }

  sort();
  draw();
}

// Parsed and drawn when it comes near the screen: it is most of what the page holds.
function whenNear(id, start) {
  const section = show(id);
  const observer = new IntersectionObserver(entries => {
    if (!entries.some(entry => entry.isIntersecting)) return;
    observer.disconnect();
    start();
  }, {rootMargin: "600px"});
  observer.observe(section);
}

if (content.translated) whenNear("translations", addTranslations);
