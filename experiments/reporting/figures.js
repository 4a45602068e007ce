// Figures by Plotly: drawn when they come near the screen, again when colours or widths change.
// To start Plotly takes longer than all else, so that words and tables are shown before.

const figures = new Map();  // by id: what builds it, and whether it has been drawn
const FONT = "system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif";
const PAPER = 960;  // pixels between the margins of A4 or US Letter, landscape
let isPrinted = false;

// On paper three stand side by side, or one alone, however many the screen has room for.
function widthOf({plot}) {
  if (!isPrinted) return plot.clientWidth;
  return plot.closest(".three") ? PAPER / 3 - 20 : PAPER - 20;
}

// Text that Plotly shows as it is: it would take "<b>" for markup.
const plain = text => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

const shorter = (text, most) => text.length > most ? text.slice(0, most - 1) + "…" : text;

// A colour of page.css as the browser resolves it.
function colour(name) {
  const probe = add(document.body, "span", {style: `color: var(--${name})`});
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

// An axis as all figures have it.
const axis = options => ({
  gridcolor: colour("line"), zerolinecolor: colour("faint"), linecolor: colour("line"),
  automargin: false, ticks: "", ...options,
});

function startPlotly() {
  const source = document.querySelector("script[type='text/plain']");
  if (!window.Plotly) add(document.head, "script", {}, source.textContent);
}

function drawFigure(id) {
  startPlotly();
  const known = figures.get(id), width = widthOf(known), {data, layout} = known.build(width);
  known.width = width;
  const text = colour("text"), paper = colour("paper");
  const font = {family: FONT, size: 12, color: text};
  const hoverlabel = {bgcolor: colour("raised"), bordercolor: colour("line"), font, align: "left"};
  Plotly.react(known.plot, data, {
    font, hoverlabel, paper_bgcolor: paper, plot_bgcolor: paper, hovermode: "closest", hoverdistance: 50,
    showlegend: false, dragmode: false, autosize: false, width: known.width, ...layout,
  }, {displayModeBar: false, responsive: false});
  known.drawn = true;
}

const afterPaint = act => requestAnimationFrame(() => setTimeout(act));

const nearScreen = new IntersectionObserver(entries => {
  for (const {isIntersecting, target: {id}} of entries) {
    if (isIntersecting) afterPaint(() => { if (!figures.get(id).drawn) drawFigure(id); });
  }
}, {rootMargin: "250px"});

/* Registers a figure; `build` gets a width in pixels and returns Plotly's data and layout. A figure
   that is registered again is drawn anew. `height`: pixels that are kept free for it. */
function addFigure(id, name, build, {height, legend} = {}) {
  const box = byId(id);
  if (figures.has(id)) {
    figures.get(id).build = build;
    if (figures.get(id).drawn) drawFigure(id);
    return;
  }
  const plot = add(box, "div", {class: "plot"}), save = add(box, "div", {class: "save"});
  for (const format of ["png", "svg"]) {
    addButton(save, format.toUpperCase(), () => {
      if (!figures.get(id).drawn) drawFigure(id);
      // What buttons beside the figure say, a saved file has to say itself.
      const more = legend ? {showlegend: true, legend: {font: {size: 10}}} : {};
      Plotly.downloadImage({data: plot.data, layout: {...plot.layout, ...more}}, {
        format, filename: `${content.table}-${name}`, scale: format === "png" ? 2 : 1,
        width: plot.clientWidth, height: plot.clientHeight,
      });
    }, {"aria-label": `Save the figure “${name}” as ${format.toUpperCase()}`});
  }
  if (height) plot.style.minHeight = `${height}px`;
  figures.set(id, {build, plot, drawn: false});
  nearScreen.observe(box);
}

const redraw = needed => {
  for (const [id, known] of figures) {
    if (known.drawn && needed(known)) drawFigure(id);
  }
};
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => redraw(() => true));
let resizing = 0;
addEventListener("resize", () => {
  clearTimeout(resizing);
  resizing = setTimeout(() => redraw(known => widthOf(known) !== known.width), 120);
});
// On paper, which is white and not as wide as a screen, there is every figure.
function setPrinted(isNow) {
  isPrinted = isNow;
  document.documentElement.classList.toggle("printed", isNow);
  redraw(() => true);
}
addEventListener("beforeprint", () => {
  setPrinted(true);
  for (const [id, {drawn}] of figures) if (!drawn) drawFigure(id);
});
addEventListener("afterprint", () => setPrinted(false));
