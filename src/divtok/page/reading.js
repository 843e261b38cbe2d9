// What one run, or the service, says of a response: confidence and count at any theta.

const LINEAR = "dtc_lin";

// As divtok.score.estimators.dtc.linear_confidence.
const linear = (count, { n, a, b }) => (count < n ? a - ((a - b) / n) * count : b);

class Reading {
  #packed;
  #tokens;

  constructor(given, about, step) {
    Object.assign(this, { pair: given.pair, reason: given.reason, line: given.line, theta: about.theta });
    this.stored = { count: given.count, low: given.count_low, high: given.count_high };
    this.confidences = given.confidences;
    this.#packed = () => given.tokens && packedTokens(given.tokens, about.theta, step);
  }

  // Unpacked when it is first asked for: a page may hold a million tokens.
  get tokens() {
    if (this.#tokens === undefined) this.#tokens = this.#packed() || null;
    return this.#tokens;
  }

  count(theta) {
    if (theta === this.theta && this.stored.count !== null) return this.stored.count;
    return this.tokens && this.tokens.count(theta);
  }

  countBounds(theta) {
    if (theta === this.theta && this.stored.low !== null) return [this.stored.low, this.stored.high];
    return this.tokens && this.tokens.countBounds(theta);
  }

  // Whether theta moves this estimator's value here.
  follows(estimator) {
    return estimator === LINEAR && Boolean(this.line) && this.tokens !== null;
  }

  confidence(estimator, theta) {
    const stored = this.confidences[estimator];
    if (theta !== this.theta && this.follows(estimator)) return linear(this.count(theta), this.line);
    return stored ? stored.value : null;
  }

  bounds(estimator, theta) {
    const stored = this.confidences[estimator];
    if (theta === this.theta || !this.follows(estimator))
      return stored && stored.low !== null ? [stored.low, stored.high] : null;
    const counts = this.countBounds(theta);
    return counts && counts.map((count) => linear(count, this.line)).reverse();
  }

  static served(given) {
    const parameters = given.parameters || {};
    const line = given.estimator === LINEAR && !given.prior && "n" in parameters ? parameters : null;
    const prior = given.prior ? given.prior.value : null;
    const reading = new Reading(
      {
        pair: given.pair,
        reason: given.reason,
        line,
        count: given.count,
        count_low: null,
        count_high: null,
        confidences: {
          [given.estimator]: { value: given.confidence, low: given.low, high: given.high, prior },
        },
        tokens: null,
      },
      given,
      0,
    );
    reading.#packed = () => given.tokens && servedTokens(given.tokens, given.theta);
    return reading;
  }
}
