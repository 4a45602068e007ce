// Tables that sort by any column, each in a box of its own that scrolls.

const NUMBER = /^([+−-]?[\d,]*\.?\d+(?:e[+-]?\d+)?)(?=$|[\s%])/i;
const CLOCK = /^\d+(:\d\d)+$/;

// The number that a cell begins with; null if it begins with none.
function numberIn(text) {
  if (CLOCK.test(text)) return text.split(":").reduce((sum, part) => 60 * sum + Number(part), 0);
  const found = NUMBER.exec(text);
  return found && Number(found[1].replace("−", "-").replaceAll(",", ""));
}

// Numbers come before words, and what is empty last, whichever way they are sorted.
function compareCells(a, b, direction) {
  if (a === "" || b === "") return (a === "") - (b === "");
  const [x, y] = [numberIn(a), numberIn(b)];
  if (x !== null && y !== null) return direction * (x - y);
  if (x !== null || y !== null) return x === null ? 1 : -1;
  return direction * a.localeCompare(b, "en", {numeric: true});
}

// A line's head; of a row what it is called, with what stands in brackets below.
function nameRow(element, text, isRow) {
  const label = isRow ? labelOf(text) : text, [own, ...rest] = label === text ? [text] : label.split(/ (?=\()/);
  if (own.length < 20) element.className = "short";
  add(element, "span", {}, own);
  if (rest.length) add(element, "span", {class: "rest"}, rest.join(" "));
}

/* A table. Cells are texts, or objects of a `text` that is sorted by and a `fill` that draws them.
   The first column sorts back into the order that the lines come in. */
function addTable(parent, label, heads, lines) {
  const box = add(parent, "div", {class: "scroll", tabindex: 0, role: "region", "aria-label": label});
  const table = add(box, "table");
  const top = add(add(table, "thead"), "tr"), body = add(table, "tbody");
  const text = cell => cell.text === undefined ? cell : cell.text;
  const kinds = heads.map((head, column) => {
    const cells = lines.map(line => text(line[column])).filter(cell => cell !== "");
    const isNumber = column > 0 && cells.some(cell => numberIn(cell) !== null);
    const isLong = !isNumber && cells.some(cell => cell.length > 24);
    return [isNumber && "number", isLong && "long", head.startsWith("paper") && "theirs"]
      .filter(Boolean).join(" ");
  });
  const rows = lines.map((line, place) => {
    const row = add(body, "tr");
    line.forEach((cell, column) => {
      const element = add(row, column ? "td" : "th", column ? {class: kinds[column]} : {scope: "row"});
      if (!column) nameRow(element, text(cell), heads[0] === "row");
      if (cell.fill) cell.fill(element); else if (column) add(element, "span", {}, cell);
    });
    return {row, place, cells: line.map(text)};
  });
  heads.forEach((head, column) => {
    const cell = add(top, "th", {scope: "col", class: kinds[column], "aria-sort": "none"});
    addButton(cell, head, () => {
      const direction = cell.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      for (const other of top.children) other.setAttribute("aria-sort", "none");
      cell.setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
      rows.sort((a, b) => (column ? compareCells(a.cells[column], b.cells[column], direction)
        : direction * (a.place - b.place)) || a.place - b.place);
      body.append(...rows.map(each => each.row));
    });
  });
  return table;
}

// All differences from base are drawn to one scale; the line is at 0.
const ends = content.rows.flatMap(row => Object.keys(SETS).map(set => on(row, set)?.gap))
  .filter(Boolean).flatMap(gap => [gap.mean - gap.half, gap.mean + gap.half]);
const low = Math.min(0, ...ends), high = Math.max(0, ...ends);

function drawBar(cell, gap, hue) {
  const x = value => 3 + 104 * (value - low) / (high - low);
  const svg = add(cell, "svg", {viewBox: "0 0 110 16", "aria-hidden": "true"});
  const line = (from, to, stroke, top, bottom, width) => add(svg, "line", {
    x1: from, x2: to, y1: top, y2: bottom, stroke: `var(--${stroke})`, "stroke-width": width,
  });
  line(x(0), x(0), "faint", 0, 16, 1);
  line(x(gap.mean - gap.half), x(gap.mean + gap.half), hue, 8, 8, 2);
  add(svg, "circle", {cx: x(gap.mean), cy: 8, r: 2, fill: `var(--${hue})`});
}

// A table of differences from base on one of the sets, with a bar beside each.
const DIFFERENCE = /^(test: )?− [^:]+$/;
function addDifferences(parent, title, {heads, lines}, set) {
  const place = heads.findIndex(head => DIFFERENCE.test(head)) + 1, last = heads.indexOf("verdict");
  const params = heads.indexOf("params ×10⁶"), hasFlops = params > 0;
  const withBars = (cells, bar, flops) => {
    // The verdict stands beside what it is of, training FLOPs beside parameters.
    const more = hasFlops ? cells.toSpliced(params + 1, 0, flops) : cells, end = last + (hasFlops && last > params);
    const moved = last < 0 ? more : more.toSpliced(end, 1).toSpliced(place, 0, more[end]);
    return ends.length ? moved.toSpliced(place, 0, bar) : moved;
  };
  const flopsOf = ({flops}) => flops && content.rows[0].flops ? (flops / content.rows[0].flops).toFixed(2) : "";
  addTable(parent, title, withBars(heads, "95% interval", "FLOPs, × base's"), lines.map(line => {
    const row = rowOf(line[0]), gap = on(row, set)?.gap;
    const cells = line.map((cell, column) => {
      if (!column) return {text: cell, fill: element => {
        for (const reason of set === "dev" ? row.reasons : []) add(element, "span", {class: "reason"}, reason);
      }};
      if (heads[column] !== "verdict" || !cell) return cell;
      const kind = "verdict-" + cell.split(" ")[0];
      return {text: cell, fill: element => add(element, "span", {class: kind}, cell)};
    });
    return withBars(cells, gap ? {
      text: String(gap.mean), fill: element => drawBar(element, gap, SETS[set]),
    } : "", flopsOf(row));
  }));
}

content.tables.forEach((table, i) => {
  if (table.title) add(byId("tables"), "h3", {}, table.title);
  else if (i) add(byId("tables"), "h3", {}, table.heads[0] === "row" ? "More of each row" : table.heads[0] + "s");
  const difference = table.heads.find(head => DIFFERENCE.test(head)), set = difference?.startsWith("test") ? "test" : "dev";
  const label = table.title || (i ? table.heads[0] : "The table");
  if (difference) addDifferences(byId("tables"), label, table, set);
  else addTable(byId("tables"), label, table.heads, table.lines);
  if (table.note) add(byId("tables"), "p", {class: "caption"}, table.note);
});
for (const note of content.notes) add(byId("notes"), "p", {}, note);

if (content.changes.heads.length > 1) {
  const section = show("changes");
  add(section, "p", {class: "caption"}, "Base's values, then in each row what is not base's.");
  addTable(section, "What each row changes", content.changes.heads, content.changes.lines);
}
if (content.provenance.lines.length) {
  const section = show("provenance"), facts = content.provenance;
  add(section, "p", {}, facts.total);
  add(section, "p", {class: "caption"}, "All runs share what stands first. A report is refused if "
    + "corpus, tokenizer, direction, BLEU's variant or decoding differ between its rows, but for "
    + "what a row is there to vary.");
  const list = add(section, "dl", {class: "fact"});
  for (const [name, value] of facts.shared) {
    add(list, "dt", {}, name);
    add(list, "dd", {}, value);
  }
  addTable(section, "Runs", facts.heads, facts.lines);
}
