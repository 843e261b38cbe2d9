// Packed numbers, and what can be asked of a response's tokens at any theta.

const NOT_KNOWN = 65535; // as divtok.page.data

function unpacked(packed) {
  if (!packed) return null;
  const bytes = atob(packed.codes);
  const numbers = new Float64Array(bytes.length / 2);
  for (let i = 0; i < numbers.length; i++) {
    const code = bytes.charCodeAt(2 * i) + 256 * bytes.charCodeAt(2 * i + 1);
    numbers[i] = code === NOT_KNOWN ? NaN : packed.low + code * packed.step;
  }
  return numbers;
}

// How many numbers are packed, without unpacking them.
function packedLength({ codes }) {
  return ((codes.length / 4) * 3 - (codes.endsWith("==") ? 2 : codes.endsWith("=") ? 1 : 0)) / 2;
}

// How many of rising numbers are above a threshold; strictly, as divtok counts.
function above(rising, theta) {
  let low = 0;
  let high = rising.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (rising[middle] > theta) high = middle;
    else low = middle + 1;
  }
  return rising.length - low;
}

// The tokens of one response under one pair. `step` is how far a divergence may be from the true
// one, 0 where it is as it was computed; `own` is the theta at which none is on the wrong side.
class Tokens {
  constructor(given, own) {
    Object.assign(this, given, { own });
    this.length = this.jsd.length;
    this.rising = this.#rising(this.jsd);
    this.risingLow = this.low && this.#rising(this.low);
    this.risingHigh = this.high && this.#rising(this.high);
  }

  #rising(bits) {
    return bits.filter((value, i) => this.counts(i) && !Number.isNaN(value)).sort();
  }

  // A column of the trace, unpacked when a token is first looked at; null where there is none.
  column(name) {
    const given = this.columns[name];
    if (given && given.codes !== undefined) this.columns[name] = unpacked(given);
    return this.columns[name] ?? null;
  }

  counts(i) {
    const answered = !this.answerCounts && this.answer && i >= this.answer[0] && i < this.answer[1];
    return i >= this.counted[0] && i < this.counted[1] && !answered;
  }

  divergent(i, theta) {
    if (this.flags && theta === this.own) return this.flags[i];
    return this.counts(i) && this.jsd[i] > theta;
  }

  // Whether the bounds of a token's divergence leave open if it is divergent.
  open(i, theta) {
    return Boolean(this.low) && this.counts(i) && this.low[i] <= theta && this.high[i] > theta;
  }

  count(theta) {
    if (this.flags && theta === this.own) return this.flags.filter(Boolean).length;
    return above(this.rising, theta);
  }

  countBounds(theta) {
    return this.low && [above(this.risingLow, theta), above(this.risingHigh, theta)];
  }

  // How many tokens the page's rounding might have on the wrong side of theta.
  near(theta) {
    if (theta === this.own || !this.step) return 0;
    return above(this.rising, theta - this.step) - above(this.rising, theta + this.step);
  }
}

// Tokens as a run's page holds them.
function packedTokens(given, own, step) {
  return new Tokens(
    {
      text: given.text,
      jsd: unpacked(given.jsd),
      low: unpacked(given.low),
      high: unpacked(given.high),
      columns: { ...given.columns },
      unexpected: given.unexpected && new Set(given.unexpected),
      counted: given.counted,
      answer: given.answer,
      answerCounts: given.answer_counts,
      flags: null,
      top: null,
      step,
    },
    own,
  );
}

// Tokens as the service sends them.
function servedTokens(given, own) {
  const numbers = (values) => values && Float64Array.from(values, (value) => (value === null ? NaN : value));
  const columns = ["logprob_p", "logprob_q", "entropy_p", "entropy_q", "kl_pq", "kl_qp"];
  const flagged = (given.unexpected || []).flatMap((is, i) => (is ? [i] : []));
  return new Tokens(
    {
      text: given.text,
      jsd: numbers(given.jsd_bits),
      low: numbers(given.jsd_low_bits),
      high: numbers(given.jsd_high_bits),
      columns: Object.fromEntries(
        columns.filter((name) => given[name]).map((name) => [name, numbers(given[name])]),
      ),
      unexpected: given.unexpected ? new Set(flagged) : null,
      counted: given.counted,
      answer: given.answer,
      answerCounts: Boolean(given.answer_counts),
      flags: given.divergent,
      top: given.top || null,
      step: 0,
    },
    own,
  );
}
