"use strict";
const options = {responsive: true, displaylogo: false, displayModeBar: false};
const dataOf = element => JSON.parse(element.textContent);
for (const plot of document.querySelectorAll(".panel .plot")) {
  const figure = dataOf(plot.nextElementSibling);
  Plotly.newPlot(plot, figure.data, figure.layout, options);
}

// Learning curves: the checked rows, whole or the last half, absolute or minus base.
const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c8c8c"];
const LINE = 17; // pixels between the labels at the ends of lines
const WIDE = 700; // pixels from which these labels say what the rows change
const curvesPlot = document.getElementById("curves-plot");
if (curvesPlot) {
  const {title, base, rows} = dataOf(curvesPlot.nextElementSibling);
  const boxes = [...document.querySelectorAll("fieldset input")];
  const buttons = ["half", "difference"].map(id => document.getElementById(id));
  const baseline = rows.find(({row}) => row === base);
  const means = new Map(baseline?.step.map((step, index) => [step, baseline.mean[index]]));
  const draw = () => {
    const [half, difference] = buttons.map(button => button.ariaPressed === "true");
    const end = Math.max(...(baseline ? [baseline] : rows).map(({step}) => step.at(-1)));
    const shown = boxes.filter(box => box.checked).map(box => rows[box.value]);
    const last = Math.max(end, ...shown.map(({step}) => step.at(-1)));
    const traces = [], ends = [], values = [];
    shown.forEach((row, number) => {
      const kept = row.step.map((_, index) => index).filter(index =>
        (!half || row.step[index] >= end / 2) && (!difference || means.has(row.step[index])));
      if (!kept.length) return;
      const x = kept.map(index => row.step[index]);
      const [mean, low, high] = ["mean", "min", "max"].map(name => kept.map(index =>
        row[name][index] - (difference ? means.get(row.step[index]) : 0)));
      const color = COLOURS[number % COLOURS.length];
      traces.push({x: [...x, ...[...x].reverse()], y: [...high, ...[...low].reverse()],
        mode: "none", fill: "toself", fillcolor: color + "33", hoverinfo: "skip"});
      traces.push({x, y: mean, mode: "lines", name: row.row, line: {color, width: 2,
        dash: number < COLOURS.length ? "solid" : "dash"},
        hovertemplate: "%{fullData.name}<br>step %{x}: %{y:.3f}<extra></extra>"});
      // Early values would hide the rest on a linear axis.
      values.push(...[...low, ...high].filter((_, index) => x[index % x.length] >= end / 4));
      ends.push({y: mean.at(-1), text: curvesPlot.clientWidth < WIDE ? row.row : row.name, color});
    });
    const [bottom, top] = values.length ? [Math.min(...values), Math.max(...values)] : [0, 1];
    const margin = 0.05 * (top - bottom || 1), height = 420;
    const range = [bottom - margin, top + margin];
    const gap = LINE * (range[1] - range[0]) / (height - 70);
    ends.sort((one, other) => one.y - other.y);
    ends.forEach((each, index) => {
      each.place = Math.max(each.y, index ? ends[index - 1].place + gap : -Infinity);
    });
    ends.reverse().forEach((each, index) => {
      each.place = Math.min(each.place, index ? ends[index - 1].place - gap : range[1]);
    });
    const right = 16 + 7.6 * Math.max(0, ...ends.map(({text}) => text.length));
    Plotly.react(curvesPlot, traces, {height, showlegend: false, dragmode: false,
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: {size: 13, family: "system-ui, sans-serif"}, hoverlabel: {bgcolor: "#333333"},
      margin: {l: 12, r: right, t: 12, b: 8},
      xaxis: {title: {text: "step"}, range: [half ? end / 2 : 0, last], automargin: true,
        zeroline: false, nticks: 6},
      yaxis: {title: {text: difference ? title + " − base" : title}, range, automargin: true,
        zeroline: difference},
      annotations: ends.map(({place, text, color}) => ({xref: "paper", x: 1, xanchor: "left",
        xshift: 6, y: place, yanchor: "middle", text: text.replace(/[&<]/g, escape =>
          ({"&": "&amp;", "<": "&lt;"})[escape]), showarrow: false,
        bordercolor: color, borderwidth: 1.5, borderpad: 1}))}, options);
  };
  for (const box of boxes) box.addEventListener("change", draw);
  for (const button of buttons) {
    button.addEventListener("click", () => {
      button.ariaPressed = String(button.ariaPressed !== "true");
      draw();
    });
  }
  draw();
}

const select = document.getElementById("row");
select?.addEventListener("change", () => {
  const outputs = dataOf(document.getElementById("outputs"))[select.value];
  document.querySelectorAll(".chosen").forEach((term, number) => {
    term.textContent = select.value;
    term.nextElementSibling.textContent = outputs[number];
  });
});

// A link to a folded part opens it.
const unfold = () => {
  const part = document.getElementById(location.hash.slice(1));
  if (part?.matches("details")) part.open = true;
};
addEventListener("hashchange", unfold);
unfold();

const plots = [...document.querySelectorAll(".plot")];
addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details")) details.open = true;
  for (const plot of plots) {
    Plotly.relayout(plot, {autosize: false, width: plot.closest(".multiples") ? 220 :
      plot.closest(".panels") ? 335 : 680});
  }
});
addEventListener("afterprint", () => {
  for (const plot of plots) Plotly.relayout(plot, {autosize: true, width: null});
});
