// dynamodb-toolbox: an entity, and queries of its table.

import { ConditionalCheckFailedException, DynamoDBClient } from '@aws-sdk/client-dynamodb';
import { DynamoDBDocumentClient } from '@aws-sdk/lib-dynamodb';
import {
  BatchDeleteRequest, BatchPutRequest, BatchWriteCommand, DeleteItemCommand, Entity, executeBatchWrite, GetItemCommand,
  item, number, PutItemCommand, QueryCommand, string, Table, UpdateItemCommand,
} from 'dynamodb-toolbox';
import { byCursor, holds, PAGE, serve, table } from './client.mjs';

const customer = 'dynamodb-toolbox';
const Shop = new Table({
  name: table,
  partitionKey: { name: 'PK', type: 'string' },
  sortKey: { name: 'SK', type: 'string' },
  documentClient: DynamoDBDocumentClient.from(new DynamoDBClient()),
});
const schema = item({ customer: string().key().savedAs('PK'), order: string().key().savedAs('SK'), cents: number() });
const Order = new Entity({ name: 'order', table: Shop, schema });

await serve({
  key: customer,
  put: (order, cents) => Order.build(PutItemCommand).item({ customer, order, cents }).send(),
  update: (order, before, after) => holds(
    Order.build(UpdateItemCommand).item({ customer, order, cents: after })
      .options({ condition: { attr: 'cents', eq: before } }).send(),
    (error) => error instanceof ConditionalCheckFailedException,
  ),
  get: async (order) => (await Order.build(GetItemCommand).key({ customer, order }).send()).Item?.cents,
  pages: () => byCursor(async (exclusiveStartKey) => {
    const query = Shop.build(QueryCommand).query({ partition: customer }).entities(Order);
    const { Items, LastEvaluatedKey } = await query.options({ limit: PAGE, exclusiveStartKey }).send();
    return [Items.map(({ order, cents }) => [order, cents]), LastEvaluatedKey];
  }),
  delete: (order) => Order.build(DeleteItemCommand).key({ customer, order }).send(),
  async batch(fresh, old) {
    const puts = fresh.map((order) => Order.build(BatchPutRequest).item({ customer, order, cents: 5 }));
    const deletions = old.map((order) => Order.build(BatchDeleteRequest).key({ customer, order }));
    await executeBatchWrite(Shop.build(BatchWriteCommand).requests(...puts));
    await executeBatchWrite(Shop.build(BatchWriteCommand).requests(...deletions));
  },
});
