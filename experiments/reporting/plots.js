// The figures of all rows.

const rows = content.rows;
// Okabe and Ito's colours, which colour-blind readers tell apart; base has the text's.
const HUES = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#9a8c00"];
const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "2px 7px", "12px 3px 3px 3px 3px 3px"];
const groups = [...new Set(rows.slice(1).map(row => row.name.split(" ")[0]))];
const groupOf = row => groups.indexOf(row.name.split(" ")[0]);
const styleOf = row => {
  if (row === rows[0]) return {hue: colour("text"), dash: "solid"};
  const group = groupOf(row), own = rows.slice(1).filter(other => groupOf(other) === group);
  return {hue: HUES[group % HUES.length], dash: DASHES[own.indexOf(row) % DASHES.length]};
};
const PALE = 0.45;
const NAME_SIZE = 10.5;  // pixels, of names beside marks

// Rows with a difference on either set, and the pixels that each takes.
const differing = rows.filter(row => row.gap || row.test?.gap);
const heightOfDifferences = 70 + (isTested ? 32 : 23) * differing.length;

// Bars more than four times as long as the median one run out of the figure, so that the others can be told apart.
const gaps = differing.flatMap(row => Object.keys(SETS).map(set => on(row, set)?.gap)).filter(Boolean);
const longest = 4 * gaps.map(gap => gap.half).sort((a, b) => a - b)[gaps.length >> 1];
const longBars = gaps.some(gap => gap.half > longest);
function extentWithoutThem() {
  const ends = [-1, 1].map(side => gaps.map(({mean, half}) => mean + side * Math.min(half, longest)));
  const low = Math.min(0, ...ends[0]), high = Math.max(0, ...ends[1]), room = 0.04 * (high - low);
  return [low - room, high + room];
}

// Differences from base: ours with intervals, and beside them the paper's, each to its own scale.
function buildDifferences(width) {
  const known = differing.filter(row => row.paper !== null);
  const isNarrow = width < 520, labels = differing.map(row => shorter(row.label, 28));
  const mark = (list, x, shift, text, rest) => ({
    type: "scatter", mode: "markers", y: list.map(row => differing.indexOf(row) + shift), x: list.map(x),
    hovertext: list.map(row => plain(row.label) + "<br>" + text(row)), hoverinfo: "text",
    meta: list.map(row => row.name), ...rest,
  });
  const said = ({verdict, gap}) => verdict ? `the paper's difference: ${verdict}`
    : `the interval ${Math.abs(gap.mean) > gap.half ? "excludes" : "holds"} 0`;
  const ours = (list, set, opacity) => {
    const found = list.map(row => on(row, set)), hue = colour(SETS[set]);
    const written = ({gap}) => `${signed(gap.mean, 2)} ± ${gap.half.toFixed(2)} ${content.measure}`;
    return mark(list, row => on(row, set).gap.mean, isTested ? {dev: -0.18, test: 0.18}[set] : 0, row =>
      `${set === "test" ? "test set" : "ours"} ${written(on(row, set))}<br>${said(on(row, set))}`, {
      name: set, opacity,
      marker: {color: found.map(({is_sure}) => is_sure ? hue : colour("paper")), size: 8,
        line: {color: hue, width: 1.6}, symbol: set === "test" ? "square" : "circle"},
      error_x: {type: "data", array: found.map(({gap}) => gap.half), color: hue, thickness: 1.6, width: 3},
    });
  };
  const data = Object.keys(SETS).flatMap(set => {
    const [several, single] = [true, false].map(is => differing.filter(row => on(row, set)?.gap?.over_seeds === is));
    return [[several, 1], [single, several.length ? PALE : 1]]
      .filter(([list]) => list.length).map(([list, opacity]) => ours(list, set, opacity));
  });
  const head = (text, x, hue) => ({
    text, x, xref: "paper", xanchor: "left", y: 1, yref: "paper", yanchor: "bottom", showarrow: false,
    font: {color: colour(hue), size: 12.5},
  });
  const what = isNarrow ? isTested ? "ours" : `ours, ${content.measure}` : `ours, ${content.measure}, with 95% intervals`;
  const both = [": development set ●, ", "test set ■"].map(text => isNarrow ? text.replace("elopment set", ".").replace(" set", "") : text);
  const annotations = [head(what + (isTested ? `${both[0]}<span style="color:${colour("test")}">${both[1]}</span>` : ""), 0, "ours")];
  const zero = {zeroline: true, zerolinewidth: 1.5, fixedrange: true, nticks: isNarrow ? 4 : 9, tickformat: "~g"};
  const layout = {
    height: heightOfDifferences, annotations,
    margin: {l: Math.min(width * 0.4, 18 + 7.1 * Math.max(...labels.map(label => label.length))), r: 12, t: 30, b: 34},
    xaxis: axis({...zero, domain: known.length ? [0, 0.6] : [0, 1], ...(longBars && {range: extentWithoutThem()})}),
    yaxis: axis({tickvals: differing.map((_, i) => i), ticktext: labels.map(plain),
      range: [differing.length - 0.4, -0.6], zeroline: false, fixedrange: true}),
    shapes: content.tie === null ? [] : [{type: "rect", layer: "below", xref: "x", yref: "paper", y0: 0, y1: 1,
      x0: -content.tie, x1: content.tie, fillcolor: colour("line"), opacity: 0.45, line: {width: 0}}],
  };
  if (known.length) {
    data.push(mark(known, row => row.paper, 0, row => `the paper's ${signed(row.paper, 1)} BLEU`, {
      xaxis: "x2", marker: {color: colour("theirs"), size: 9, symbol: "diamond"},
    }));
    const most = Math.max(0.3, ...known.map(row => Math.abs(row.paper))) * 1.2;
    layout.xaxis2 = axis({...zero, domain: [0.66, 1], anchor: "y", range: [-most, most], nticks: isNarrow ? 3 : 6});
    annotations.push(head(isNarrow ? "paper, BLEU" : "the paper's, BLEU (WMT14)", 0.66, "theirs"));
  }
  return {data, layout};
}

