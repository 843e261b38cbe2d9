// The tokens of a response as flowing text: colour is divergence, a line below means counted.

const FAINTEST = 0.05; // bits; below, a token stays plain, as in the terminal
const LEVELS = 12;

const level = (bits) =>
  bits >= FAINTEST ? Math.max(1, Math.min(LEVELS, Math.round(LEVELS * Math.sqrt(bits)))) : 0;

class TokenView {
  // `tell(i)` is called with the token that is looked at.
  constructor(tokens, { tell, label }) {
    this.tokens = tokens;
    this.tell = tell;
    this.theta = null;
    this.current = -1;
    this.spans = new Array(tokens.length);
    this.lines = [];
    this.order = Array.from(tokens.jsd.keys()).sort((a, b) => tokens.jsd[a] - tokens.jsd[b]);
    this.rising = Float64Array.from(this.order, (i) => tokens.jsd[i]);
    this.element = el("div", { class: "tokens", tabindex: "0", role: "group", "aria-label": label });
    this.#build();
    this.element.addEventListener("pointerover", (event) => this.#over(event));
    this.element.addEventListener("click", (event) => this.#over(event));
  }

  // A line is a block of its own, so that the browser lays out those in view only.
  #build() {
    const { text, jsd } = this.tokens;
    let line = null;
    for (let i = 0; i < text.length; i++) {
      if (line === null) line = this.#newLine(i);
      const span = this.#span(i);
      this.spans[i] = span;
      this.#inside(line, i).append(span);
      line.last = i;
      line.most = Math.max(line.most, jsd[i] || 0);
      if (text[i].includes("\n")) line = null;
    }
    for (const each of this.lines) each.element.classList.add(`l${level(each.most)}`);
  }

  #newLine(first) {
    const line = { first, last: first, most: 0, count: 0, box: null, element: el("div", { class: "line" }) };
    this.lines.push(line);
    this.element.append(line.element);
    return line;
  }

  // Where a token goes: into the line, or into the box around its part of the answer.
  #inside(line, i) {
    const { answer } = this.tokens;
    if (!answer || i < answer[0] || i >= answer[1]) return line.element;
    if (line.box === null) {
      line.box = el("span", { class: "answer" });
      line.element.append(line.box);
    }
    return line.box;
  }

  #span(i) {
    const { text, jsd, unexpected, counted } = this.tokens;
    const names = ["t"];
    if (level(jsd[i])) names.push(`b${level(jsd[i])}`);
    if (unexpected && unexpected.has(i)) names.push("u");
    if (i < counted[0] || i >= counted[1]) names.push("out");
    const span = el("span", { class: names.join(" ") });
    const parts = visible(text[i]).split("\n");
    parts.forEach((part, k) => {
      if (k > 0) span.append(el("i", { class: "nl", "aria-hidden": "true" }, "\u21b5"));
      if (k > 0 && (part || k < parts.length - 1)) span.append("\n"); // the last one ends the line
      span.append(part);
    });
    span.place = i;
    return span;
  }

  #over(event) {
    const span = event.target.closest(".t");
    if (span) this.look(span.place, false);
  }

  // Only tokens between the old and the new theta change.
  setTheta(theta) {
    const before = this.theta;
    this.theta = theta;
    const size = this.order.length;
    const own = (value) => value === null || value === this.tokens.own;
    let [from, to] = [0, size];
    if (before !== null && !(this.tokens.flags && (own(before) || own(theta)))) {
      from = size - above(this.rising, Math.min(before, theta));
      to = size - above(this.rising, Math.max(before, theta));
    }
    for (let k = from; k < to; k++) {
      const i = this.order[k];
      this.spans[i].classList.toggle("d", this.tokens.divergent(i, theta));
    }
    if (this.tokens.low)
      this.spans.forEach((span, i) => span.classList.toggle("open", this.tokens.open(i, theta)));
    this.#countLines();
  }

  #countLines() {
    for (const line of this.lines) {
      let count = 0;
      for (let i = line.first; i <= line.last; i++) count += this.tokens.divergent(i, this.theta) ? 1 : 0;
      if (count !== line.count) line.element.dataset.count = count || "";
      line.count = count;
    }
  }

  setGrain(grain) {
    this.element.classList.toggle("by-line", grain === "line");
  }

  look(i, scroll) {
    if (i < 0 || i >= this.spans.length) return;
    if (this.current >= 0) this.spans[this.current].classList.remove("here");
    this.current = i;
    this.spans[i].classList.add("here");
    if (scroll) this.spans[i].scrollIntoView({ block: "center", behavior: "instant" });
    this.tell(i);
  }

  step(by) {
    this.look(this.current < 0 ? 0 : this.current + by, true);
  }

  // The next divergent token, around the end.
  jump(by) {
    const size = this.spans.length;
    const start = this.current < 0 ? (by > 0 ? -1 : 0) : this.current;
    for (let k = 1; k <= size; k++) {
      const i = (start + by * k + size * 2) % size;
      if (this.tokens.divergent(i, this.theta)) return this.look(i, true);
    }
  }

  // First and last token in view.
  inView() {
    const top = this.element.scrollTop;
    const bottom = top + this.element.clientHeight;
    const place = (y, end) => {
      let [low, high] = [0, this.lines.length - 1];
      while (low < high) {
        const middle = (low + high + 1) >> 1;
        if (this.lines[middle].element.offsetTop <= y) low = middle;
        else high = middle - 1;
      }
      const { element, first, last } = this.lines[low];
      const share = Math.min(1, Math.max(0, (y - element.offsetTop) / (element.offsetHeight || 1)));
      return first + (end ? Math.ceil : Math.floor)(share * (last - first));
    };
    return this.lines.length ? [place(top, false), place(bottom, true)] : [0, 0];
  }
}
