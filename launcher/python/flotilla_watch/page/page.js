// The page: what the server's events say, as tables, charts and text. Whatever
// comes from a run goes into the document as text, never as HTML.
"use strict";

// The same ten, dark enough for a light page and light enough for a dark one.
const COLORS = {
  light: ["#0072b2", "#d55e00", "#009e73", "#b8548f", "#8a6d00", "#2f8fc4", "#7f52b5", "#b97a00", "#8c564b", "#6a6a6a"],
  dark: ["#4da3ff", "#ff8a3d", "#2fc78f", "#e695c5", "#d6b84a", "#8fd3ff", "#bf9cf0", "#ffc04d", "#d19c88", "#b0b0b0"],
};
const GROUPS = ["charts", "eval", "follow", "losses", "perf", "policy", "rollout", "replay", "env", "sync", "system"];
const OPEN = new Set(["charts", "eval", "follow", "losses", "perf"]);
const FIRST = ["charts/episodic_return", "charts/episodic_length", "charts/SPS", "eval/mean_return", "follow/mean_return"];
const MOST_CHART_MARKS = 80;

const runs = new Map();  // by id
const charts = new Map();  // by metric
let table = [];
let environment = "";
let events = null;
let drawing = false;

const $ = (id) => document.getElementById(id);

function make(name, text, className) {
  const element = document.createElement(name);
  if (text !== undefined) element.textContent = text;
  if (className) element.className = className;
  return element;
}

function runOf(id) {
  if (!runs.has(id)) {
    runs.set(id, { id, info: {}, series: new Map(), marks: [], status: null, at: 0, lanes: {}, files: [], groups: [], shown: true });
  }
  return runs.get(id);
}

function differences(run) {
  return Object.entries(run.info.differs || {}).map(([path, value]) => `${path}=${value}`).join(" ");
}

// The runs that are there: others may have been.
function listed() {
  return table.map((entry) => runOf(entry.id));
}

// Runs of one configuration share a colour, whatever their seeds.
function configurationOf(run) {
  return `${run.info.algorithm || ""} ${differences(run)}`.trim() || run.info.run || "";
}

function colorOf(configuration) {
  const known = [...new Set(listed().map(configurationOf))];
  const colors = COLORS[document.documentElement.dataset.theme];
  return colors[Math.max(0, known.indexOf(configuration)) % colors.length];
}

function shortName(run) {
  const name = String(run.info.run || "");
  return run.info.remote ? name : name.split("/").filter(Boolean).slice(-2).join("/");
}

function count(value) {
  return value === undefined || value === null || value === "" ? "" : Number(value).toLocaleString("en");
}

function rate(value) {
  return value === undefined || value === null ? "" : Number(value).toLocaleString("en", { maximumFractionDigits: 1 });
}

// ---- From the server

function connect() {
  if (events) events.close();
  const groups = [...document.querySelectorAll("details[open]")].map((d) => d.dataset.group);
  events = new EventSource("/events?groups=" + encodeURIComponent([...new Set([...OPEN, ...groups])].join(",")));
  events.onopen = () => setLink("live");
  events.onerror = () => {
    setLink("lost");
    // It tries again by itself, but not where it was refused.
    if (events.readyState === EventSource.CLOSED) setTimeout(connect, 5000);
  };
  const on = (name, take) => events.addEventListener(name, (event) => { take(JSON.parse(event.data)); draw(); });
  on("runs", (data) => {
    table = data.runs;
    environment = data.env_id || "";
    for (const id of runs.keys()) if (!data.known.includes(id)) runs.delete(id);  // it would be kept for ever
    for (const entry of table) runOf(entry.id).info = entry;
    $("notes").replaceChildren(...data.notes.slice(0, 20).map((note) => make("li", note)));
    fillRunChoices();
    loadConfig();
  });
  on("points", takePoints);
  on("marks", (data) => {
    const run = runOf(data.run);
    const marks = data.marks.map(([clock, step, time, kind, text, rank]) => ({ clock, step, time, kind, text, rank }));
    run.marks = (data.anew ? [] : run.marks).concat(marks).slice(-400);
  });
  on("status", (data) => Object.assign(runOf(data.run), { status: data.status, at: data.at }));
  on("lanes", takeLanes);
  on("logs", (data) => {
    runOf(data.run).files = data.files;
    if ($("log-run").value === data.run) fillFileChoices();
    if ($("follow").checked && $("log-run").value === data.run) loadLog();
  });
}

