"use strict";
const plots = [...document.querySelectorAll(".plot")];
for (const plot of plots) {
  const figure = JSON.parse(plot.nextElementSibling.textContent);
  Plotly.newPlot(plot, figure.data, figure.layout, {responsive: true, displaylogo: false,
    displayModeBar: false});
}
addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details")) details.open = true;
  for (const plot of plots) Plotly.relayout(plot, {autosize: false, width: 680});
});
addEventListener("afterprint", () => {
  for (const plot of plots) Plotly.relayout(plot, {autosize: true, width: null});
});
