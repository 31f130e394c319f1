// Curves as SVG, drawn anew whenever there is something new and they are in sight.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 460, HEIGHT = 220, LEFT = 56, RIGHT = 24, TOP = 8, BOTTOM = 26;

function svg(name, attributes, text) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes || {})) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

// "12.3k", "4.56e-7", "-0.25".
function brief(value) {
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 1e15 || size < 1e-4) return value.toExponential(2);
  for (const [unit, letter] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (size >= unit) return String(Number((value / unit).toPrecision(4))) + letter;
  }
  return String(Number(value.toPrecision(4)));
}

function seconds(value) {
  if (value < 120) return brief(value) + " s";
  return value < 7200 ? brief(value / 60) + " min" : brief(value / 3600) + " h";
}

// About `count` round numbers from `low` to `high`.
function ticks(low, high, count) {
  if (!(high > low)) return [low];
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
  const first = Math.ceil(low / step);
  const found = [];
  // Counted: where the range is tiny beside its values, adding a step to them may change nothing.
  for (let i = 0; i <= count && (first + i) * step <= high + step * 1e-9; ++i) found.push((first + i) * step);
  return found;
}

// Exponential moving average, unbiased at its beginning as TensorBoard's is.
function smoothed(values, weight) {
  if (!weight) return values;
  let last = 0, debias = 0;
  return values.map((value) => {
    last = last * weight + (1 - weight) * value;
    debias = debias * weight + (1 - weight);
    return last / debias;
  });
}

// Of a curve on straight lines; its ends' values beyond them.
function valueAt(xs, ys, x) {
  let low = 0, high = xs.length - 1;
  if (x <= xs[0]) return ys[0];
  if (x >= xs[high]) return ys[high];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (xs[middle] <= x) low = middle; else high = middle;
  }
  const span = xs[high] - xs[low];
  return span > 0 ? ys[low] + (ys[high] - ys[low]) * (x - xs[low]) / span : ys[high];
}

// The mean of curves where all of them have begun, up to where the last one ends.
function meanCurve(curves) {
  const first = Math.max(...curves.map((c) => c.xs[0]));
  const last = Math.max(...curves.map((c) => c.xs[c.xs.length - 1]));
  const xs = [], ys = [];
  for (let i = 0; i < 160; ++i) {
    const x = first + (last - first) * i / 159;
    xs.push(x);
    ys.push(curves.reduce((sum, c) => sum + valueAt(c.xs, c.ys, x), 0) / curves.length);
  }
  return { xs, ys };
}

