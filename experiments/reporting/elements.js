// What all parts of the page share. Text is always set as text, never as markup.

const byId = id => document.getElementById(id);
const readData = id => JSON.parse(byId(id + "-data").textContent);
const content = readData("content");
const SVG = "http://www.w3.org/2000/svg";

function add(parent, tag, attributes, text) {
  const space = tag === "svg" || parent.namespaceURI === SVG ? SVG : parent.namespaceURI;
  const element = document.createElementNS(space, tag);
  for (const name in attributes || {}) element.setAttribute(name, attributes[name]);
  if (text !== undefined) element.textContent = text;
  return parent.appendChild(element);
}

function addButton(parent, text, press, attributes) {
  const button = add(parent, "button", {type: "button", ...attributes}, text);
  button.addEventListener("click", press);
  return button;
}

// A labelled choice; options are [value, text].
function addChoice(parent, label, options, choose) {
  const select = add(add(parent, "label", {}, label), "select");
  for (const [value, text] of options) add(select, "option", {value}, text);
  select.addEventListener("change", () => choose(select.value));
  return select;
}

function show(id) {
  byId(id).hidden = false;
  return byId(id);
}

const signed = (value, digits) => {
  const text = Math.abs(value).toFixed(digits);
  return (Number(text) ? value < 0 ? "−" : "+" : "") + text;
};

const rowOf = name => content.rows.find(row => row.name === name);
const labelOf = name => rowOf(name)?.label ?? name;
// What is known of a row on one of the SETS, which have a colour each; null: nothing.
const SETS = {dev: "ours", test: "test"};
const on = (row, set) => set === "test" ? row.test : row;
const isTested = content.rows.some(row => row.test?.gap);

byId("title").textContent = content.title;
byId("summary").textContent = content.summary;
byId("on-names").textContent = content.on_names;
