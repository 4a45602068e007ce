// The sentences that a row's difference rests on, shown below the table or figure where it is pressed.

let reasonsOpener = null;  // what was pressed, where the focus goes back to

function closeReasons() {
  byId("reasons").hidden = true;
  reasonsOpener.setAttribute("aria-expanded", "false");
  reasonsOpener.focus();
}

function addDriver(list, row, set, data, [sentence, push, ours, theirs]) {
  const item = add(list, "li"), {against} = on(row, set).driving;
  const head = add(item, "div");
  add(head, "span", {class: "push"}, signed(push, 2));
  head.append(` ${content.measure}, sentence ${(sentence + 1).toLocaleString("en")} `);
  const [own, other] = [row.name, against].map(name => data.rows.find(each => each.name === name));
  const {sources, references} = own || other ? data.sets[(own || other).set] : {references: []};
  if (references[sentence] === undefined) return;
  if (set === "dev") {
    addButton(head, "as every row has it", () => {
      closeReasons();
      goToSentence((own || other).name, sentence);
    });
  }
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

function showReasons(row, set, opener) {
  const {driving, gap} = on(row, set), {against} = driving, {measure} = content, ofTest = set === "test";
  const section = byId("reasons"), texts = readData("translations"), data = ofTest ? texts.test : texts;
  const wasOpen = opener.getAttribute("aria-expanded") === "true";
  if (reasonsOpener) closeReasons();
  if (wasOpen) return;
  reasonsOpener = opener;
  opener.setAttribute("aria-expanded", "true");
  opener.closest(".figure, .scroll").after(show("reasons"));
  section.replaceChildren();
  const head = add(section, "header");
  const title = add(head, "h2", {tabindex: -1, id: "reasons-title"},
    `Sentences behind ${row.label} − ${labelOf(against)}${ofTest ? " on the test set" : ""}`);
  addButton(head, "Back (Esc)", closeReasons);
  const number = driving.sentences.length;
  add(section, "p", {class: "caption"}, `The difference is ${signed(gap.mean, 2)} ${measure}; without these `
    + `${number} sentences it would be ${signed(driving.without, 2)}. A number says by how much a sentence moves it: `
    + "the difference less what it is when that sentence is left out of both."
    + (data.rows.length ? " Marked is what the reference has not." : ""));
  const hasText = (one, [i]) => data.rows.some(each => each.name === one && each.runs.every(run => run.hypotheses[i] !== undefined));
  const lacks = [row.name, against].filter(one => !driving.sentences.every(each => hasText(one, each)));
  if (lacks.length) {
    const areAny = driving.sentences.some(each => hasText(row.name, each) || hasText(against, each));
    add(section, "p", {class: "caption"}, (areAny ? "Where a sentence has no texts" : `The texts of these ${ofTest ? "test " : ""}sentences were not kept`)
      + `${areAny ? "," : ":"} the results of ${lacks.map(labelOf).join(" and ")} hold only ${areAny ? "its" : "their"} counts; a published copy has `
      + (ofTest ? "none of the test set's." : "the texts of ten, under Translations.")
      + " To have them all, delete their result.json and start the sweep again.");
  }
  const isFor = ([, push]) => push * gap.mean > 0;
  for (const [head, found] of [["Sentences that add most to the difference", driving.sentences.filter(isFor)],
    ["Sentences that take most from it", driving.sentences.filter(each => !isFor(each))]]) {
    if (!found.length) continue;
    add(section, "h3", {}, head);
    const list = add(section, "ol");
    for (const driver of found) addDriver(list, row, set, data, driver);
  }
  title.scrollIntoView({block: "center"});  // what was pressed is seen as well
  title.focus({preventScroll: true});
}

addEventListener("keydown", event => { if (event.key === "Escape" && !byId("reasons").hidden) closeReasons(); });
