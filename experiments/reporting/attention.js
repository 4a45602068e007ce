// Where rows attend in the sentences that were chosen, row beside row.

// The weights of one map, in bytes; all layers and heads.
async function unpack(kind) {
  const packed = Uint8Array.from(atob(kind.weights), letter => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// The map of a layer and a head, or the mean over its heads for -1, as rows of weights.
function mapOf(weights, kind, layer, head) {
  const [height, width] = [kind.rows.length, kind.columns.length], size = height * width;
  const heads = head < 0 ? [...Array(kind.heads).keys()] : [head];
  return kind.rows.map((_, t) => kind.columns.map((_, s) => heads.reduce((sum, h) =>
    sum + weights[(layer * kind.heads + h) * size + t * width + s], 0) / heads.length / 255));
}

function buildMap(kind, layer, head, weights) {
  const z = mapOf(weights, kind, layer, head);
  const longest = labels => 10 + 6.4 * Math.max(...labels.map(label => Math.min(label.length, 12)));
  const ticks = labels => ({tickvals: labels.map((_, i) => i), ticktext: labels.map(label => plain(shorter(label, 12)))});
  return width => {
    const left = longest(kind.rows), top = longest(kind.columns);
    const pitch = Math.max(8, Math.min(18, (width - left - 6) / kind.columns.length));
    const size = Math.min(10.5, pitch + 1);
    return {data: [{
      type: "heatmap", z, zmin: 0, zmax: 1, showscale: false, xgap: 0.5, ygap: 0.5,
      colorscale: [[0, colour("paper")], [1, colour("ours")]], hoverinfo: "text",
      hovertext: z.map((row, t) => row.map((weight, s) =>
        `${plain(kind.rows[t])} → ${plain(kind.columns[s])}: ${(100 * weight).toFixed(1)}%`)),
    }], layout: {
      height: top + 16 * kind.rows.length + 8,
      margin: {l: left, t: top, r: Math.max(4, width - left - pitch * kind.columns.length), b: 6},
      xaxis: axis({...ticks(kind.columns), side: "top", tickangle: -90, tickfont: {size}, showgrid: false, zeroline: false, fixedrange: true}),
      yaxis: axis({...ticks(kind.rows), autorange: "reversed", tickfont: {size}, showgrid: false, zeroline: false, fixedrange: true}),
    }};
  };
}

function addAttention() {
  const {captions, sentences} = readData("attention"), section = byId("attention");
  const state = {number: String(sentences[0].number), kind: "cross", layer: 0, head: -1};
  const controls = add(section, "div", {class: "controls"});
  const reading = add(section, "p", {class: "caption"}), cards = add(section, "div", {class: "cards"});
  const choose = (label, field, options, read = String) =>
    addChoice(controls, label, options, value => { state[field] = read(value); draw(); });
  choose("Sentence", "number", sentences.map(each => [each.number, each.number]));
  choose("Kind", "kind", Object.entries(captions).map(([kind, texts]) => [kind, texts[0]])).value = state.kind;
  const known = sentences.flatMap(each => each.rows.flatMap(row => row.kinds || []));
  const numbers = (field, label) => Array.from(
    {length: Math.max(1, ...known.map(kind => kind[field]))}, (_, i) => [i, `${label} ${i + 1}`]);
  choose("Layer", "layer", numbers("layers", "layer"), Number);
  choose("Head", "head", [[-1, "mean over heads"], ...numbers("heads", "head")], Number);
  const unpacked = new Map();
  let drawing = 0;

  async function drawCard(card, row, id) {
    const kind = row.kinds && row.kinds.find(each => each.kind === state.kind);
    const few = field => `it has ${kind[field]} ${field.slice(0, kind[field] > 1 ? undefined : -1)}`;
    const lacks = !row.kinds ? row.why : !kind ? "no such attention"
      : state.layer >= kind.layers ? few("layers") : state.head >= kind.heads ? few("heads") : "";
    if (lacks) return add(card, "p", {class: "caption"}, lacks);
    add(card, "div", {class: "figure", id});
    if (!unpacked.has(kind)) unpacked.set(kind, unpack(kind));
    const [{layer, head}, weights] = [{...state}, await unpacked.get(kind)];
    const name = ["attention", state.number, row.name.replace(/[^\w.]+/g, "-"), state.kind, layer + 1, head < 0 ? "mean" : head + 1];
    if (card.isConnected) addFigure(id, name.join("-"), buildMap(kind, layer, head, weights));
  }

  function draw() {
    reading.textContent = captions[state.kind][1] + "; the target is each row's own translation, of its first seed.";
    cards.replaceChildren();
    redraw(() => false);  // forgets figures that are gone
    drawing++;
    sentences.find(each => String(each.number) === state.number).rows.forEach((row, place) => {
      const card = add(cards, "div", {class: "card"});
      add(card, "h3", {}, labelOf(row.name));
      drawCard(card, row, `map-${drawing}-${place}`);
    });
  }
  draw();
}

if (content.attended) whenNear("attention", addAttention);
