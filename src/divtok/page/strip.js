// The whole response as a strip: a bar for each token, those in view framed; a click jumps there.

class Strip {
  // `tokens` have divergences, be their texts known or not; `jump(i)` goes to one, where it can.
  constructor(tokens, { jump, inView }) {
    Object.assign(this, { tokens, inView, theta: 0, current: -1 });
    this.canvas = el("canvas", { role: "img" });
    this.bars = { of: null, image: el("canvas") };
    this.element = el("div", { class: "strip" }, this.canvas);
    this.canvas.addEventListener("pointerdown", (event) => {
      const { left, width } = this.canvas.getBoundingClientRect();
      jump(
        Math.min(
          tokens.length - 1,
          Math.max(0, Math.floor(((event.clientX - left) / width) * tokens.length)),
        ),
      );
    });
  }

  // Once a frame at most, however often it is asked for.
  soon() {
    if (this.waits) return;
    this.waits = true;
    requestAnimationFrame(() => {
      this.waits = false;
      this.draw();
    });
  }

  draw(theta = this.theta, current = this.current) {
    Object.assign(this, { theta, current });
    const { canvas, tokens } = this;
    const [width, height, scale] = [canvas.clientWidth, canvas.clientHeight, window.devicePixelRatio || 1];
    if (!width) return;
    const of = [theta, width, scale, document.documentElement.dataset.theme].join();
    if (of !== this.bars.of) this.#paint(of, width, height, scale);
    const context = this.#sized(canvas, width, height, scale);
    this.#window(context, width, height);
    context.drawImage(this.bars.image, 0, 0, width, height);
    this.#marks(context, width, height);
  }

  // The bars, which only theta and the theme change; scrolling does not.
  #paint(of, width, height, scale) {
    this.bars.of = of;
    this.canvas.setAttribute(
      "aria-label",
      `Divergence along the response: ${plural(this.tokens.count(this.theta), "divergent token")} of ${this.tokens.length}`,
    );
    this.#bars(this.#sized(this.bars.image, width, height, scale), width, height);
  }

  #sized(canvas, width, height, scale) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    const context = canvas.getContext("2d");
    context.scale(scale, scale);
    return context;
  }

  #colour(name) {
    return getComputedStyle(this.canvas).getPropertyValue(name);
  }

  #window(context, width, height) {
    const x = (i) => (i / this.tokens.length) * width;
    const { answer } = this.tokens;
    const [first, last] = this.inView();
    context.fillStyle = this.#colour("--tint");
    const all = first === 0 && last >= this.tokens.length - 1;
    if (!all) context.fillRect(x(first), 0, Math.max(3, x(last + 1) - x(first)), height);
    if (answer) {
      context.strokeStyle = this.#colour("--ink");
      context.strokeRect(x(answer[0]) + 0.5, height - 3.5, Math.max(2, x(answer[1]) - x(answer[0])), 3);
    }
  }

  // A pixel shows the largest divergence of its tokens, on the scale of the colours.
  #bars(context, width, height) {
    const { tokens, theta } = this;
    const size = Math.max(1, Math.min(tokens.length, Math.floor(width)));
    const one = width / size;
    const colours = [this.#colour("--bar"), this.#colour("--strong")];
    for (let k = 0; k < size; k++) {
      const end = Math.max(
        Math.floor((k * tokens.length) / size) + 1,
        Math.floor(((k + 1) * tokens.length) / size),
      );
      let [most, divergent] = [0, false];
      for (let i = Math.floor((k * tokens.length) / size); i < end; i++) {
        most = Math.max(most, tokens.jsd[i] || 0);
        divergent ||= tokens.divergent(i, theta);
      }
      context.fillStyle = colours[divergent ? 1 : 0];
      const tall = Math.sqrt(Math.min(1, most)) * (height - 6);
      context.fillRect(k * one, height - 4 - tall, Math.max(1, one - (one > 4 ? 1 : 0)), tall);
    }
  }

  #marks(context, width, height) {
    const y = height - 4 - Math.sqrt(this.theta) * (height - 6);
    context.strokeStyle = this.#colour("--soft");
    context.setLineDash([3, 3]);
    context.beginPath();
    context.moveTo(0, y);
    context.lineTo(width, y);
    context.stroke();
    if (this.current < 0) return;
    context.fillStyle = this.#colour("--ink");
    context.fillRect((this.current / this.tokens.length) * width, 0, 2, height);
  }
}
