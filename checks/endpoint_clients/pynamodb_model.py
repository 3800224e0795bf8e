"""PynamoDB: a model."""

import os

from pynamodb.attributes import NumberAttribute, UnicodeAttribute
from pynamodb.exceptions import UpdateError
from pynamodb.models import Model
from story import PAGE, story


class Order(Model):
    class Meta:
        table_name = os.environ["TABLE_NAME"]

    customer = UnicodeAttribute(hash_key=True, attr_name="PK")
    order = UnicodeAttribute(range_key=True, attr_name="SK")
    cents = NumberAttribute()


class Client:
    key = "pynamodb"

    def put(self, order, cents):
        Order(self.key, order, cents=cents).save()

    def update(self, order, before, after):
        try:
            Order(self.key, order).update(actions=[Order.cents.set(after)], condition=Order.cents == before)
        except UpdateError as error:
            assert error.cause_response_code == "ConditionalCheckFailedException", error
            return False
        return True

    def get(self, order):
        try:
            return Order.get(self.key, order).cents
        except Order.DoesNotExist:
            return None

    def pages(self):
        last, is_first = None, True
        while is_first or last:
            page = Order.query(self.key, limit=PAGE, last_evaluated_key=last)
            yield [(item.order, item.cents) for item in page]
            last, is_first = page.last_evaluated_key, False

    def delete(self, order):
        Order(self.key, order).delete()

    def batch(self, new, old):
        with Order.batch_write() as batch:
            for order in new:
                batch.save(Order(self.key, order, cents=5))
            for order in old:
                batch.delete(Order(self.key, order))


def check(growing):
    return story(Client(), growing)