if (rows.some(row => row.gap)) {
  show("differences");
  byId("reading-differences").textContent = `A row's ${content.measure} less ${content.base}'s; bars are 95% intervals, over `
    + "sentences, and over seeds where their deviation is known. A filled mark: "
    + (content.judged ? "surely not 0, at 95% for all rows together." : "the interval excludes 0.")
    + ([true, false].every(is => rows.some(row => row.gap && row.gap.over_seeds === is))
      ? " Pale: one seed, whose interval knows nothing of others." : "")
    + (rows.some(row => row.paper !== null) ? " The two scales differ: across corpora only signs and ranks compare." : "")
    + (content.tie === null ? "" : ` Shaded: ± ${content.tie}, which the interval of a tie as in the paper lies within.`)
    + (longBars ? " A bar that is cut off goes on beyond the figure; the table says how far." : "");
  addFigure("figure-differences", "differences", buildDifferences, {height: heightOfDifferences});
}

// Rows that are shown in the curves and by length; a run's lines are `lines` by figure.
const shown = new Set(rows.map(row => row.name));
const curved = rows.filter(row => row.curves.some(run => Object.keys(content.curves).some(name => run[name])));
const lengthened = rows.filter(row => content.lengths.length && row.lengths.length);
const measures = Object.entries(content.curves).filter(
  ([name]) => curved.some(row => row.curves.some(run => run[name])));
let measure = measures.length ? measures[0][0] : "";

const baseLast = list => [...list.filter(row => row !== rows[0]), ...list.filter(row => row === rows[0])];
const line = (row, x, y, text) => ({
  type: "scatter", mode: "lines", x, y, name: plain(row.label), hovertext: text, hoverinfo: "text",
  visible: shown.has(row.name), meta: row.name,
  line: {color: styleOf(row).hue, dash: styleOf(row).dash, width: row === rows[0] ? 2.6 : 1.5},
});

// What a curve can be drawn along, besides steps: those that any run says.
const ALONG = {step: "step", tokens: "target tokens", flops: "training FLOPs", seconds: "seconds of training"};
const alongs = Object.entries(ALONG).filter(
  ([name]) => name === "step" || curved.some(row => row.curves.some(run => run.a_step[name])));
let along = "step";

function buildCurves(width) {
  const isKnown = run => run[measure] && (along === "step" || run.a_step[along]);
  const data = baseLast(curved).flatMap(row => row.curves.filter(isKnown).map(run => {
    const [steps, values] = run[measure], times = along === "step" ? 1 : run.a_step[along];
    const name = plain(row.label) + (row.curves.length > 1 ? `, seed ${run.seed}` : "");
    return line(row, steps.map(step => step * times), values, values.map(
      (value, i) => `${name}<br>step ${steps[i].toLocaleString("en")}: ${value}`));
  }));
  const ends = [Math.min, Math.max].map(most => Math.log10(data.reduce((end, {y}) => most(end, ...y), data[0]?.y[0] ?? 1)));
  const ticks = logTicks(...ends, value => value.toLocaleString("en"));
  return {data, layout: {
    height: width < 520 ? 330 : 430, margin: {l: 52, r: 22, t: 12, b: 42},
    xaxis: axis({title: {text: ALONG[along]}, rangemode: "tozero", zeroline: false}),
    yaxis: axis({title: {text: width < 520 ? "" : content.curves[measure]}, zeroline: false, ...(measure.includes("ppl") ? {type: "log", ...ticks} : {nticks: 8})}),
  }};
}

