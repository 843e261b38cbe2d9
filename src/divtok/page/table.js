// Which responses there are: filtered, sorted, one line each.

const VERDICTS = {
  correct: "\u2713 right",
  incorrect: "\u2717 wrong",
  unanswered: "no answer",
  undetermined: "undecided",
};

// What the three ways to begin look for; `order` is by confidence.
const PRESETS = [
  { name: "All", verdict: null, order: null },
  { name: "Confidently wrong", verdict: "incorrect", order: -1 },
  { name: "Doubted but right", verdict: "correct", order: 1 },
];

const searched = (row) =>
  [row.problem, row.key, row.benchmark, row.generator, row.question, row.answer, row.gold, row.verdict]
    .map((text) => visible(text ?? "").toLowerCase())
    .join("\n");

class Table {
  constructor(place, { rows, against, open, sort }) {
    Object.assign(this, { place, rows, against, open, sort });
    this.texts = new Map(rows.map((row) => [row, searched(row)]));
    const several = (name) => new Set(rows.map((row) => row[name])).size > 1;
    this.columns = [
      { name: "problem", text: (row) => row.problem, of: (row) => row.problem, kind: "text" },
      several("sample") && { name: "sample", text: (row) => `${row.sample}`, of: (row) => row.sample },
      several("benchmark") && {
        name: "benchmark",
        text: (row) => row.benchmark,
        of: (row) => row.benchmark,
        kind: "text",
      },
      several("generator") && {
        name: "generator",
        text: (row) => shortName(row.generator),
        of: (row) => row.generator,
        kind: "text",
      },
      {
        name: "verdict",
        text: (row) => VERDICTS[row.verdict] ?? "\u2013",
        of: (row) => row.verdict,
        kind: "text verdict",
      },
      {
        name: "confidence",
        text: (row, now) => fixed(now.confidence(row)),
        of: (row, now) => now.confidence(row),
      },
      against && {
        name: "other",
        text: (row, now) => fixed(now.other(row)),
        of: (row, now) => now.other(row),
      },
      against && {
        name: "difference",
        text: (row, now) => fixed(now.difference(row)),
        of: (row, now) => now.difference(row),
      },
      { name: "count", text: (row, now) => fixed(now.count(row), 0), of: (row, now) => now.count(row) },
      { name: "tokens", text: (row) => fixed(row.size, 0), of: (row) => row.size },
    ].filter(Boolean);
  }

  // The rows that are asked for; `now` knows confidences and counts at the present theta.
  chosen(now, { preset, words, bin }) {
    const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
    return this.rows.filter(
      (row) =>
        (preset.verdict === null || row.verdict === preset.verdict) &&
        wanted.every((word) => this.texts.get(row).includes(word)) &&
        (bin === null || now.bin(row) === bin),
    );
  }

  // Rows without a value come last, whichever way the others are sorted.
  sorted(rows, now, { name, way }) {
    const column = this.columns.find((each) => each.name === name);
    if (!column) return rows;
    const values = new Map(rows.map((row) => [row, column.of(row, now)]));
    const missing = (value) => value === null || value === undefined;
    return [...rows].sort((one, two) => {
      const [a, b] = [values.get(one), values.get(two)];
      if (missing(a) || missing(b)) return missing(a) - missing(b);
      return way * (typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true }));
    });
  }

  // Lines are made once and kept: theta changes a few cells of many.
  draw(rows, now, { sort, key }) {
    if (!this.body) this.#begin();
    for (const { name, head, button } of this.columns) {
      const way = sort.name !== name ? "none" : sort.way > 0 ? "ascending" : "descending";
      head.setAttribute("aria-sort", way);
      button.textContent = name + { ascending: " \u2191", descending: " \u2193", none: "" }[way];
    }
    const lines = rows.map((row) => this.#line(row, now));
    const same =
      lines.length === this.body.children.length && lines.every((line, i) => line === this.body.children[i]);
    if (!same) this.body.replaceChildren(...lines);
    this.mark(key, false);
  }

  #begin() {
    for (const column of this.columns) {
      column.button = el("button", {
        type: "button",
        "data-column": column.name,
        click: () => this.sort(column.name),
      });
      column.head = el("th", { scope: "col", class: column.kind }, column.button);
    }
    this.lines = new Map();
    this.body = el("tbody");
    this.place.replaceChildren(
      el(
        "table",
        {},
        el(
          "thead",
          {},
          el(
            "tr",
            {},
            this.columns.map(({ head }) => head),
          ),
        ),
        this.body,
      ),
    );
  }

  #line(row, now) {
    const line = this.lines.get(row) ?? this.#newLine(row);
    this.columns.forEach((column, i) => {
      const text = visible(column.text(row, now));
      if (line.texts[i] !== text) line.cells[i].textContent = line.texts[i] = text;
    });
    return line.element;
  }

  #newLine(row) {
    const link = el("a", { href: `#${new URLSearchParams({ key: row.key })}` });
    const cells = this.columns.map((column, i) => (i === 0 ? link : el("td", { class: column.kind })));
    const open = (event) => (event.preventDefault(), this.open(row.key));
    const parts = [el("th", { scope: "row", class: "text" }, link), ...cells.slice(1)];
    const line = { link, cells, texts: [], element: el("tr", { class: row.verdict, click: open }, parts) };
    this.lines.set(row, line);
    return line;
  }

  // The row that is shown; `follow` it where it is out of view.
  mark(key, follow) {
    for (const [row, { element, link }] of this.lines) {
      const here = row.key === key;
      if (element.classList.contains("here") !== here) {
        element.classList.toggle("here", here);
        if (here) link.setAttribute("aria-current", "true");
        else link.removeAttribute("aria-current");
      }
      if (here && follow) {
        element.scrollIntoView({ block: "nearest" });
        this.place.scrollLeft = 0;
      }
    }
  }
}
