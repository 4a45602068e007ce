// The sentences that a row's difference rests on, shown when its interval is pressed.

let reasonsOpener = null;  // what was pressed, where the focus goes back to

function closeReasons() {
  byId("reasons").hidden = true;
  if (reasonsOpener && reasonsOpener.isConnected) reasonsOpener.focus();
}

function addDriver(list, row, data, [sentence, push, ours, theirs]) {
  const item = add(list, "li"), {against} = row.driving;
  const head = add(item, "div");
  add(head, "span", {class: "push"}, signed(push, 2));
  head.append(` ${content.measure}, sentence ${(sentence + 1).toLocaleString("en")} `);
  const [own, other] = [row.name, against].map(name => data.rows.find(each => each.name === name));
  const {sources, references} = own || other ? data.sets[(own || other).set] : {references: []};
  if (references[sentence] === undefined) return;
  addButton(head, "as every row has it", () => {
    closeReasons();
    goToSentence((own || other).name, sentence);
  });
  const texts = add(item, "div", {class: "sentence"});
  const line = (name, text, than) => {
    if (text === undefined) return;
    const shown = add(texts, "p");
    add(shown, "span", {}, name);
    shown.append(" ");
    if (than === undefined) shown.append(text || "(nothing)");
    else if (text.trim()) writeCompared(shown, text, than);
    else add(shown, "em", {}, "(nothing)");
  };
  line("source", sources[sentence]);
  line("reference", references[sentence]);
  for (const [each, seed] of [[other, theirs], [own, ours]]) {
    const run = each && (each.runs.find(run => run.seed === seed) || each.runs[0]);
    if (run) line(labelOf(each.name) + (each.runs.length > 1 || run.seed !== seed ? `, seed ${run.seed}` : ""), run.hypotheses[sentence], references[sentence]);
  }
}

function showReasons(name, opener) {
  const row = content.rows.find(each => each.name === name), {driving, gap} = row;
  const section = show("reasons"), data = readData("translations"), {measure} = content;
  reasonsOpener = opener;
  section.replaceChildren();
  const title = add(section, "h2", {tabindex: -1}, `Why ${labelOf(name)} differs from ${driving.against}`);
  const number = driving.sentences.length;
  add(section, "p", {class: "caption"}, `The difference is ${signed(gap.mean, 2)} ${measure}; without these `
    + `${number} sentences it would be ${signed(driving.without, 2)}. A number says by how much a sentence moves it: `
    + "the difference less what it is when that sentence is left out of both."
    + (data.rows.length ? " Marked is what the reference has not." : ""));
  const lacks = [name, driving.against].filter(one => !driving.sentences.every(([i]) =>
    data.rows.some(each => each.name === one && each.runs.every(run => run.hypotheses[i] !== undefined))));
  if (lacks.length) {
    add(section, "p", {class: "caption"}, `Where a sentence has no texts, the results of ${lacks.map(labelOf).join(" and ")} hold only `
      + "its counts; a published copy has the texts of ten, under Translations. To have them all, delete their result.json and start the sweep again.");
  }
  const isFor = ([, push]) => push * gap.mean > 0;
  for (const [head, found] of [["Sentences that make the difference", driving.sentences.filter(isFor)],
    ["Sentences that speak against it", driving.sentences.filter(each => !isFor(each))]]) {
    if (!found.length) continue;
    add(section, "h3", {}, head);
    const list = add(section, "ol");
    for (const driver of found) addDriver(list, row, data, driver);
  }
  addButton(section, "Close", closeReasons);
  title.scrollIntoView({block: "start"});
  title.focus({preventScroll: true});
}

byId("reasons").addEventListener("keydown", event => { if (event.key === "Escape") closeReasons(); });
