"""What the product's requests for one item or page take of a table, compared with boto3's own."""

import contextlib
import http.client
import http.server
import json
import threading

from boto3.dynamodb.conditions import Key

OPERATIONS = {"GetItem", "BatchGetItem", "Query", "PutItem", "UpdateItem", "DeleteItem"}


class Meter(http.server.BaseHTTPRequestHandler):
    """Passes requests on to a DynamoDB port, and records what they take of a table."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.headers["x-amz-target"].rpartition(".")[2] in OPERATIONS:
            body["ReturnConsumedCapacity"] = "TOTAL"
        names = ("x-amz-target", "content-type", "authorization")
        headers = {name: self.headers[name] for name in names if name in self.headers}
        with contextlib.closing(http.client.HTTPConnection(self.server.dynamodb)) as connection:
            connection.request("POST", "/", json.dumps(body), headers)
            response = connection.getresponse()
            text = response.read()
        consumed = json.loads(text).get("ConsumedCapacity", [])
        for each in consumed if isinstance(consumed, list) else [consumed]:
            if each["TableName"] == self.server.table:
                self.server.taken.append(each["CapacityUnits"])
        self.send_response(response.status)
        self.send_header("content-type", response.headers["content-type"])
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def metered(dynamodb, table):
    """Yields a port that passes requests on, and the list of the units that they take."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Meter) as server:
        server.daemon_threads = True
        server.dynamodb, server.table, server.taken = dynamodb, table, []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port, server.taken
        server.shutdown()


def compare(model, api, taken, main, scratch, places):
    """Sends requests for items of keys that never grew, and boto3's for the same; boto3 writes to
    another table. Yields (kind, units of each request of the product, units of boto3's)."""
    total = {"ReturnConsumedCapacity": "TOTAL"}
    for place in places:
        at = dict(zip(model.names, place))
        new = {"Item": at | {"by": "the product", "n": 1}}
        absent = {"ConditionExpression": "attribute_not_exists(n)"}
        count = {"UpdateExpression": "ADD c :c", "ExpressionAttributeValues": {":c": 1}}
        scratch.put_item(Item=model.row(*place))
        for kind, request, given in (
            ("get", scratch.get_item, {"Key": at, "ConsistentRead": True}),
            ("put", scratch.put_item, new),
            ("add", scratch.update_item, {"Key": at} | count),
            ("post", scratch.put_item, new),
            ("delete", scratch.delete_item, {"Key": at}),
            ("create", scratch.put_item, new | absent),
            ("get", scratch.get_item, {"Key": at, "ConsistentRead": True}),
        ):
            taken.clear()
            model.send(api, kind, place)
            yield kind, [*taken], request(**given, **total)["ConsumedCapacity"]["CapacityUnits"]
        taken.clear()
        page = api.page(place[0], limit=40)
        query = {"KeyConditionExpression": Key(model.names[0]).eq(place[0]), "Limit": 40}
        units = main.query(**query, **total)["ConsumedCapacity"]["CapacityUnits"]
        yield "page", [*taken], units
        yield "page, as it says", [float(page["consumed_capacity"])], units
