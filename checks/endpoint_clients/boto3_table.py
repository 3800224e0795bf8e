"""boto3: a table resource, a paginator and a batch writer."""

import os

import boto3
from boto3.dynamodb.conditions import Attr, Key
from story import PAGE, story

table = boto3.resource("dynamodb").Table(os.environ["TABLE_NAME"])


class Client:
    key = "boto3"

    def place(self, order):
        return {"PK": self.key, "SK": order}

    def put(self, order, cents):
        table.put_item(Item={**self.place(order), "cents": cents})

    def update(self, order, before, after):
        change = {"UpdateExpression": "SET cents = :after", "ExpressionAttributeValues": {":after": after}}
        try:
            table.update_item(Key=self.place(order), ConditionExpression=Attr("cents").eq(before), **change)
        except table.meta.client.exceptions.ConditionalCheckFailedException:
            return False
        return True

    def get(self, order):
        return table.get_item(Key=self.place(order)).get("Item", {}).get("cents")

    def pages(self):
        query = {"TableName": table.name, "KeyConditionExpression": Key("PK").eq(self.key)}
        for page in table.meta.client.get_paginator("query").paginate(**query, PaginationConfig={"PageSize": PAGE}):
            yield [(item["SK"], item["cents"]) for item in page["Items"]]

    def delete(self, order):
        table.delete_item(Key=self.place(order))

    def batch(self, new, old):
        with table.batch_writer() as batch:
            for order in new:
                batch.put_item(Item={**self.place(order), "cents": 5})
            for order in old:
                batch.delete_item(Key=self.place(order))


def check(growing):
    return story(Client(), growing)
