// Requests to the server, and what it says is wrong with them.

export class Problem extends Error {
  constructor({ title, detail, code, field }) {
    super(detail || title);
    this.code = code;
    this.field = field;
  }
}

// The parsed body of the answer, null where there is none.
export async function ask(url, options) {
  let response;
  let text;
  try {
    response = await fetch(url, options);
    text = await response.text();
  } catch {
    throw new Problem({ detail: 'The server did not answer.' });
  }
  if (response.ok) {
    return text ? parseJson(text) : null;
  }
  throw new Problem(problemIn(text) ?? { detail: `The server answered ${response.status}.` });
}

export function askJson(url, body) {
  return ask(url, { method: 'POST', headers: { 'content-type': 'application/json' }, body });
}

function problemIn(text) {
  try {
    const problem = JSON.parse(text);
    return problem.detail || problem.title ? problem : null;
  } catch {
    return null;
  }
}

// Numbers of items keep all their digits, where the browser can tell them.
function parseJson(text) {
  return JSON.parse(text, (_, value, context) => {
    const exact = typeof value !== 'number' || String(value) === context?.source || !JSON.rawJSON;
    return exact ? value : JSON.rawJSON(context.source);
  });
}
