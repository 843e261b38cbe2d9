// The form of a served page: asks the server that the page is from, and nobody else.

const ASK = "/v1/confidence";

// `show(answer)` draws a response object of the service.
function serveForm(form, show) {
  const said = byId("ask-said");
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const button = form.querySelector("button");
    button.disabled = true;
    said.textContent = "Two models are reading it\u2026";
    try {
      show(await asked(byId("ask-question").value, byId("ask-response").value, byId("ask-token").value));
      said.textContent = "";
    } catch (error) {
      said.textContent = visible(error.message);
    }
    button.disabled = false;
  });
}

// The token stays in its field: it is kept nowhere else.
async function asked(question, response, token) {
  const headers = { "Content-Type": "application/json" };
  if (token) headers.Authorization = `Bearer ${token}`;
  const body = JSON.stringify({ question, response, tokens: true });
  const answer = await fetch(ASK, { method: "POST", headers, body, credentials: "omit" });
  const found = await answer.json().catch(() => null);
  if (!answer.ok || found === null) {
    const why = found && found.error ? (found.error.message ?? found.error) : answer.statusText;
    throw new Error(
      `The server says ${answer.status}: ${typeof why === "string" ? why : JSON.stringify(why)}`,
    );
  }
  return found;
}

// A row for an answer of the service, which knows no verdict.
function servedRow(answer) {
  return { key: null, response: "", reading: Reading.served(answer) };
}

function servedSays(answer) {
  const { decision, status, reason, source } = answer;
  return [
    status && status !== "ok" ? `${status}: ${reason ?? ""}` : reason,
    decision ? `decision: ${decision.action}${decision.reason ? `, ${decision.reason}` : ""}` : null,
    source && source !== "measured" ? `source: ${source}` : null,
    answer.prior
      ? `for a share of ${fixed(100 * answer.prior.value, 1)} % right answers (${answer.prior.from})`
      : null,
  ]
    .filter(Boolean)
    .join("; ");
}