function setLink(state) {
  $("link").textContent = state;
  $("link").className = `badge ${state}`;
}

function takePoints(data) {
  const run = runOf(data.run);
  if (data.anew) run.series.clear();
  run.groups = data.groups;
  for (const [metric, { from, points }] of Object.entries(data.series)) {
    const series = from === 0 ? { s: [], t: [], v: [] } : run.series.get(metric);
    if (!series || series.s.length !== from) return reconnectSoon();
    series.s.push(...points[0]);
    series.t.push(...points[1]);
    series.v.push(...points[2]);
    run.series.set(metric, series);
    if (metric === "eval/mean_return") listGamesSoon(run.id);  // its games are kept
  }
}

// A gap: everything is asked for again.
let reconnecting = null;
function reconnectSoon() {
  if (reconnecting === null) reconnecting = setTimeout(() => { reconnecting = null; connect(); }, 500);
}

function takeLanes(data) {
  const run = runOf(data.run);
  for (const [rank, [first, segments]] of Object.entries(data.lanes)) {
    const lane = run.lanes[rank] || (run.lanes[rank] = { first, segments: [] });
    if (first > lane.first + lane.segments.length || first < lane.first) {
      run.lanes[rank] = { first, segments };
    } else {
      lane.segments.splice(first - lane.first, Infinity, ...segments);
      const old = Math.max(0, lane.segments.length - data.most);
      lane.segments.splice(0, old);
      lane.first += old;
    }
  }
}

// ---- Drawing, a few times a second at most

function draw() {
  if (drawing) return;
  drawing = true;
  setTimeout(() => requestAnimationFrame(() => {
    drawing = false;
    drawTitle();
    drawRuns();
    drawGroups();
    drawRanks();
    drawEvaluations();
    drawDifferences();
  }), 150);
}

function drawTitle() {
  const name = table.length === 1 ? shortName(runOf(table[0].id)) : `${table.length} runs`;
  const title = environment ? `${name}, ${environment}` : name;
  $("title").textContent = title;
  document.title = `${title}, Flotilla`;
}

function rowOf(cells) {
  const row = make("tr");
  for (const cell of cells) {
    if (cell instanceof Node) {
      const td = make("td");
      td.append(cell);
      row.append(td);
    } else {
      const number = typeof cell === "object";
      row.append(make("td", number ? cell.number : cell, number ? "number" : ""));
    }
  }
  return row;
}

function headOf(names) {
  const row = make("tr");
  for (const name of names) {
    const th = make("th", name.replace("#", ""), name.startsWith("#") ? "number" : "");
    th.scope = "col";
    row.append(th);
  }
  return row;
}

function lastOf(run, metric) {
  const series = run.series.get(metric);
  return series && series.v.length ? series.v[series.v.length - 1] : null;
}

function stateOf(run) {
  if (run.status && run.info.status !== "running" && !run.status.state) return run.info.status;
  return run.info.status || "";
}