function buildLengths(width) {
  const data = baseLast(lengthened).map(row => ({...line(row, content.lengths.map((_, i) => i), row.lengths,
    row.lengths.map((score, i) => `${plain(row.label)}<br>${content.lengths[i].split(" ")[0]} ${content.unit}: ${content.measure} ${score}`)),
    mode: "lines+markers", marker: {size: 5, color: styleOf(row).hue}}));
  const names = content.lengths.map(name => width < 520 ? name.split(" ")[0] : name);
  return {data, layout: {
    height: width < 520 ? 330 : 400, margin: {l: 46, r: 12, t: 12, b: 46},
    xaxis: axis({tickvals: names.map((_, i) => i), ticktext: names, zeroline: false, title: {text: `${content.unit} of the source`}}),
    yaxis: axis({title: {text: content.measure}, zeroline: false}),
  }};
}

// Sets an attribute of all lines by their rows' names.
function restyle(attribute, valueOf) {
  for (const {plot, drawn} of ["figure-curves", "figure-lengths"].map(id => figures.get(id) || {})) {
    if (drawn) Plotly.restyle(plot, {[attribute]: plot.data.map(trace => valueOf(trace.meta))});
  }
}

// Sets the lines of one row apart; null: none.
const highlight = name => restyle("opacity", other => name === null || other === name ? 1 : 0.12);

function showRows() {
  for (const chip of byId("chips").querySelectorAll("[data-row]")) {
    chip.setAttribute("aria-pressed", shown.has(chip.dataset.row));
  }
  restyle("visible", name => shown.has(name));
}

function addChips() {
  for (const row of rows.filter(each => curved.includes(each) || lengthened.includes(each))) {
    const chip = addButton(byId("chips"), "", () => {
      if (!shown.delete(row.name)) shown.add(row.name);
      showRows();
    }, {"aria-pressed": "true", "data-row": row.name});
    const patterns = {dash: "6 3", dot: "2 2", dashdot: "6 2 2 2", longdash: "9 3", longdashdot: "9 2 2 2", solid: "none"};
    const {hue, dash} = styleOf(row), stroke = row === rows[0] ? "currentColor" : hue;
    add(add(chip, "svg", {"aria-hidden": "true"}), "line", {
      x1: 0, x2: 22, y1: 4, y2: 4, "stroke-width": 2, stroke, "stroke-dasharray": patterns[dash] || dash.replaceAll("px", ""),
    });
    add(chip, "span", {}, row.label);
    for (const event of ["mouseenter", "focus"]) chip.addEventListener(event, () => highlight(row.name));
    for (const event of ["mouseleave", "blur"]) chip.addEventListener(event, () => highlight(null));
  }
  for (const [text, names] of [["all", rows.map(row => row.name)], ["base alone", [content.base]]]) {
    addButton(byId("chips"), text, () => {
      shown.clear();
      names.forEach(name => shown.add(name));
      showRows();
    });
  }
}

if (curved.length) {
  show("by-row");
  addChips();
  const choose = name => { measure = name; addFigure("figure-curves", "learning-curves", buildCurves, {legend: true}); };
  addChoice(byId("curve-controls"), "What is drawn", measures, choose);
  addChoice(byId("curve-controls"), "Along", alongs, name => { along = name; choose(measure); });
  choose(measure);
  if (lengthened.length && content.lengths.length > 1) {
    show("lengths");
    byId("lengths").querySelector("h2").textContent = `${content.measure} by sentence length`;
    byId("lengths").querySelector("p").textContent = `Corpus ${content.measure} of the development sentences by ${content.unit} of `
      + "their source (number of sentences); means over seeds. The rows are those chosen above.";
    addFigure("figure-lengths", "length", buildLengths, {legend: true});
  }
}

// Places on a logarithmic axis: 1, 2 and 5 of each power of ten, or more or fewer as there is room.
function logTicks(low, high, written) {
  const steps = high - low > 2.5 ? [1] : high - low > 0.7 ? [1, 2, 5] : [1, 1.5, 2, 3, 4, 5, 6, 8];
  const powers = Array.from({length: Math.floor(high) - Math.floor(low) + 1}, (_, i) => Math.floor(low) + i);
  const tickvals = powers.flatMap(power => steps.map(step => step * 10 ** power))
    .filter(value => Math.log10(value) >= low && Math.log10(value) <= high);
  return {tickvals, ticktext: tickvals.map(written)};
}

