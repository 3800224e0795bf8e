// ElectroDB: an entity. It makes the stored keys by templates.

import { DynamoDBClient } from '@aws-sdk/client-dynamodb';
import { Entity } from 'electrodb';
import { byCursor, holds, PAGE, serve, table } from './client.mjs';

const customer = 'acme';
const Orders = new Entity({
  model: { entity: 'order', version: '1', service: 'shop' },
  attributes: {
    customer: { type: 'string', required: true },
    order: { type: 'string', required: true },
    cents: { type: 'number' },
  },
  indexes: { orders: { pk: { field: 'PK', composite: ['customer'] }, sk: { field: 'SK', composite: ['order'] } } },
}, { client: new DynamoDBClient(), table });

await serve({
  key: Orders.put({ customer, order: '' }).params().Item.PK,
  put: (order, cents) => Orders.put({ customer, order, cents }).go(),
  update: (order, before, after) => holds(
    Orders.patch({ customer, order }).set({ cents: after }).where(({ cents }, { eq }) => eq(cents, before)).go(),
    (error) => error.cause?.name === 'ConditionalCheckFailedException',
  ),
  get: async (order) => (await Orders.get({ customer, order }).go()).data?.cents,
  pages: () => byCursor(async (before) => {
    const { data, cursor } = await Orders.query.orders({ customer }).go({ limit: PAGE, cursor: before });
    return [data.map(({ order, cents }) => [order, cents]), cursor];
  }),
  delete: (order) => Orders.delete({ customer, order }).go(),
  async batch(fresh, old) {
    await Orders.put(fresh.map((order) => ({ customer, order, cents: 5 }))).go();
    await Orders.delete(old.map((order) => ({ customer, order }))).go();
  },
});
