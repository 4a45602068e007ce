// The table's files, which the page carries along.

const TYPES = {csv: "text/csv", md: "text/markdown", tex: "application/x-tex"};
const NAMES = {csv: "CSV", md: "Markdown", tex: "LaTeX"};
const saves = add(byId("downloads"), "div", {class: "controls"});
for (const [name, text] of Object.entries(content.downloads)) {
  const ending = name.split(".").pop();
  addButton(saves, NAMES[ending], () => {
    const address = URL.createObjectURL(new Blob([text], {type: TYPES[ending] + ";charset=utf-8"}));
    const link = add(document.body, "a", {href: address, download: name});
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(address), 1000);
  });
}
add(byId("downloads"), "p", {class: "caption"},
  "The table as CSV (numbers unrounded), Markdown, and LaTeX with booktabs. Each figure has buttons of its own, for PNG and SVG.");
