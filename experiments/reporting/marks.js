// A figure's marks for who has no mouse: buttons that lie over them, and the arrow keys go between.

const STEPS = {ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1};

/* Adds them to a drawn figure. A mark has a `trace` and a `point`, its place in the figure's data, a
   `label`, what to do when it is `press`ed, and `attributes` of its button. */
function addMarks(plot, label, marks) {
  const bar = add(plot.parentNode, "div", {class: "marks", role: "toolbar", "aria-label": label});
  plot.after(bar);
  const buttons = marks.map(({trace, point, label, press, attributes}, i) => {
    const button = addButton(bar, "", () => press(button), {
      "aria-label": label, tabindex: i ? -1 : 0, ...attributes,
    });
    // What pointing at a mark shows.
    button.addEventListener("focus", () => Plotly.Fx.hover(plot, [{curveNumber: trace, pointNumber: point}]));
    button.addEventListener("blur", () => Plotly.Fx.unhover(plot));
    return button;
  });
  bar.addEventListener("keydown", event => {
    const from = buttons.indexOf(document.activeElement), to = buttons[from + STEPS[event.key]];
    if (!STEPS[event.key]) return;
    event.preventDefault();
    if (!to) return;
    buttons[from].tabIndex = -1;
    to.tabIndex = 0;
    to.focus();
  });
  const lay = () => {
    const {margin, width, height, xaxis, yaxis} = plot.layout;
    const along = ({domain = [0, 1], range: [from, to]}, value) => domain[0] + (domain[1] - domain[0]) * (value - from) / (to - from);
    marks.forEach(({trace, point}, i) => {
      const {x, y} = plot.data[trace];
      buttons[i].style.left = `${margin.l + (width - margin.l - margin.r) * along(xaxis, x[point])}px`;
      buttons[i].style.top = `${margin.t + (height - margin.t - margin.b) * (1 - along(yaxis, y[point]))}px`;
    });
  };
  plot.on("plotly_afterplot", lay);
  lay();
}
