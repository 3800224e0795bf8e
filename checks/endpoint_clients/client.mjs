// Serves a client to the program that runs it: requests and responses are lines of JSON.

import { createInterface } from 'node:readline';

export const PAGE = 7;
export const table = process.env.TABLE_NAME;

// Resolves to whether a conditional write succeeds; `isRefusal` knows the client's error.
export async function holds(write, isRefusal) {
  try {
    await write;
    return true;
  } catch (error) {
    if (isRefusal(error)) return false;
    throw error;
  }
}

// Yields pages. `read` takes the cursor of the page before, and resolves to [items, cursor].
export async function* byCursor(read) {
  let found;
  let cursor;
  do {
    [found, cursor] = await read(cursor);
    yield found;
  } while (cursor);
}

export async function serve(client) {
  const pages = new Map();
  const methods = {
    ...client,
    async page(number) {
      if (!pages.has(number)) pages.set(number, client.pages());
      return (await pages.get(number).next()).value;
    },
  };
  console.log(JSON.stringify(client.key));
  for await (const line of createInterface({ input: process.stdin })) {
    const [method, ...parameters] = JSON.parse(line);
    const found = await methods[method](...parameters);
    console.log(JSON.stringify(['put', 'delete', 'batch'].includes(method) ? null : found ?? null));
  }
}
