// One response: what was asked, what it says, how far to trust it, and its tokens; of two readings
// side by side, scrolled together.

class ResponseView {
  // `row` has who and what; `readings` are one or two, each with its estimator.
  constructor(place, row, readings, { grain, copy }) {
    Object.assign(this, { place, row, readings, theta: null });
    this.parts = readings.map(({ reading, estimator, title }) => this.#part(reading, estimator, title));
    this.setGrain(grain);
    this.detail = el("div", {
      class: "details",
      role: "status",
      "aria-live": "polite",
      "aria-label": "The token that is looked at",
    });
    place.replaceChildren(
      el(
        "div",
        { class: "head" },
        this.#head(),
        this.#figures(copy),
        ...this.parts.map((part) => part.strip?.element),
        this.detail,
      ),
      el(
        "div",
        { class: readings.length > 1 ? "readings two" : "readings" },
        this.parts.map((part) => part.element),
      ),
    );
    this.#scrollTogether();
    requestAnimationFrame(() => this.redraw()); // how high lines are is known once they are drawn
  }

  #head() {
    const { row } = this;
    if (row.key === null) return null;
    const known = (name, value, extra) =>
      el(
        "div",
        {},
        el("dt", {}, name),
        el("dd", {}, oneLine(value), extra ? el("span", { class: "soft" }, ` (${oneLine(extra)})`) : null),
      );
    return [
      el(
        "h2",
        {},
        `${row.problem} `,
        el("span", { class: "soft" }, `sample ${row.sample} by ${row.generator}, of ${row.benchmark}`),
      ),
      row.question
        ? el("p", { class: "question", tabindex: "0", role: "group", "aria-label": "Question" }, row.question)
        : null,
      el(
        "dl",
        {},
        known("answer", row.answer),
        known("gold", row.gold),
        known("verdict", VERDICTS[row.verdict] ?? row.verdict, row.verdict_reason),
      ),
    ];
  }

  #figures(copy) {
    this.figures = this.readings.map(() => el("div", { class: "figures" }));
    return el(
      "div",
      { class: "numbers" },
      el("div", { class: "both" }, this.figures),
      el("button", { type: "button", class: "copy", click: copy }, "Copy as JSON"),
    );
  }

  #part(reading, estimator, title) {
    const tokens = reading.tokens;
    const part = { reading, estimator, title, tokens, view: null, strip: null };
    const label = `Tokens of the response${title ? `, ${title}` : ""}`;
    if (tokens && tokens.text) {
      part.view = new TokenView(tokens, { label, tell: (i) => this.#look(part, i) });
      part.body = part.view.element;
    } else {
      const why = tokens
        ? "The texts of its tokens are not known here; the strip shows where it diverges."
        : (reading.reason ?? "not read yet");
      part.body = el(
        "div",
        { class: "tokens plain", tabindex: "0", role: "group", "aria-label": label },
        el("p", { class: "soft" }, why),
        el("div", { class: "line" }, this.row.response ?? ""),
      );
    }
    if (tokens) {
      const jump = (i) => (part.view ? part.view.look(i, true) : this.#look(part, i));
      part.strip = new Strip(tokens, { jump, inView: () => (part.view ? part.view.inView() : [0, -1]) });
      part.body.addEventListener("scroll", () => part.strip.soon(), { passive: true });
    }
    part.element = el("div", { class: "reading" }, title ? el("h3", {}, title) : null, part.body);
    return part;
  }

  #look(part, i) {
    part.strip.draw(this.theta, i);
    this.detail.replaceChildren(detailOf(part.tokens, i, this.theta));
    this.looked = part;
  }

  // Two panes go by the share of their height; whoever is scrolled leads.
  #scrollTogether() {
    if (this.parts.length < 2) return;
    const bodies = this.parts.map((part) => part.body);
    let leads = bodies[0];
    for (const body of bodies) {
      for (const kind of ["pointerenter", "focusin", "wheel", "touchstart"])
        body.addEventListener(kind, () => (leads = body), { passive: true });
      body.addEventListener(
        "scroll",
        () => {
          const other = bodies[1 - bodies.indexOf(body)];
          const share = body.scrollTop / Math.max(1, body.scrollHeight - body.clientHeight);
          if (leads === body) other.scrollTop = share * (other.scrollHeight - other.clientHeight);
        },
        { passive: true },
      );
    }
  }

  setTheta(theta) {
    this.theta = theta;
    this.parts.forEach((part, k) => {
      if (part.view) part.view.setTheta(theta);
      if (part.strip) part.strip.draw(theta);
      this.figures[k].replaceChildren(...this.#said(part, theta));
    });
    if (this.looked && this.looked.strip.current >= 0) this.#look(this.looked, this.looked.strip.current);
    else
      this.detail.replaceChildren(
        el(
          "p",
          { class: "soft" },
          "Point at a token, or press n, to see how far the models are apart there.",
        ),
      );
  }

  // Confidence, count and what is to be known of them.
  #said({ reading, estimator, title, tokens }, theta) {
    const value = estimator && reading.confidence(estimator, theta);
    const bounds = estimator && reading.bounds(estimator, theta);
    const counts = reading.countBounds(theta);
    const prior = estimator && reading.confidences[estimator] ? reading.confidences[estimator].prior : null;
    const near = tokens ? tokens.near(theta) : 0;
    const notes = [
      bounds ? `between ${fixed(bounds[0])} and ${fixed(bounds[1])}` : null,
      prior !== null && prior !== undefined ? `stated for ${fixed(100 * prior, 1)} % right answers` : null,
      estimator && theta !== reading.theta ? storedAs(reading, estimator) : null,
    ].filter(Boolean);
    const many = [
      counts ? `${counts[0]} to ${counts[1]}` : null,
      near ? `${near} within the page's rounding of theta` : null,
    ].filter(Boolean);
    const figure = (number, name, about) =>
      el(
        "div",
        {},
        el("span", { class: "big" }, number),
        el("span", {}, ` ${name}`),
        about.length ? el("span", { class: "soft" }, ` ${about.join("; ")}`) : null,
      );
    return [
      title ? el("span", { class: "soft" }, title) : null,
      figure(fixed(value), estimator ?? "confidence", notes),
      figure(
        fixed(reading.count(theta), 0),
        `divergent${tokens ? ` of ${plural(tokens.length, "token")}` : ""}`,
        many,
      ),
      tokens && tokens.unexpected && tokens.unexpected.size
        ? figure(`${tokens.unexpected.size}`, "unexpected", [])
        : null,
    ].filter(Boolean);
  }

  setGrain(grain) {
    for (const { view } of this.parts) if (view) view.setGrain(grain);
  }

  get view() {
    return (this.looked ?? this.parts[0]).view ?? this.parts.map((part) => part.view).find(Boolean);
  }

  redraw() {
    for (const { strip } of this.parts) if (strip) strip.draw();
  }
}

// What is to be said of a confidence away from the theta that it is stored for.
function storedAs(reading, estimator) {
  if (!reading.follows(estimator)) return `as stored at theta ${reading.theta}`;
  return `${fixed(reading.confidence(estimator, reading.theta))} at its own theta ${reading.theta}`;
}
