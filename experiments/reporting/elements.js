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

// A row by the sizes that it has here: "C N=1 (paper: 2)" of the row that the paper has as "C N=2".
const labelOf = name => {
  const row = content.rows.find(each => each.name === name);
  return !row ? name : row.theirs ? `${row.own} (paper: ${row.theirs})` : row.own;
};

byId("title").textContent = content.title;
byId("summary").textContent = content.summary;
