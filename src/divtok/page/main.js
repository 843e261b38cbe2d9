// The page put together: what is chosen, what follows from it, keys and links.

const page = JSON.parse(byId("data").textContent);
const about = page.run;
const state = {
  theta: about ? about.theta : 0.5,
  own: about ? about.theta : 0.5,
  estimator: about ? about.estimator : null,
  key: null,
  preset: PRESETS[0],
  words: "",
  bin: null,
  sort: { name: null, way: 1 },
  grain: "token",
};
let [table, reliability, response, shown] = [null, null, null, []];

const rows = page.rows.map((row) => {
  const reading = new Reading(row.reading, page.run, page.step);
  const other = row.other && new Reading(row.other, page.against, page.step);
  return {
    ...row,
    reading,
    other,
    given: row,
    size: row.reading.tokens && packedLength(row.reading.tokens.jsd),
  };
});

// Confidences and counts at the present theta; each is worked out once.
function present() {
  const kept = new Map();
  const once = (name, row, make) => {
    const place = kept.get(row) ?? kept.set(row, {}).get(row);
    return name in place ? place[name] : (place[name] = make());
  };
  const now = {
    confidence: (row) =>
      once("confidence", row, () =>
        state.estimator ? row.reading.confidence(state.estimator, state.theta) : null,
      ),
    count: (row) => once("count", row, () => row.reading.count(state.theta)),
    other: (row) =>
      once("other", row, () => (row.other ? row.other.confidence(otherEstimator(), state.theta) : null)),
    difference: (row) =>
      now.other(row) === null || now.confidence(row) === null ? null : now.confidence(row) - now.other(row),
    share: (row) => {
      const value = now.confidence(row);
      return value === null ? null : Math.min(1, Math.max(0, value)); // as divtok.evaluate clips for ECE
    },
    bin: (row) => (row.graded && now.share(row) !== null ? binOf(now.share(row), about.bins) : null),
  };
  return now;
}

const isShare = () => Boolean(about.estimators.find(({ name, share }) => name === state.estimator && share));
const otherEstimator = () =>
  page.against.estimators.some(({ name }) => name === state.estimator)
    ? state.estimator
    : page.against.estimator;

// All that depends on theta, the estimator or the choice of rows.
function refresh() {
  if (response) response.setTheta(state.theta);
  showTheta();
  if (!about) return;
  const now = present();
  const before = table.chosen(now, { ...state, bin: null });
  shown = table.sorted(table.chosen(now, state), now, state.sort);
  table.draw(shown, now, state);
  const graded = before
    .filter((row) => now.bin(row) !== null)
    .map((row) => ({ confidence: now.share(row), right: row.verdict === "correct" }));
  const here = rows.find((row) => row.key === state.key);
  reliability.draw(graded, {
    chosen: state.bin,
    here: here ? now.share(here) : null,
    estimator: state.estimator,
    share: isShare(),
  });
  byId("shown").replaceChildren(...saidOfRows());
}

function saidOfRows() {
  const some =
    about.total > rows.length
      ? ` The run has ${about.total.toLocaleString("en")}; the page holds its first ${rows.length.toLocaleString("en")}.`
      : "";
  const all =
    state.bin === null ? null : el("button", { type: "button", click: () => chooseBin(null) }, "All bins");
  return [`${shown.length.toLocaleString("en")} of ${plural(rows.length, "response")}.${some} `, all].filter(
    Boolean,
  );
}

function showTheta() {
  const slider = byId("theta");
  slider.value = Math.round(Math.sqrt(state.theta) * 1000);
  slider.setAttribute("aria-valuetext", `${state.theta} bits`);
  if (document.activeElement !== byId("theta-number")) byId("theta-number").value = state.theta;
  byId("theta-own").textContent = `back to ${state.own}`;
  byId("theta-own").disabled = state.theta === state.own;
}

let waiting = false;

function setTheta(theta) {
  if (!(theta >= 0 && theta <= 1)) return;
  state.theta = theta;
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    refresh();
    writeLink();
  });
}

function open(key) {
  const row = rows.find((each) => each.key === key);
  if (!row) return;
  state.key = key;
  const readings = [
    { reading: row.reading, estimator: state.estimator, title: page.against ? page.run.title : null },
  ];
  if (row.other)
    readings.push({ reading: row.other, estimator: otherEstimator(), title: page.against.title });
  showRow(row, readings, row.given);
  refresh();
  table.mark(state.key, true);
  writeLink();
}

function showRow(row, readings, given) {
  response = new ResponseView(byId("response"), row, readings, {
    grain: state.grain,
    copy: () => copied(given),
  });
}

async function copied(given) {
  const text = JSON.stringify({ ...given, theta_shown: state.theta }, null, 1);
  const button = document.querySelector(".copy");
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const field = el("textarea", { "aria-label": "JSON" });
    field.value = text;
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
  button.textContent = "Copied";
  setTimeout(() => (button.textContent = "Copy as JSON"), 1500);
}

function chooseBin(bin) {
  state.bin = bin;
  refresh();
}

function choosePreset(preset) {
  state.preset = preset;
  state.bin = null;
  state.sort = preset.order === null ? { name: null, way: 1 } : { name: "confidence", way: preset.order };
  refresh();
  for (const button of document.querySelectorAll(".presets button"))
    button.setAttribute("aria-pressed", String(button.textContent === preset.name));
  if (preset.order !== null && shown.length) open(shown[0].key);
}

