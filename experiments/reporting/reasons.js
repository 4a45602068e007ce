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
  if (!own) return;
  addButton(head, "as every row has it", () => {
    closeReasons();
    goToSentence(row.name, sentence);
  });
  const texts = add(item, "div", {class: "sentence"}), {sources, references} = data.sets[own.set];
  const line = (name, text, than) => {
    const shown = add(texts, "p");
    add(shown, "span", {}, name);
    shown.append(" ");
    if (than === undefined) shown.append(text || "(nothing)");
    else if (text.trim()) writeCompared(shown, text, than);
    else add(shown, "em", {}, "(nothing)");
  };
  const runOf = (each, seed) => each.runs.find(run => run.seed === seed) || each.runs[0];
  const named = (each, run) => labelOf(each.name) + (each.runs.length > 1 ? `, seed ${run.seed}` : "");
  if (sources.length) line("source", sources[sentence]);
  line("reference", references[sentence]);
  const [mine, base] = [runOf(own, ours), other && runOf(other, theirs)];
  if (other) line(named(other, base), base.hypotheses[sentence], references[sentence]);
  line(named(own, mine), mine.hypotheses[sentence], references[sentence]);
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
    + `the difference less what it is when that sentence is left out of both. `
    + (data.rows.some(each => each.name === name) ? "Marked is what the reference has not."
      : "Its runs have left no translations.")
    + (data.rows.some(each => each.name === driving.against) ? "" : ` Those of ${driving.against} have left none.`));
  const list = add(section, "ol");
  for (const driver of driving.sentences) addDriver(list, row, data, driver);
  addButton(section, "Close", closeReasons);
  title.scrollIntoView({block: "start"});
  title.focus({preventScroll: true});
}

byId("reasons").addEventListener("keydown", event => { if (event.key === "Escape") closeReasons(); });
