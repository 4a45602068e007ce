"""Attention as a page that needs no network: one file, read by any browser.

All heads are shown small; of the chosen one, as in the paper's appendix, lines between two columns
of tokens, whose strength is the weight.
"""

import html as html_lib
import json
import string
from collections.abc import Sequence
from typing import Any

import numpy as np

from transformer_jax.evaluation import attention_weights

_TEMPLATE = string.Template("""<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<title>Attention</title>
<style>
  body { font: 15px/1.5 sans-serif; margin: 2em; color: #222; }
  code { background: #eef3fa; border-radius: 3px; padding: 0 3px; margin-right: 2px; }
  button { font: inherit; background: none; border: 1px solid #ccc; padding: 2px; cursor: pointer; }
  button[aria-pressed=true] { border-color: #08306b; box-shadow: 0 0 0 1px #08306b; }
  #kinds button { padding: 4px 12px; }
  #heads td { padding: 2px; }
  #heads th { font-weight: normal; color: #666; }
  #heads canvas { width: 64px; height: 64px; image-rendering: pixelated; display: block; }
  svg text { font-size: 13px; }
  svg [tabindex] { outline: none; }
  svg [tabindex]:focus text { font-weight: bold; }
</style>
<h1>Attention</h1>
$sentences
<p id="kinds"></p>
<p id="reading"></p>
<table id="heads"></table>
<h2 id="name"></h2>
<p>Point at a token, or go to it with the tab key, to see its lines alone.</p>
<div id="chosen"></div>
<script type="application/json" id="data">$data</script>
<script>
"use strict";
const kinds = JSON.parse(document.getElementById("data").textContent);
const BLUE = "#08306b", PITCH = 20, LETTER = 8;
let kind = kinds[0], layer = 0, head = 0;

function add(parent, tag, attributes, text) {
  const space = tag === "svg" ? "http://www.w3.org/2000/svg" : parent.namespaceURI;
  const element = document.createElementNS(space, tag);
  for (const name in attributes || {}) element.setAttribute(name, attributes[name]);
  if (text !== undefined) element.textContent = text;
  return parent.appendChild(element);
}

function addButton(parent, pressed, choose, text) {
  const button = add(parent, "button", {"aria-pressed": pressed}, text);
  button.onclick = () => { choose(); draw(); };
  return button;
}

const width = labels => LETTER * Math.max(...labels.map(label => label.length)) + 10;

// Two columns of tokens, and a line for each weight, as strong as the weight.
function drawLines(parent, weights) {
  const left = width(kind.rows), right = left + 220;
  const svg = add(parent, "svg", {
    width: right + width(kind.columns),
    height: PITCH * Math.max(kind.rows.length, kind.columns.length) + 10,
  });
  const y = i => PITCH * (i + 0.5) + 5;
  const all = weights.map((row, t) => row.map((weight, s) => {
    const line = add(svg, "line", {
      x1: left, y1: y(t), x2: right, y2: y(s), stroke: BLUE, "stroke-width": 1 + weight / 400,
    });
    const percent = (weight / 10).toFixed(1) + "%";
    add(line, "title", {}, kind.rows[t] + " → " + kind.columns[s] + ": " + percent);
    return line;
  }));
  const marks = [[], []];
  // Lines and marks of one token of a side, 0 or 1; without one, all lines.
  function show(side, token) {
    const only = side !== undefined;
    const fade = (element, opacity) => element.setAttribute("opacity", opacity);
    weights.forEach((row, t) => row.forEach((weight, s) =>
      fade(all[t][s], only && token !== [t, s][side] ? 0 : weight / 1000)));
    marks.forEach((ofSide, other) => ofSide.forEach((mark, i) => fade(mark, !only ? 0
      : other === side ? Number(i === token) / 4
        : (side ? weights[i][token] : weights[token][i]) / 2500)));
  }
  [kind.rows, kind.columns].forEach((labels, side) => labels.forEach((label, i) => {
    const group = add(svg, "g", {tabindex: 0}), x = side ? right : 0;
    marks[side].push(add(group, "rect", {
      x, y: y(i) - PITCH / 2, width: width(labels), height: PITCH, fill: BLUE,
    }));
    add(group, "text", {
      x: side ? right + 5 : left - 5, y: y(i) + 4, "text-anchor": side ? "start" : "end",
    }, label);
    group.onmouseenter = group.onfocus = () => show(side, i);
    group.onmouseleave = group.onblur = () => show();
  }));
  show();
}

function drawSmall(parent, weights) {
  const canvas = add(parent, "canvas", {width: weights[0].length, height: weights.length});
  const context = canvas.getContext("2d");
  context.fillStyle = BLUE;
  weights.forEach((row, t) => row.forEach((weight, s) => {
    context.globalAlpha = weight / 1000;
    context.fillRect(s, t, 1, 1);
  }));
}

function draw() {
  const [choices, reading, table, name, chosen] = ["kinds", "reading", "heads", "name", "chosen"]
    .map(id => document.getElementById(id));
  for (const element of [choices, table, chosen]) element.replaceChildren();
  for (const one of kinds) {
    const choose = () => { [kind, layer, head] = [one, 0, 0]; };
    addButton(choices, one === kind, choose, one.title);
  }
  reading.textContent = kind.reading;
  const top = add(table, "tr");
  add(top, "th");
  kind.weights[0].forEach((_, h) => add(top, "th", {}, "head " + (h + 1)));
  kind.weights.forEach((heads, n) => {
    const line = add(table, "tr");
    add(line, "th", {}, "layer " + (n + 1));
    heads.forEach((weights, h) => drawSmall(addButton(
      add(line, "td"), n === layer && h === head, () => { [layer, head] = [n, h]; }), weights));
  });
  name.textContent = kind.title + ": layer " + (layer + 1) + ", head " + (head + 1);
  drawLines(chosen, kind.weights[layer][head]);
}

draw();
</script>
</html>
""")


def html(all_maps: Sequence[attention_weights.Maps]) -> str:
    """The page of a sentence pair, with a button for each kind; weights are in thousandths."""
    kinds = []
    for maps in all_maps:
        said = dict(zip(("title", "reading"), attention_weights.CAPTIONS[maps.kind], strict=True))
        weights = np.rint(1000 * maps.weights).astype(int).tolist()
        kinds.append({**said, "rows": maps.rows, "columns": maps.columns, "weights": weights})
    sentences = {tuple(maps.rows): None for maps in all_maps}  # each once, in order
    paragraphs = [
        "<p>" + "".join(f"<code>{html_lib.escape(token)}</code>" for token in tokens) + "</p>"
        for tokens in sentences
    ]
    return _TEMPLATE.substitute(sentences="\n".join(paragraphs), data=script_json(kinds))


def script_json(value: Any) -> str:
    """JSON in which nothing ends the script element that holds it: "<" may be an escape."""
    written = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return written.replace("<", "\\u003c")
