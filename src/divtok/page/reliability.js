// The reliability diagram: how often responses are right that have about one confidence.

const EDGE = 1e-9; // how far below an edge a value counts as being on it, as in divtok.evaluate

function binOf(value, bins) {
  const scaled = value * bins;
  const nearest = Math.round(scaled);
  const index = Math.abs(scaled - nearest) <= EDGE * bins ? nearest : Math.floor(scaled);
  return Math.min(index, bins - 1);
}

// The bins of rows {confidence, right}, and their expected calibration error: as they are, undrawn.
function binned(rows, bins) {
  const found = Array.from({ length: bins }, () => ({ size: 0, right: 0, sum: 0 }));
  for (const { confidence, right } of rows) {
    const bin = found[binOf(confidence, bins)];
    bin.size += 1;
    bin.right += right ? 1 : 0;
    bin.sum += confidence;
  }
  const gaps = found.reduce((sum, bin) => sum + Math.abs(bin.right - bin.sum), 0);
  return { bins: found, size: rows.length, ece: rows.length ? gaps / rows.length : null };
}

const SIDE = 210;
const BELOW = 34; // for how many there are
const LEFT = 40;

class Reliability {
  constructor(figure, { bins, choose }) {
    Object.assign(this, { figure, bins, choose });
  }

  // `chosen` is the number of a bin or null; `here` the confidence of the response that is shown.
  draw(rows, { chosen, here, estimator, share }) {
    if (!share)
      return this.figure.replaceChildren(
        el(
          "figcaption",
          {},
          `${estimator} orders responses; it is no share of right answers, so it has no bins.`,
        ),
      );
    const found = binned(rows, this.bins);
    if (!found.size)
      return this.figure.replaceChildren(
        el("figcaption", {}, "No response shown is graded right or wrong and has a confidence."),
      );
    const box = {
      class: "reliability",
      viewBox: `0 0 ${LEFT + SIDE + 8} ${SIDE + BELOW + 34}`,
      role: "group",
      "aria-label": "Reliability diagram",
    };
    const focused =
      document.activeElement && document.activeElement.dataset
        ? document.activeElement.dataset.bin
        : undefined;
    const most = Math.max(...found.bins.map((bin) => bin.size));
    this.figure.replaceChildren(
      svg(
        "svg",
        box,
        this.#frame(),
        found.bins.map((bin, i) => this.#bar(bin, i, most, chosen)),
        this.#cursor(here),
      ),
      el(
        "figcaption",
        {},
        `${estimator}: ECE ${fixed(found.ece)} of ${plural(found.size, "graded response")}, as they are. `,
        el("span", { class: "soft" }, "Choose a bar to see its responses."),
      ),
    );
    if (focused !== undefined) this.figure.querySelector(`[data-bin="${Number(focused)}"]`)?.focus();
  }

  #frame() {
    const ticks = [0, 0.5, 1];
    const [x, y] = [(share) => LEFT + share * SIDE, (share) => 6 + (1 - share) * SIDE];
    return [
      svg("rect", { class: "frame", x: LEFT, y: 6, width: SIDE, height: SIDE }),
      svg("line", { class: "even", x1: x(0), y1: y(0), x2: x(1), y2: y(1) }),
      ticks.map((tick) => svg("text", { x: LEFT - 5, y: y(tick) + 4, class: "end" }, `${tick}`)),
      ticks.map((tick) => svg("text", { x: x(tick), y: SIDE + BELOW + 18, class: "middle" }, `${tick}`)),
      svg("text", { x: x(0.5), y: SIDE + BELOW + 32, class: "middle" }, "confidence"),
      svg("text", { class: "middle", transform: `translate(10 ${6 + SIDE / 2}) rotate(-90)` }, "share right"),
      svg("text", { x: LEFT - 5, y: SIDE + 24, class: "end" }, "n"),
    ];
  }

  #bar(bin, i, most, chosen) {
    if (!bin.size) return null;
    const wide = SIDE / this.bins;
    const share = bin.right / bin.size;
    const [x, tall, deep] = [LEFT + i * wide, share * SIDE, (bin.size / most) * (BELOW - 8)];
    const label = `Confidence ${fixed(i / this.bins, 2)} to ${fixed((i + 1) / this.bins, 2)}: ${plural(bin.size, "response")}, ${Math.round(100 * share)} % right`;
    const go = () => this.choose(chosen === i ? null : i);
    return svg(
      "g",
      {
        class: "bin",
        role: "button",
        tabindex: "0",
        "aria-pressed": String(chosen === i),
        "aria-label": label,
        "data-bin": i,
        click: go,
        keydown: (event) => (event.key === "Enter" || event.key === " ") && (event.preventDefault(), go()),
      },
      svg("title", {}, label),
      svg("rect", { class: "reach", x, y: 6, width: wide, height: SIDE + BELOW }),
      svg("rect", {
        class: "share",
        x: x + 1,
        y: 6 + SIDE - Math.max(tall, 1.5),
        width: wide - 2,
        height: Math.max(tall, 1.5),
      }),
      svg("line", {
        class: "mean",
        x1: x,
        x2: x + wide,
        y1: 6 + (1 - bin.sum / bin.size) * SIDE,
        y2: 6 + (1 - bin.sum / bin.size) * SIDE,
      }),
      svg("rect", { class: "size", x: x + 1, y: SIDE + 10, width: wide - 2, height: Math.max(deep, 1) }),
    );
  }

  #cursor(here) {
    if (here === null || here === undefined) return null;
    const x = LEFT + here * SIDE;
    return svg("path", {
      class: "cursor",
      d: `M${x - 5},0 L${x + 5},0 L${x},7 Z M${x},6 V${6 + SIDE}`,
      "aria-hidden": "true",
    });
  }
}
