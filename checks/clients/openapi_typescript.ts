// Uses the types that openapi-typescript generated, with openapi-fetch.
// checks/clients.py compiles it, and runs it with the URL of the API.

import createClient from "openapi-fetch";
import type { components, paths } from "./items_client.js";

declare const process: { argv: string[] };

type Item = components["schemas"]["Item"];
type Page = components["schemas"]["Page"];

const KEY = "openapi-typescript";
const client = createClient<paths>({ baseUrl: process.argv[2] });
const query = { partition_key: KEY, sort_key: "0" };
const MERGE = { "Content-Type": "application/merge-patch+json" };
const ADD = { "Content-Type": "application/vnd.dynamodb-write-sharding.add+json" };

function expect(holds: boolean, promise: string, found: unknown): asserts holds {
  if (!holds) throw new Error(`${promise}: ${JSON.stringify(found)}`);
}

function expectSame(found: unknown, expected: unknown) {
  expect(JSON.stringify(found) === JSON.stringify(expected), `${JSON.stringify(expected)} is expected`, found);
}

async function page(cursor?: string): Promise<Page> {
  const { data, error } = await client.GET("/items", {
    params: { query: { partition_key: KEY, limit: 2, ...(cursor && { cursor }) } },
  });
  expect(data !== undefined && "items" in data, "a page is read", error);
  return data;
}

const attributes = { fraction: 0.1, map: { null: null }, number: 1, set: { $string_set: ["a"] } };
const stored = await client.POST("/items", { body: { ...query, attributes } });
expectSame(stored.data?.sort_key, "0");
const again = await client.POST("/items", {
  params: { header: { "If-None-Match": "*" } },
  body: { ...query, attributes },
});
expect(again.error !== undefined && "code" in again.error, "a problem is reported", again.data);
expectSame(again.error.code, "already_exists");
const read = await client.GET("/item", { params: { query } });
expectSame(read.data, { ...query, attributes } satisfies Item);

const put = () =>
  client.PUT("/item", {
    params: { query, header: { "If-Match": stored.response.headers.get("etag") ?? "" } },
    body: { attributes: { number: 2, old: true, set: { $string_set: ["a"] } } },
  });
expectSame((await put()).response.status, 200);
expectSame((await put()).response.status, 412);

const patched = await client.PATCH("/item", {
  params: { query },
  headers: MERGE,
  body: { attributes: { old: null, new: [1.5] } },
});
expectSame(patched.data?.attributes, { new: [1.5], number: 2, set: { $string_set: ["a"] } });
const added = await client.PATCH("/item", {
  params: { query },
  headers: ADD,
  body: { add: { number: 40, set: { $string_set: ["b"] } } },
});
expectSame(added.data?.attributes, { new: [1.5], number: 42, set: { $string_set: ["a", "b"] } });

const items = ["1", "2", "3", "4"].map((sort_key) => ({ partition_key: KEY, sort_key, attributes: {} }));
const batch = await client.POST("/items/batch", { body: { items } });
expectSame(batch.data, { written: 4, failed: [] });
const found: unknown[] = [];
for (let next: Page | undefined = await page(); next; next = next.cursor ? await page(next.cursor) : undefined) {
  found.push(...next.items.map((item) => item.sort_key));
}
expectSame(found, ["0", "1", "2", "3", "4"]);
const counted = await client.GET("/items", { params: { query: { partition_key: KEY, count: true } } });
expect(counted.data !== undefined && "count" in counted.data, "items are counted", counted.error);
expectSame(counted.data.count, 5);

expectSame((await client.DELETE("/item", { params: { query } })).response.status, 204);
expectSame((await client.GET("/item", { params: { query } })).response.status, 404);
const shards = await client.GET("/shards", { params: { query: { partition_key: KEY } } });
expectSame(shards.data?.number_of_shards, 1);