// Whole names beside marks, those of `first` before others; left out where there is no room, which
// is inside the axes, beside other names and marks, and if possible beside a line's boxes. For `first`
// marks may be covered.
const ruler = document.createElement("canvas").getContext("2d");
function namesOf(found, first, place, [width, height], lines) {
  const points = found.map(place), taken = points.map(([x, y]) => [x - 5, y - 5, x + 5, y + 5]);
  const names = found.map(() => ({text: "", side: "middle right"})), written = [];
  ruler.font = `${NAME_SIZE}px ${FONT}`;
  for (const row of new Set([...first, ...found])) {
    const i = found.indexOf(row), [x, y] = points[i], size = ruler.measureText(row.own).width;
    const across = {right: [x + 7, x + 9 + size], left: [x - 9 - size, x - 7], center: [x - size / 2 - 1, x + size / 2 + 1]};
    const down = {middle: [y - 6, y + 6], top: [y - 20, y - 8], bottom: [y + 8, y + 20]};
    const boxes = Object.fromEntries(["middle right", "middle left", "top center", "bottom center", "top right", "top left",
      "bottom right", "bottom left"].map(side => [side, side.split(" ")]).map(([side, [v, h]]) =>
      [side, [across[h][0], down[v][0], across[h][1], down[v][1]]]));
    const isFree = (box, others) => box[0] > 0 && box[1] > 0 && box[2] < width && box[3] < height && others.every(other =>
      box[2] < other[0] || other[2] < box[0] || box[3] < other[1] || other[3] < box[1]);
    const tries = [[...taken, ...lines], taken, ...(first.includes(row) ? [written] : [])];
    const side = tries.map(others => Object.keys(boxes).find(each => isFree(boxes[each], others))).find(Boolean);
    if (!side) continue;
    taken.push(boxes[side]);
    written.push(boxes[side]);
    names[i] = {text: plain(row.own), side};
  }
  return names;
}

// Rows that none with as little of a cost surpasses, from cheap to dear.
function front(found, field) {
  let best = -Infinity;
  return [...found].sort((a, b) => a[field] - b[field] || b.score - a.score)
    .filter(row => row.score > best && ((best = row.score), true));
}

// The score against another number of each row; a line joins the front of a cost.
const buildAgainst = (field, title, written, shortly, isCost) => width => {
  const found = rows.filter(row => row.score !== null && row[field]);
  const xs = found.map(row => Math.log10(row[field])), ys = found.map(row => row.score);
  const range = values => {
    const low = Math.min(...values), high = Math.max(...values), room = (high - low || Math.abs(high) || 1) * 0.15;
    return [low - room, high + room];
  };
  const xRange = range(xs), yRange = range(ys), inner = [width - 58, 340 - 56];
  const place = row => [
    inner[0] * (Math.log10(row[field]) - xRange[0]) / (xRange[1] - xRange[0]),
    inner[1] * (1 - (row.score - yRange[0]) / (yRange[1] - yRange[0])),
  ];
  const best = isCost ? front(found, field) : [], steps = best.map(place);
  const names = namesOf(found, best, place, inner, steps.slice(1).flatMap(([x, y], i) => [
    [steps[i][0], steps[i][1], x, steps[i][1]], [x, y, x, steps[i][1]],
  ]));
  return {data: [{
    type: "scatter", mode: "markers+text", x: found.map(row => row[field]), y: ys,
    text: names.map(name => name.text), textposition: names.map(name => name.side), textfont: {size: NAME_SIZE, color: colour("faint")},
    error_y: {type: "data", array: found.map(row => row.score_deviation || 0), color: colour("line"), thickness: 1.2, width: 0},
    marker: {size: 8, color: found.map(row => styleOf(row).hue)}, cliponaxis: true,
    hovertext: found.map(row => `${plain(row.label)}<br>${content.measure} ${row.score.toFixed(2)}<br>${title}: ${written(row[field])}`), hoverinfo: "text",
  }, ...(isCost ? [{
    type: "scatter", mode: "lines", x: best.map(row => row[field]), y: best.map(row => row.score),
    line: {shape: "hv", color: colour("faint"), width: 1.2, dash: "dot"}, hoverinfo: "skip",
  }] : [])], layout: {
    height: 340, margin: {l: 44, r: 14, t: 10, b: 46},
    xaxis: axis({title: {text: title}, type: "log", range: xRange, zeroline: false, ...logTicks(...xRange, shortly)}),
    yaxis: axis({title: {text: content.measure}, range: yRange, zeroline: false}),
  }};
};

if (rows.filter(row => row.score !== null).length > 1) {
  show("trades");
  byId("trades").querySelector("h2").textContent = `What ${content.measure} goes with`;
  const inWords = new Intl.NumberFormat("en", {notation: "compact"}).format;
  const power = value => value.toExponential(0).replace("e+", "e");
  addFigure("figure-ppl", "ppl", buildAgainst("ppl", "perplexity", value => value.toFixed(3), String));
  addFigure("figure-params", "parameters", buildAgainst("params", "parameters", value => value.toLocaleString("en"), inWords, true));
  addFigure("figure-flops", "flops", buildAgainst("flops", "training FLOPs", value => value.toExponential(2), power, true));
}