function drawRuns() {
  const focused = document.activeElement && document.activeElement.dataset.run;
  const rows = [headOf(["run", "status", "#seed", "#steps", "#return", "#evaluation", "#steps/s", "differs by"])];
  for (const entry of table) {
    const run = runOf(entry.id);
    const label = make("label");
    const box = make("input");
    box.type = "checkbox";
    box.checked = run.shown;
    box.dataset.run = run.id;
    box.addEventListener("change", () => { run.shown = box.checked; draw(); });
    const swatch = make("span", undefined, "swatch");
    swatch.style.background = colorOf(configurationOf(run));
    label.append(box, " ", swatch, String(entry.run));
    const status = run.status || {};
    const going = entry.status === "running";
    const returned = going && run.status ? lastOf(run, "charts/episodic_return") ?? status.mean_return : entry.mean_return ?? lastOf(run, "charts/episodic_return");
    const evaluated = lastOf(run, "eval/mean_return") ?? entry.eval_mean_return;
    rows.push(rowOf([
      label, make("span", stateOf(run), `badge ${["running", "solved", "completed", "failed", "unfinished"].includes(entry.status) ? entry.status : ""}`),
      { number: entry.seed ?? "" }, { number: count(going && run.status ? status.global_step : entry.global_steps) },
      { number: rate(returned) }, { number: rate(evaluated) }, { number: going && run.status ? rate(status.steps_per_second) : "" },
      differences(run),
    ]));
  }
  $("run-table").replaceChildren(...rows);
  if (focused) document.querySelector(`input[data-run="${CSS.escape(focused)}"]`)?.focus();
}

function groupElement(group) {
  let details = document.querySelector(`details[data-group="${CSS.escape(group)}"]`);
  if (details) return details;
  details = make("details");
  details.dataset.group = group;
  details.open = OPEN.has(group);
  details.append(make("summary", group), make("div", undefined, "charts"));
  details.addEventListener("toggle", () => {
    if (details.open && !OPEN.has(group) && !details.dataset.asked) {
      details.dataset.asked = "yes";
      connect();
    }
    draw();
  });
  const rank = (name) => (GROUPS.includes(name) ? GROUPS.indexOf(name) : GROUPS.length);
  const after = [...$("groups").children].find((other) => rank(other.dataset.group) > rank(group));
  $("groups").insertBefore(details, after || null);
  return details;
}

const inSight = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    const chart = charts.get(entry.target.dataset.metric);
    chart.visible = entry.isIntersecting;
    if (chart.visible) drawChart(chart);
  }
}, { rootMargin: "300px" });

// What is looked at first comes first, and the rest by name.
function comesBefore(a, b) {
  const rank = (metric) => (FIRST.includes(metric) ? FIRST.indexOf(metric) : FIRST.length);
  return rank(a) !== rank(b) ? rank(a) < rank(b) : a < b;
}

function drawGroups() {
  const shown = listed().filter((run) => run.shown);
  const find = $("find").value.trim().toLowerCase();
  for (const group of new Set(shown.flatMap((run) => run.groups))) groupElement(group);
  const metrics = [...new Set(shown.flatMap((run) => [...run.series.keys()]))].sort();
  for (const metric of metrics) {
    if (charts.has(metric)) continue;
    const chart = new Chart(metric);
    charts.set(metric, chart);
    const into = groupElement(metric.split("/")[0]).querySelector(".charts");
    const after = [...into.children].find((other) => comesBefore(metric, other.dataset.metric));
    into.insertBefore(chart.figure, after || null);
    inSight.observe(chart.figure);
  }
  for (const chart of charts.values()) {
    const has = shown.some((run) => run.series.has(chart.metric));
    chart.figure.hidden = !has || (find !== "" && !chart.metric.toLowerCase().includes(find));
    if (chart.visible && !chart.figure.hidden) drawChart(chart);
  }
  for (const details of $("groups").children) {
    const figures = [...details.querySelectorAll("figure")];
    details.hidden = find !== "" && figures.every((figure) => figure.hidden) && figures.length > 0;
  }
}

function drawChart(chart) {
  const overTime = $("x").value === "time";
  const weight = Number($("smooth").value);
  const byConfiguration = new Map();
  const marks = [];
  for (const run of listed()) {
    const series = run.series.get(chart.metric);
    if (!run.shown || !series || series.v.length === 0) continue;
    const configuration = configurationOf(run);
    const curve = {
      name: shortName(run), color: colorOf(configuration), xs: overTime ? series.t : series.s, ys: smoothed(series.v, weight),
    };
    if (!byConfiguration.has(configuration)) byConfiguration.set(configuration, []);
    byConfiguration.get(configuration).push(curve);
    if (!$("show-marks").checked) continue;
    for (const mark of run.marks.slice(-MOST_CHART_MARKS)) {
      if (mark.kind === "note") continue;
      marks.push({ x: overTime ? mark.time : mark.step, kind: mark.kind, text: table.length > 1 ? `${shortName(run)}: ${mark.text}` : mark.text });
    }
  }
  const curves = [];
  for (const [configuration, members] of byConfiguration) {
    const several = members.length > 1 && $("mean").checked;
    for (const member of members) curves.push({ ...member, seed: several });
    if (several) {
      curves.push({ name: `${configuration} (mean of ${members.length})`, color: members[0].color, seed: false, ...meanCurve(members) });
    }
  }
  chart.draw(curves, marks, overTime);
}

