"""boto3: responses through the endpoint are those of the DynamoDB server for a plain table."""

import os

import boto3
from botocore.exceptions import ClientError
from story import same

SHARDED, PLAIN, KEY = os.environ["TABLE_NAME"], "plain", "answers"
ONE = {":one": {"N": "1"}}
CHANGE = {
    "UpdateExpression": "SET made = if_not_exists(made, :one), #o.x[1] = :one ADD cents :one REMOVE tags",
    "ExpressionAttributeNames": {"#o": "of"},
    "ExpressionAttributeValues": ONE,
}
QUERY = {"KeyConditionExpression": "PK = :k", "ExpressionAttributeValues": {":k": {"S": KEY}}, "Limit": 4}
OLD, OLD_ON_FAILURE = {"ReturnValues": "ALL_OLD"}, {"ReturnValuesOnConditionCheckFailure": "ALL_OLD"}


def key(order):
    return {"PK": {"S": KEY}, "SK": {"S": order}}


def item(order):
    return {**key(order), "cents": {"N": "1"}, "tags": {"SS": ["a"]}, "of": {"M": {"x": {"L": [{"N": "0.5"}]}}}}


def requests(table):
    on = {"TableName": table}
    at = {**on, "Key": key("3")}
    puts = [{"PutRequest": {"Item": item(str(order))}} for order in range(9)]
    yield "batch_write_item", {"RequestItems": {table: puts}}
    yield "put_item", {**on, "Item": {**item("3"), "new": {"NULL": True}}, **OLD}
    yield "put_item", {**on, "Item": item("3"), "ConditionExpression": "attribute_not_exists(SK)", **OLD_ON_FAILURE}
    yield "update_item", {**at, **CHANGE, "ConditionExpression": "PK > made OR cents = :one", "ReturnValues": "ALL_NEW"}
    yield "update_item", {**at, **CHANGE, "ConditionExpression": "cents = :one", **OLD_ON_FAILURE}
    yield "update_item", {**at, "UpdateExpression": "SET cents = :none"}
    yield "get_item", {**at, "ProjectionExpression": "cents, SK", "ConsistentRead": True}
    yield "query", {**on, **QUERY}
    yield "query", {**on, **QUERY, "ScanIndexForward": False, "ExclusiveStartKey": key("6"), "Select": "COUNT"}
    values = {**QUERY["ExpressionAttributeValues"], **ONE}
    yield "query", {**on, **QUERY, "FilterExpression": "cents > :one", "ExpressionAttributeValues": values}
    yield "batch_get_item", {"RequestItems": {table: {"Keys": [key("8"), key("3"), key("none")]}}}
    yield "transact_get_items", {"TransactItems": [{"Get": at}, {"Get": {**on, "Key": key("none")}}]}
    yield "delete_item", {**at, "ConditionExpression": "attribute_exists(tags)"}
    yield "delete_item", {**at, **OLD}
    yield "delete_item", {**at, **OLD}


def answer(client, table, operation, parameters):
    try:
        found = getattr(client, operation)(**parameters)
    except ClientError as error:
        found = error.response
    del found["ResponseMetadata"]
    if operation == "batch_get_item":
        # A batch has no order.
        found["Responses"] = sorted(found["Responses"][table], key=lambda one: one["SK"]["S"])
    return found


def check(growing):
    endpoint, server = boto3.client("dynamodb"), boto3.client("dynamodb", endpoint_url=os.environ["PLAIN_URL"])
    like = server.describe_table(TableName=SHARDED)["Table"]
    schema = {name: like[name] for name in ("KeySchema", "AttributeDefinitions")}
    server.create_table(TableName=PLAIN, BillingMode="PAY_PER_REQUEST", **schema)

    def compare():
        for (operation, through), (_, plain) in zip(requests(SHARDED), requests(PLAIN), strict=True):
            right = answer(server, PLAIN, operation, plain)
            same(answer(endpoint, SHARDED, operation, through), right, f"{operation} {through}")

    compare()
    for _ in range(3):
        growing(KEY, compare)
        compare()
    return f"{len([*requests(PLAIN)])} requests, whose responses are those of a plain table"
