// Ranks over the time of day: a lane for each, coloured by what its learner did,
// with generations and faults across.
"use strict";

// Chosen to be told apart by colour-blind people too (Okabe and Ito).
const PHASES = {
  starting: "#999999", stepping: "#56b4e9", inference: "#0072b2", learning: "#009e73", collective: "#e69f00",
  evaluating: "#cc79a7", saving: "#f0e442", finished: "#7a7a7a", joining: "#c8b8e0", suspect: "#ff9e80",
  dead: "#d00000", left: "#bbbbbb",
};

function drawTimeline(into, lanes, marks) {
  const ranks = Object.keys(lanes).filter((rank) => lanes[rank].segments.length > 0).sort((a, b) => a - b);
  into.replaceChildren();
  if (ranks.length === 0) {
    const nothing = document.createElement("p");
    nothing.className = "hint";
    nothing.textContent = "What ranks do is shown from when this dashboard was started, while the run goes on.";
    into.append(nothing);
    return new Set();
  }
  const width = Math.max(320, into.clientWidth || 900), left = 58, right = 12, top = 18, lane = 18;
  const height = top + ranks.length * lane + 24;
  let from = Infinity, to = -Infinity;
  for (const rank of ranks) {
    const segments = lanes[rank].segments;
    from = Math.min(from, segments[0][0]);
    to = Math.max(to, segments[segments.length - 1][1]);
  }
  for (const mark of marks) {
    if (mark.clock > to && mark.clock < to + 60) to = mark.clock;
  }
  if (to - from < 1) to = from + 1;
  const px = (t) => left + (t - from) / (to - from) * (width - left - right);
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Ranks over time: ${ranks.length}` });
  const used = new Set();
  ranks.forEach((rank, i) => {
    const y = top + i * lane;
    picture.append(svg("text", { x: left - 8, y: y + 12, "text-anchor": "end" }, `rank ${rank}`));
    for (const [begin, end, what, generation] of lanes[rank].segments) {
      used.add(what);
      const box = svg("rect", {
        x: px(begin), y: y + 2, width: Math.max(0.8, px(end) - px(begin)), height: lane - 4,
        fill: Object.hasOwn(PHASES, what) ? PHASES[what] : "#888888",
      });
      box.append(svg("title", {}, `rank ${rank}: ${what}, generation ${generation}`));
      picture.append(box);
    }
  });
  for (const { clock, kind, text } of marks) {
    if (clock < from || clock > to) continue;
    const line = svg("line", { class: `mark ${kind}`, x1: px(clock), x2: px(clock), y1: 4, y2: height - 20 });
    line.append(svg("title", {}, text));
    picture.append(line);
    if (kind !== "note") {
      const sign = svg("text", { x: px(clock), y: 12, "text-anchor": "middle" }, kind === "fault" ? "✕" : "G");
      sign.append(svg("title", {}, text));
      picture.append(sign);
    }
  }
  const clocks = ticks(0, to - from, Math.max(2, width / 160)).map((t) => from + t);
  for (const t of clocks) {
    picture.append(svg("text", { x: px(t), y: height - 6, "text-anchor": "middle" }, clockText(t)));
  }
  into.append(picture);
  return used;
}

function clockText(t) {
  return new Date(t * 1000).toLocaleTimeString([], { hour12: false });
}