// ---- Ranks

function fact(name, value) {
  const pair = make("div");
  pair.append(make("dt", name), make("dd", value));
  return pair;
}

let eventsShown = "";
function drawRanks() {
  const run = runs.get($("rank-run").value);
  if (!run) return;
  const status = run.status;
  const facts = [fact("status", stateOf(run) || "unknown")];
  if (status) {
    facts.push(fact("state", String(status.state || "").toLowerCase()), fact("generation", String(status.generation ?? "")),
      fact("world", String(status.world_size ?? "")), fact("step", count(status.global_step)), fact("update", count(status.update)),
      fact("steps/s", rate(status.steps_per_second)), fact("learners replaced", String(status.learner_restarts ?? 0)),
      fact("env workers restarted", String(status.env_worker_restarts ?? 0)));
    if (status.waiting_for) facts.push(fact("waiting for", String(status.waiting_for)));
    if (status.started_over) facts.push(fact("started over", String(status.started_over)));
  }
  $("facts").replaceChildren(...facts);
  const used = drawTimeline($("timeline"), run.lanes, run.marks);
  $("legend").replaceChildren(...[...used].map((what) => {
    const item = make("li");
    const swatch = make("span", undefined, "swatch");
    swatch.style.background = Object.hasOwn(PHASES, what) ? PHASES[what] : "#888888";
    item.append(swatch, what);
    return item;
  }));
  drawLearners(status);
  const newest = `${run.id} ${run.marks.length} ${run.marks.length ? run.marks[run.marks.length - 1].clock : ""}`;
  if (newest === eventsShown) return;  // who reads it is left in peace
  eventsShown = newest;
  $("events").replaceChildren(...run.marks.slice(-100).reverse().map((mark) => {
    const item = make("li", undefined, mark.kind);
    item.append(make("time", new Date(mark.clock * 1000).toLocaleString([], { hour12: false })),
      `${mark.kind} at step ${count(mark.step)}: ${mark.text}`);
    return item;
  }));
}

function drawLearners(status) {
  if (!status) {
    $("learners").replaceChildren();
    return;
  }
  const rows = [headOf(["#rank", "state", "phase", "#update", "#steps/s", "#env workers", "#replaced", "device", "waits for", "trouble"])];
  for (const learner of status.learner || []) {
    const row = rowOf([
      { number: learner.rank < 0 ? "" : String(learner.rank) }, String(learner.state), String(learner.phase || "").toLowerCase().replace("phase_unspecified", ""), { number: count(learner.update) },
      { number: rate(learner.steps_per_second) }, { number: String((learner.env_worker || []).length) },
      { number: String(learner.restarts ?? 0) }, String(learner.device || ""), String(learner.waits_for || ""),
    ]);
    row.append(make("td", String(learner.trouble || ""), "trouble"));
    rows.push(row);
  }
  $("learners").replaceChildren(...rows);
}

// ---- Evaluations

function drawEvaluations() {
  const found = [];
  for (const run of listed()) {
    const mean = run.series.get("eval/mean_return");
    if (!run.shown || !mean) continue;
    const at = (metric, i) => {
      const series = run.series.get(metric);
      return series && series.s[i] === mean.s[i] ? rate(series.v[i]) : "";
    };
    mean.s.forEach((step, i) => found.push({
      time: mean.t[i],
      cells: [shortName(run), { number: count(step) }, { number: seconds(mean.t[i]) }, { number: rate(mean.v[i]) },
        { number: at("eval/mean_length", i) }, { number: at("eval/update", i) }],
    }));
  }
  found.sort((a, b) => b.time - a.time);
  const rows = found.slice(0, 100).map((one) => rowOf(one.cells));
  $("evaluation-table").replaceChildren(headOf(["run", "#step", "#after", "#mean return", "#mean length", "#update"]),
    ...(rows.length ? rows : [rowOf(["none yet"])]));
}