// Links: everything that is not as the page begins.
function writeLink() {
  const parts = new URLSearchParams();
  if (state.key !== null) parts.set("key", state.key);
  if (state.theta !== state.own) parts.set("theta", state.theta);
  if (about && state.estimator !== about.estimator) parts.set("estimator", state.estimator);
  const text = `#${parts}`;
  if (about && text !== location.hash) history.replaceState(null, "", text);
}

function readLink() {
  const parts = new URLSearchParams(location.hash.slice(1));
  const theta = Number(parts.get("theta") ?? state.own);
  if (theta >= 0 && theta <= 1) state.theta = theta;
  const estimator = parts.get("estimator") ?? about.estimator;
  if (about.estimators.some(({ name }) => name === estimator))
    state.estimator = byId("estimator").value = estimator;
  const key = parts.get("key");
  open(rows.some((row) => row.key === key) ? key : rows[0].key);
}

function nextRow(by) {
  const place = shown.findIndex((row) => row.key === state.key);
  const next = shown[place < 0 ? 0 : Math.min(shown.length - 1, Math.max(0, place + by))];
  if (next && next.key !== state.key) open(next.key);
}

function setGrain(grain) {
  state.grain = byId("grain").value = grain;
  if (response) response.setGrain(grain);
}

const KEYS = {
  n: () => response?.view?.jump(1),
  p: () => response?.view?.jump(-1),
  j: () => about && nextRow(1),
  k: () => about && nextRow(-1),
  l: () => setGrain(state.grain === "token" ? "line" : "token"),
  "/": () => byId("filter").focus(),
};

function onKey(event) {
  const { target, key } = event;
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = target.matches("textarea, select, input:not([type=range])");
  if (key === "Escape" && typing) return target.blur();
  if (typing) return;
  const inTokens = target.closest(".tokens");
  const act =
    inTokens && key === "ArrowRight"
      ? () => response.view?.step(1)
      : inTokens && key === "ArrowLeft"
        ? () => response.view?.step(-1)
        : KEYS[key];
  if (!act) return;
  event.preventDefault();
  act();
}

function setTheme(dark) {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  byId("theme").setAttribute("aria-pressed", String(dark));
  response?.redraw();
}

function legend() {
  const ramp = Array.from({ length: LEVELS }, (_, k) => el("span", { class: `b${k + 1}` }, " "));
  byId("legend").replaceChildren(
    "divergence in bits: 0 ",
    el("span", { class: "ramp", "aria-hidden": "true" }, ramp),
    " 1   ",
    el("span", { class: "t d" }, "divergent"),
    "   ",
    el("span", { class: "t u" }, "unexpected"),
    "   ",
    el("span", { class: "answer" }, "answer"),
    "   ",
    el("span", { class: "t open" }, "bounds leave it open"),
    "   ",
    el("span", { class: "t out" }, "not counted"),
  );
}

function beginRun() {
  byId("title").textContent = visible(about.title);
  const pairs = [
    ...new Set(
      rows
        .map((row) => row.reading.pair)
        .filter(Boolean)
        .map((pair) => pair.map(shortName).join(", ")),
    ),
  ];
  const readers = pairs.length ? `read by ${pairs.join("; ")}` : "not read yet";
  const against = page.against ? `; against ${page.against.title}` : "";
  byId("about").textContent = visible(`${plural(about.total, "response")} ${readers}${against}`);
  byId("estimator").replaceChildren(
    ...about.estimators.map(({ name }) => el("option", { value: name }, name)),
  );
  table = new Table(byId("table"), { rows, against: page.against, open, sort: sortBy });
  reliability = new Reliability(byId("reliability"), { bins: about.bins, choose: chooseBin });
  document
    .querySelector(".presets")
    .replaceChildren(
      ...PRESETS.map((preset) =>
        el(
          "button",
          {
            type: "button",
            "aria-pressed": String(preset === state.preset),
            click: () => choosePreset(preset),
          },
          preset.name,
        ),
      ),
    );
  byId("filter").addEventListener("input", (event) => ((state.words = event.target.value), refresh()));
  byId("estimator").addEventListener(
    "change",
    (event) => ((state.estimator = event.target.value), open(state.key)),
  );
  window.addEventListener("hashchange", readLink);
  readLink();
}

function sortBy(name) {
  const { sort } = state;
  state.sort =
    sort.name !== name ? { name, way: 1 } : sort.way > 0 ? { name, way: -1 } : { name: null, way: 1 };
  refresh();
  byId("table").querySelector(`[data-column="${name}"]`).focus();
}

// What the service answered, with the same view as a run's responses.
function showServed(answer) {
  state.theta = state.own = answer.theta ?? state.own; // an answer without numbers may have none
  const row = servedRow(answer);
  showRow(row, [{ reading: row.reading, estimator: answer.estimator, title: null }], answer);
  refresh();
  const says = servedSays(answer);
  if (says) byId("response").prepend(el("p", { class: "says", role: "status" }, says));
}

byId("theta").addEventListener("input", (event) =>
  setTheta(Number(((event.target.value / 1000) ** 2).toPrecision(3))),
);
byId("theta-number").addEventListener(
  "input",
  (event) => event.target.value !== "" && setTheta(Number(event.target.value)),
);
byId("theta-own").addEventListener("click", () => setTheta(state.own));
byId("grain").addEventListener("change", (event) => setGrain(event.target.value));
byId("theme").addEventListener("click", () => setTheme(document.documentElement.dataset.theme !== "dark"));
window.addEventListener("resize", () => response?.redraw());
document.addEventListener("keydown", onKey);
setTheme(matchMedia("(prefers-color-scheme: dark)").matches);
legend();
showTheta();
if (about) beginRun();
if (byId("ask")) serveForm(byId("ask"), showServed);
