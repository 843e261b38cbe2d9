// One token, with all that its trace holds of it.

function detailOf(tokens, i, theta) {
  const number = (name, digits) => (tokens.column(name) ? fixed(tokens.column(name)[i], digits) : null);
  const chance = (name) => (tokens.column(name) ? fixed(Math.exp(tokens.column(name)[i]), 4) : null);
  const said = wordsOf(tokens, i, theta).join(", ");
  const bounds = tokens.low ? ` (${fixed(tokens.low[i], 4)} to ${fixed(tokens.high[i], 4)})` : "";
  const token = tokens.text ? `\u201c${tokens.text[i].replaceAll("\n", "\u21b5")}\u201d` : "token";
  return el(
    "div",
    { class: "detail" },
    el(
      "div",
      { class: "what" },
      el("b", {}, token),
      el("span", { class: "soft" }, ` ${i + 1} of ${tokens.length}`),
    ),
    el(
      "div",
      { class: "what" },
      el("b", {}, fixed(tokens.jsd[i], 4)),
      ` bits${bounds} `,
      el("span", { class: "soft" }, said),
    ),
    measures(number, chance),
    tokens.top ? mostLikely(tokens.top, i) : null,
  );
}

function wordsOf(tokens, i, theta) {
  const words = [];
  if (tokens.open(i, theta)) words.push("bounds leave open if it is divergent");
  else if (tokens.divergent(i, theta)) words.push("divergent");
  if (tokens.unexpected && tokens.unexpected.has(i))
    words.push("unexpected: neither model would have written it");
  if (tokens.answer && i >= tokens.answer[0] && i < tokens.answer[1]) words.push("answer");
  else if (!tokens.counts(i)) words.push("not counted");
  return words;
}

// A line for each model; what a trace does not hold is left out.
function measures(number, chance) {
  const rows = ["p", "q"].map((model) => [
    model,
    chance(`logprob_${model}`),
    number(`logprob_${model}`, 3),
    number(`entropy_${model}`, 3),
    number(model === "p" ? "kl_pq" : "kl_qp", 3),
  ]);
  if (rows.every((row) => row.slice(1).every((cell) => cell === null))) return null;
  const heads = ["", "probability", "log-prob", "entropy", "KL to the other"];
  return el(
    "table",
    { class: "measures" },
    el(
      "thead",
      {},
      el(
        "tr",
        {},
        heads.map((head) => (head ? el("th", { scope: "col" }, head) : el("td"))),
      ),
    ),
    el(
      "tbody",
      {},
      rows.map(([model, ...cells]) =>
        el(
          "tr",
          {},
          el("th", { scope: "row" }, model),
          cells.map((cell) => el("td", {}, cell ?? "\u2013")),
        ),
      ),
    ),
  );
}

// What both models would most likely have written, as [text, log-prob] each, where it is known.
function mostLikely(top, i) {
  const list = (model) => {
    const found = top[model] && top[model][i];
    return found
      ? el(
          "li",
          {},
          el("b", {}, `${model}: `),
          found.map(([text, logprob]) => `\u201c${text}\u201d ${fixed(Math.exp(logprob), 3)}`).join("  "),
        )
      : null;
  };
  return el("ul", { class: "top" }, list("p"), list("q"));
}