// ---- Logs and configuration

function fillChoices(select, choices) {
  const now = select.value;
  const same = choices.length === select.options.length && choices.every(([value], i) => select.options[i].value === value);
  if (!same) {
    select.replaceChildren(...choices.map(([value, text]) => {
      const option = make("option", text);
      option.value = value;
      return option;
    }));
    if (choices.some(([value]) => value === now)) select.value = now;
  }
  return select.value !== now;
}

function fillRunChoices() {
  const choices = table.map((entry) => [entry.id, String(entry.run)]);
  const going = table.find((entry) => entry.status === "running");
  const first = $("rank-run").options.length === 0;
  for (const id of ["rank-run", "log-run", "config-run"]) {
    fillChoices($(id), choices);
    if (first && going) $(id).value = going.id;
  }
  fillFileChoices();
  fillGameRuns();
}

function fillFileChoices() {
  const run = runs.get($("log-run").value);
  const first = $("log-file").options.length === 0;
  const changed = fillChoices($("log-file"), (run ? run.files : []).map(([name]) => [name, name]));
  if (first && run && run.files.some(([name]) => name === "rank_0.log")) $("log-file").value = "rank_0.log";
  if (changed || first) loadLog();
}

async function fetchText(url) {
  const answer = await fetch(url);
  return answer.ok ? answer.text() : `(${(await answer.text()).trim()})`;
}

let logAsked = 0;
async function loadLog() {
  const file = $("log-file").value;
  const number = ++logAsked;
  if (!file) {
    $("log").textContent = "(there is no log here)";
    return;
  }
  const text = await fetchText(`/log?run=${encodeURIComponent($("log-run").value)}&file=${encodeURIComponent(file)}`);
  if (number !== logAsked || $("log").textContent === text) return;
  $("log").textContent = text;
  if ($("follow").checked) $("log").scrollTop = $("log").scrollHeight;
}

let configOf = null;
async function loadConfig() {
  const run = $("config-run").value;
  if (!run || run === configOf) return;
  configOf = run;
  const text = await fetchText(`/config?run=${encodeURIComponent(run)}`);
  if (run === configOf) $("config").textContent = text;
}

function drawDifferences() {
  const paths = [...new Set(table.flatMap((entry) => Object.keys(entry.differs || {})))].sort();
  if (paths.length === 0) {
    $("differences").replaceChildren(rowOf([table.length > 1 ? "in nothing but their seeds" : "there is one run"]));
    return;
  }
  $("differences").replaceChildren(headOf(["run", ...paths]),
    ...table.map((entry) => rowOf([String(entry.run), ...paths.map((path) => String((entry.differs || {})[path] ?? ""))])));
}

// ---- The page itself

function applyTheme() {
  const dark = $("theme").value === "dark" || ($("theme").value === "auto" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  draw();
}

$("theme").value = localStorage.getItem("flotilla-theme") || "auto";
$("theme").addEventListener("change", () => { localStorage.setItem("flotilla-theme", $("theme").value); applyTheme(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", applyTheme);
applyTheme();
for (const id of ["x", "smooth", "find", "mean", "show-marks", "rank-run"]) $(id).addEventListener("input", draw);
addEventListener("resize", draw);
$("log-run").addEventListener("change", () => { fillFileChoices(); loadLog(); });
$("log-file").addEventListener("change", loadLog);
$("follow").addEventListener("change", () => { if ($("follow").checked) loadLog(); });
$("config-run").addEventListener("change", loadConfig);
$("game-run").addEventListener("change", listGames);
$("list-games").addEventListener("click", listGames);
for (const group of OPEN) groupElement(group);
connect();
