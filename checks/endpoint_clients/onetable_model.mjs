// DynamoDB OneTable: a model. It makes the stored keys by templates.

import { DynamoDBClient } from '@aws-sdk/client-dynamodb';
import { Table } from 'dynamodb-onetable';
import { Dynamo } from 'dynamodb-onetable/Dynamo';
import { byCursor, holds, PAGE, serve, table } from './client.mjs';

const customer = 'acme';
const Order = {
  PK: { type: String, value: 'customer#${customer}' },
  SK: { type: String, value: 'order#${order}' },
  customer: { type: String, required: true },
  order: { type: String, required: true },
  cents: { type: Number },
};
const indexes = { primary: { hash: 'PK', sort: 'SK' } };
const schema = { format: 'onetable:1.1.0', version: '0.0.1', indexes, models: { Order }, params: { timestamps: true } };
const shop = new Table({ name: table, client: new Dynamo({ client: new DynamoDBClient() }), partial: false, schema });
const orders = shop.getModel('Order');

await serve({
  key: `customer#${customer}`,
  // By default, a creation is refused if the item exists.
  put: (order, cents) => orders.create({ customer, order, cents }, { exists: null }),
  update: (order, before, after) => holds(
    orders.update({ customer, order, cents: after }, { where: '${cents} = @{before}', substitutions: { before } }),
    (error) => error.code === 'ConditionalCheckFailedException',
  ),
  get: async (order) => (await orders.get({ customer, order }))?.cents,
  pages: () => byCursor(async (next) => {
    const page = await orders.find({ customer }, { limit: PAGE, next });
    return [page.map(({ order, cents }) => [order, cents]), page.next];
  }),
  delete: (order) => orders.remove({ customer, order }),
  async batch(fresh, old) {
    const [puts, deletions] = [{}, {}];
    for (const order of fresh) await orders.create({ customer, order, cents: 5 }, { batch: puts, exists: null });
    for (const order of old) await orders.remove({ customer, order }, { batch: deletions });
    await shop.batchWrite(puts);
    await shop.batchWrite(deletions);
  },
});