// One metric: figure > figcaption, svg, readout.
class Chart {
  constructor(metric) {
    this.metric = metric;
    this.curves = [];
    this.marks = [];
    this.cursor = null;
    this.figure = document.createElement("figure");
    this.figure.dataset.metric = metric;
    const caption = document.createElement("figcaption");
    this.name = document.createElement("b");
    this.name.textContent = metric;
    this.newest = document.createElement("span");
    caption.append(this.name, this.newest);
    this.svg = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, tabindex: 0, role: "img", "aria-label": metric });
    this.readout = document.createElement("div");
    this.readout.className = "readout";
    this.readout.setAttribute("aria-live", "polite");
    this.figure.append(caption, this.svg, this.readout);
    this.svg.addEventListener("keydown", (event) => this.onKey(event));
    this.svg.addEventListener("pointermove", (event) => this.onPointer(event));
    this.svg.addEventListener("pointerleave", () => this.moveTo(null));
    this.svg.addEventListener("blur", () => this.moveTo(null));
  }

  // curves: [{name, color, xs, ys, seed}]; marks: [{x, kind, text}].
  draw(curves, marks, overTime) {
    this.curves = curves.filter((c) => c.xs.length > 0);
    this.marks = marks;
    this.overTime = overTime;
    this.svg.replaceChildren();
    if (this.curves.length === 0) {
      this.newest.textContent = "";
      this.svg.append(svg("text", { x: LEFT, y: HEIGHT / 2 }, "nothing yet"));
      return;
    }
    let low = Infinity, high = -Infinity;
    this.x0 = Infinity;
    this.x1 = -Infinity;
    for (const { xs, ys } of this.curves) {
      for (let i = 0; i < xs.length; ++i) {
        if (xs[i] < this.x0) this.x0 = xs[i];
        if (xs[i] > this.x1) this.x1 = xs[i];
        if (ys[i] < low) low = ys[i];
        if (ys[i] > high) high = ys[i];
      }
    }
    if (/_fraction$/.test(this.metric)) { low = Math.min(0, low); high = Math.max(1, high); }
    // A constant is one but for rounding, once it is smoothed or a mean.
    if (high - low <= 1e-9 * Math.max(Math.abs(low), Math.abs(high))) {
      low -= Math.abs(low) / 10 || 1;
      high += Math.abs(high) / 10 || 1;
    }
    const pad = (high - low) * 0.04;
    this.y0 = low - pad;
    this.y1 = high + pad;
    this.drawAxes();
    this.drawMarks();
    for (const curve of this.curves) this.drawCurve(curve);
    const shown = this.curves.filter((c) => !c.seed);
    this.newest.textContent = shown.length === 1 ? brief(shown[0].ys[shown[0].ys.length - 1]) : "";
    this.line = svg("line", { class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
    this.svg.append(this.line);
    this.moveTo(this.cursor);
  }

  px(x) { return LEFT + (this.x1 > this.x0 ? (x - this.x0) / (this.x1 - this.x0) : 0.5) * (WIDTH - LEFT - RIGHT); }
  py(y) { return HEIGHT - BOTTOM - (y - this.y0) / (this.y1 - this.y0) * (HEIGHT - TOP - BOTTOM); }

  drawAxes() {
    for (const y of ticks(this.y0, this.y1, 4)) {
      this.svg.append(svg("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: this.py(y), y2: this.py(y) }),
        svg("text", { x: LEFT - 6, y: this.py(y) + 4, "text-anchor": "end" }, brief(y)));
    }
    for (const x of ticks(this.x0, this.x1, 4)) {
      this.svg.append(svg("text", { x: this.px(x), y: HEIGHT - 8, "text-anchor": "middle" }, this.overTime ? seconds(x) : brief(x)));
    }
  }

  drawMarks() {
    for (const { x, kind, text } of this.marks) {
      if (x < this.x0 || x > this.x1) continue;
      const line = svg("line", { class: `mark ${kind}`, x1: this.px(x), x2: this.px(x), y1: TOP, y2: HEIGHT - BOTTOM });
      line.append(svg("title", {}, text));
      this.svg.append(line);
    }
  }

  drawCurve({ xs, ys, color, seed, name }) {
    const points = xs.map((x, i) => `${this.px(x).toFixed(1)},${this.py(ys[i]).toFixed(1)}`);
    if (points.length === 1) {
      const [x, y] = points[0].split(",");
      this.svg.append(svg("circle", { class: "curve", cx: x, cy: y, r: 2.5, stroke: color }));
      return;
    }
    const line = svg("polyline", { class: seed ? "curve seed" : "curve", points: points.join(" "), stroke: color });
    line.append(svg("title", {}, name));
    this.svg.append(line);
  }

  // ---- Reading values

  moveTo(x) {
    this.cursor = x;
    if (!this.line) return;
    if (x === null || this.curves.length === 0) {
      this.line.setAttribute("visibility", "hidden");
      this.readout.textContent = "";
      return;
    }
    x = Math.min(this.x1, Math.max(this.x0, x));
    this.cursor = x;
    this.line.setAttribute("x1", this.px(x));
    this.line.setAttribute("x2", this.px(x));
    this.line.setAttribute("visibility", "visible");
    const values = this.curves.filter((c) => !c.seed).slice(0, 8).map((c) => `${c.name}: ${brief(valueAt(c.xs, c.ys, x))}`);
    const near = this.marks.filter((m) => Math.abs(this.px(m.x) - this.px(x)) < 4).slice(0, 2).map((m) => m.text);
    this.readout.textContent = [`at ${this.overTime ? seconds(x) : brief(x)}`, ...values, ...near].join("; ");
  }

  onPointer(event) {
    const box = this.svg.getBoundingClientRect();
    const at = (event.clientX - box.left) / box.width * WIDTH;
    this.moveTo(this.x0 + (at - LEFT) / (WIDTH - LEFT - RIGHT) * (this.x1 - this.x0));
  }

  onKey(event) {
    const step = (this.x1 - this.x0) / (event.shiftKey ? 10 : 100);
    const now = this.cursor === null ? this.x1 : this.cursor;
    const to = { ArrowLeft: now - step, ArrowRight: now + step, Home: this.x0, End: this.x1 }[event.key];
    if (to === undefined) {
      if (event.key === "Escape") this.moveTo(null);
      return;
    }
    event.preventDefault();
    this.moveTo(to);
  }
}
