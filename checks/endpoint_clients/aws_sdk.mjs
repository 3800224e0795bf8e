// The AWS SDK for JavaScript: the client's own commands, and those of the document client.

import {
  BatchWriteItemCommand, ConditionalCheckFailedException, DynamoDBClient, PutItemCommand, UpdateItemCommand,
} from '@aws-sdk/client-dynamodb';
import { DeleteCommand, DynamoDBDocumentClient, GetCommand, paginateQuery } from '@aws-sdk/lib-dynamodb';
import { holds, PAGE, serve, table } from './client.mjs';

const key = 'aws-sdk';
const client = new DynamoDBClient();
const documents = DynamoDBDocumentClient.from(client);
const place = (order) => ({ PK: { S: key }, SK: { S: order } });
const item = (order, cents) => ({ ...place(order), cents: { N: String(cents) } });

await serve({
  key,
  put: (order, cents) => client.send(new PutItemCommand({ TableName: table, Item: item(order, cents) })),
  update: (order, before, after) => holds(client.send(new UpdateItemCommand({
    TableName: table,
    Key: place(order),
    UpdateExpression: 'ADD cents :more',
    ConditionExpression: 'cents = :before',
    ExpressionAttributeValues: { ':more': { N: String(after - before) }, ':before': { N: String(before) } },
  })), (error) => error instanceof ConditionalCheckFailedException),
  get: async (SK) => (await documents.send(new GetCommand({ TableName: table, Key: { PK: key, SK } }))).Item?.cents,
  async* pages() {
    const query = { KeyConditionExpression: 'PK = :key', ExpressionAttributeValues: { ':key': key } };
    for await (const page of paginateQuery({ client: documents, pageSize: PAGE }, { TableName: table, ...query })) {
      yield page.Items.map(({ SK, cents }) => [SK, cents]);
    }
  },
  delete: (SK) => documents.send(new DeleteCommand({ TableName: table, Key: { PK: key, SK } })),
  async batch(fresh, old) {
    const puts = fresh.map((order) => ({ PutRequest: { Item: item(order, 5) } }));
    const deletions = old.map((order) => ({ DeleteRequest: { Key: place(order) } }));
    await client.send(new BatchWriteItemCommand({ RequestItems: { [table]: puts } }));
    await client.send(new BatchWriteItemCommand({ RequestItems: { [table]: deletions } }));
  },
});
