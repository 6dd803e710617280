"""What pylibmc, which is libmemcached in Python, has calls for, against the server at HOST PORT.

Prints the number of checks and exits with 0; exits with 77 where pylibmc is missing.
"""

import sys

try:
    import pylibmc
except ImportError as error:
    print(error)
    sys.exit(77)

checks = 0


def same(found, wanted, what):
    global checks
    checks += 1
    if found != wanted:
        sys.exit(f"{what}: {found!r:.200} instead of {wanted!r:.200}")


def refused(error, call, what):
    global checks
    checks += 1
    try:
        found = call()
    except error:
        return
    sys.exit(f"{what}: {found!r:.200} instead of {error.__name__}")


def writes(client):
    same(client.set("w", "1"), True, "set")
    same(client.get("w"), "1", "get after set")
    same(client.add("w", "2"), False, "add of what is there")
    same(client.add("fresh", "2"), True, "add")
    same(client.replace("absent", "3"), False, "replace of what is not there")
    same(client.replace("w", "3"), True, "replace")
    same(client.append("w", "4"), True, "append")
    same(client.prepend("w", "2"), True, "prepend")
    same(client.get("w"), "234", "get after append and prepend")
    for value in (0, -7, 10**18, 1.5, True, None, b"bytes", {"a": [1, 2]}, "x" * 100_000):
        same(client.set("typed", value), True, f"set of {value!r:.20}")
        same(client.get("typed", "default"), value, f"get of {value!r:.20}")
    same(client.get("absent"), None, "get of what is not there")


def numbers(client):
    same(client.set("n", 98), True, "set of a number")
    same(client.incr("n", 3), 101, "incr")
    same(client.decr("n"), 100, "decr")
    same(client.get("n"), 100, "get of a number")
    refused(pylibmc.NotFound, lambda: client.incr("absent"), "incr of what is not there")
    same(client.incr_multi(["n"], delta=2), None, "incr_multi")
    same(client.get("n"), 102, "get after incr_multi")


def many(client):
    items = {f"many-{index}": str(index) * (index % 60) for index in range(2000)}
    same(client.set_multi(items), [], "set_multi")
    same(client.get_multi(list(items)), items, "get_multi")
    same(client.get_multi(["1", "2"], key_prefix="many-"), {"1": "1", "2": "22"}, "get_multi with a prefix")
    same(client.delete_multi(list(items)[:1000]), True, "delete_multi")
    same(len(client.get_multi(list(items))), 1000, "get_multi after delete_multi")


def compare_and_swap(client):
    client.behaviors["cas"] = True
    same(client.set("c", "old"), True, "set")
    value, unique = client.gets("c")
    same(value, "old", "gets")
    same(client.cas("c", "new", unique), True, "cas")
    same(client.cas("c", "newer", unique), False, "cas of what has changed")
    same(client.get("c"), "new", "get after cas")
    client.behaviors["cas"] = False


def the_rest(client):
    same(client.touch("w", 1000), True, "touch")
    same(client.touch("absent", 1000), False, "touch of what is not there")
    same(client.delete("w"), True, "delete")
    same(client.delete("w"), False, "delete of what is not there")
    same(client.set("short", "1", time=-1), True, "set that has expired")
    same(client.get("short"), None, "get of what has expired")
    ((_, stats),) = client.get_stats()
    same(int(stats[b"curr_items" if b"curr_items" in stats else "curr_items"]) > 1000, True, "stats")
    clone = client.clone()
    same(clone.get("c"), "new", "get of a clone")
    same(client.flush_all(), True, "flush_all")
    same(client.get("c"), None, "get after flush_all")


def main():
    client = pylibmc.Client([f"{sys.argv[1]}:{sys.argv[2]}"], binary=False, behaviors={"tcp_nodelay": True})
    for part in (writes, numbers, many, compare_and_swap, the_rest):
        part(client)
    print(f"{checks} checks")


main()
