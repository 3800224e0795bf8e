// Dynamoose: a model.

import dynamoose from 'dynamoose';
import { byCursor, holds, PAGE, serve, table } from './client.mjs';

const PK = 'dynamoose';
const Order = dynamoose.model(table, new dynamoose.Schema({
  PK: { type: String, hashKey: true },
  SK: { type: String, rangeKey: true },
  cents: Number,
}));

await serve({
  key: PK,
  put: (SK, cents) => new Order({ PK, SK, cents }).save(),
  update: (SK, before, after) => holds(
    Order.update({ PK, SK }, { cents: after }, { condition: new dynamoose.Condition().where('cents').eq(before) }),
    (error) => error.name === 'ConditionalCheckFailedException',
  ),
  get: async (SK) => (await Order.get({ PK, SK }))?.cents,
  pages: () => byCursor(async (last) => {
    const query = Order.query('PK').eq(PK).limit(PAGE);
    const page = await (last ? query.startAt(last) : query).exec();
    return [page.map(({ SK, cents }) => [SK, cents]), page.lastKey];
  }),
  delete: (SK) => Order.delete({ PK, SK }),
  async batch(fresh, old) {
    await Order.batchPut(fresh.map((SK) => ({ PK, SK, cents: 5 })));
    await Order.batchDelete(old.map((SK) => ({ PK, SK })));
  },
});
