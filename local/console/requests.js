// Sends requests to the server and reads its problems.

export class Problem extends Error {
  constructor({ title, detail, code, field }) {
    super(detail || title);
    this.code = code;
    this.field = field;
  }
}

// Returns the parsed body of the response, or null if it is empty.
export async function ask(url, options) {
  let response;
  let text;
  try {
    response = await fetch(url, options);
    text = await response.text();
  } catch {
    throw new Problem({ detail: 'The server did not respond.' });
  }
  if (response.ok) {
    return text ? parseJson(text) : null;
  }
  throw new Problem(problemIn(text) ?? { detail: `The server responded with status ${response.status}.` });
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

// Keeps all digits of the items' numbers, if the browser supports it.
function parseJson(text) {
  return JSON.parse(text, (_, value, context) => {
    const exact = typeof value !== 'number' || String(value) === context?.source || !JSON.rawJSON;
    return exact ? value : JSON.rawJSON(context.source);
  });
}
