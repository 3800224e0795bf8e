"""What each client does with the items of its key, while the key grows."""

ORDERS = [f"{number:02}" for number in range(30)]
PAGE = 7


def same(found, right, what):
    assert found == right, f"{what}\nfound {found}\nright {right}"


def story(client, growing):
    """Stores, updates, reads, pages and deletes items. The key gets 2, 4 and 8 shards."""
    cents = dict.fromkeys(ORDERS, 0)

    def store():
        for order in ORDERS[15:]:
            client.put(order, 0)

    def update():
        for order in ORDERS[::3]:
            same(client.update(order, cents[order], cents[order] + 1), True, "a condition that holds")
            same(client.update(order, cents[order], 99), False, "a condition that does not hold")
            cents[order] += 1

    def read(after_two=lambda: None):
        found, sizes = [], []
        for page in client.pages():
            found += page
            sizes.append(len(page))
            if len(sizes) == 2:
                after_two()
        same(found, sorted(cents.items()), "the pages")
        # DynamoDB may end by an empty page.
        whole, rest = divmod(len(cents), PAGE)
        same([size for size in sizes if size], [PAGE] * whole + [rest] * (rest > 0), "sizes of pages")

    for order in ORDERS[:15]:
        client.put(order, 0)
    growing(client.key, store)
    read()
    growing(client.key, update)
    same([client.get(order) for order in ORDERS], list(cents.values()), "single items")
    # The first pages are of 4 shards, and the others of 8.
    read(after_two=lambda: growing(client.key, read))
    for order in ORDERS[::4]:
        client.delete(order)
        del cents[order]
        same(client.get(order), None, "a deleted item")
    read()
    new, old = [f"{number}" for number in range(30, 50)], ORDERS[1::4]
    client.batch(new, old)
    cents = {order: of for order, of in cents.items() if order not in old} | dict.fromkeys(new, 5)
    read()
    return "puts, updates, refused updates, reads, pages, deletions, batch"
