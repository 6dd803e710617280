"""Every command of memcached's text protocol, through pymemcache, against the server at HOST PORT.

Prints the number of checks and exits with 0; exits with 77 where pymemcache is missing. Expiry is tested with moments
that have passed, so nothing waits.
"""

import sys
import time

try:
    from pymemcache.client.base import Client
    from pymemcache.exceptions import MemcacheClientError, MemcacheServerError
except ImportError as error:
    print(error)
    sys.exit(77)

SECONDS_OF_30_DAYS = 30 * 24 * 3600
LARGEST_VALUE = 1 << 20

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
    same(client.set("w", b"1"), True, "set")
    same(client.get("w"), b"1", "get after set")
    same(client.add("w", b"2"), False, "add of what is there")
    same(client.add("fresh", b"2"), True, "add")
    same(client.replace("w", b"3"), True, "replace")
    same(client.replace("absent", b"3"), False, "replace of what is not there")
    same(client.append("w", b"4"), True, "append")
    same(client.prepend("w", b"2"), True, "prepend")
    same(client.append("absent", b"4"), False, "append to what is not there")
    same(client.prepend("absent", b"4"), False, "prepend to what is not there")
    same(client.get("w"), b"234", "get after append and prepend")
    same(client.set("empty", b""), True, "set of nothing")
    same(client.get("empty"), b"", "get of nothing")
    same(client.set("binary", bytes(range(256)) + b"\r\nEND\r\n"), True, "set of any bytes")
    same(client.get("binary"), bytes(range(256)) + b"\r\nEND\r\n", "get of any bytes")
    same(client.get("absent"), None, "get of what is not there")
    same(client.get("absent", b"default"), b"default", "get with a default")


def compare_and_swap(client):
    client.set("c", b"old")
    value, unique = client.gets("c")
    same(value, b"old", "gets")
    same(client.cas("c", b"new", unique), True, "cas")
    same(client.cas("c", b"newer", unique), False, "cas of what has changed")
    same(client.cas("absent", b"x", unique), None, "cas of what is not there")
    same(client.get("c"), b"new", "get after cas")
    same(client.gets("absent"), (None, None), "gets of what is not there")


def deletes(client):
    client.set("d", b"1")
    same(client.delete("d", noreply=False), True, "delete")
    same(client.delete("d", noreply=False), False, "delete of what is not there")
    same(client.get("d"), None, "get after delete")
    client.set_many({"d1": b"1", "d2": b"2"})
    same(client.delete_many(["d1", "d2"], noreply=False), True, "delete_many")
    same(client.get_many(["d1", "d2"]), {}, "get_many after delete_many")


def arithmetic(client):
    client.set("n", b"98")
    same(client.incr("n", 3), 101, "incr")
    same(client.decr("n", 1), 100, "decr")
    same(client.decr("n", 1000), 0, "decr below zero")
    same(client.incr("absent", 1), None, "incr of what is not there")
    same(client.decr("absent", 1), None, "decr of what is not there")
    client.set("n", b"18446744073709551615")
    same(client.incr("n", 1), 0, "incr wraps")
    client.set("word", b"word")
    refused(MemcacheClientError, lambda: client.incr("word", 1), "incr of a word")


def get_and_touch(client, when):
    """What `gat` answers for the key "e", which pymemcache has no call for."""
    return client.raw_command(b"gat %d e" % when, b"END\r\n")


def expiry(client):
    long_ago = int(time.time()) - 10 * SECONDS_OF_30_DAYS
    later = int(time.time()) + SECONDS_OF_30_DAYS
    for when, name in ((-1, "negative"), (long_ago, "past")):
        same(client.set("e", b"1", expire=when), True, f"set with a {name} expiry")
        same(client.get("e"), None, f"get after a {name} expiry")
        same(client.add("e", b"2"), True, f"add after a {name} expiry")
        same(client.touch("e", expire=when, noreply=False), True, f"touch with a {name} expiry")
        same(client.get("e"), None, f"get after a touch with a {name} expiry")
        client.set("e", b"3")
        same(get_and_touch(client, when), b"VALUE e 0 1\r\n3\r\n", f"gat with a {name} expiry")
        same(client.get("e"), None, f"get after a gat with a {name} expiry")
    for when, name in ((0, "no"), (1000, "relative"), (later, "future")):
        same(client.set("e", b"4", expire=when), True, f"set with {name} expiry")
        same(client.get("e"), b"4", f"get with {name} expiry")
        same(client.touch("e", expire=when, noreply=False), True, f"touch with {name} expiry")
        same(get_and_touch(client, when), b"VALUE e 0 1\r\n4\r\n", f"gat with {name} expiry")
    same(client.touch("absent", expire=10, noreply=False), False, "touch of what is not there")
    _, unique = client.gets("e")
    same(client.raw_command(b"gats 0 e absent", b"END\r\n"), b"VALUE e 0 1 " + unique + b"\r\n4\r\n", "gats")
    client.delete("e")
    same(get_and_touch(client, 10), b"", "gat of what is not there")


def without_replies(client):
    quiet = {"noreply": True}
    client.set("q", b"1", **quiet)
    client.append("q", b"2", **quiet)
    client.prepend("q", b"0", **quiet)
    client.add("q", b"no", **quiet)
    same(client.get("q"), b"012", "get after quiet writes")
    client.replace("q", b"7", **quiet)
    client.incr("q", 5, **quiet)
    client.decr("q", 2, **quiet)
    same(client.get("q"), b"10", "get after quiet arithmetic")
    client.touch("q", expire=100, **quiet)
    _, unique = client.gets("q")
    client.cas("q", b"swapped", unique, **quiet)
    client.cas("q", b"no", unique, **quiet)
    same(client.get("q"), b"swapped", "get after a quiet cas")
    client.delete("q", **quiet)
    client.delete("q", **quiet)
    same(client.get("q"), None, "get after a quiet delete")


def many_keys(client):
    items = {f"many-{index}": b"%d" % index * (index % 97) for index in range(5000)}
    same(client.set_many(items, noreply=False), [], "set_many")
    same(client.get_many(items), items, "get_many of 5000 keys at once")
    found = client.gets_many(list(items)[:100])
    same({key: value for key, (value, _) in found.items()}, dict(list(items.items())[:100]), "gets_many")


def large_values(client):
    for size in (1000, 4096, 65_537, 500_000, LARGEST_VALUE):
        value = bytes((index * 31 + size) % 251 for index in range(size))
        same(client.set("large", value), True, f"set of {size} bytes")
        same(client.get("large"), value, f"get of {size} bytes")
    refused(MemcacheServerError, lambda: client.set("large", bytes(LARGEST_VALUE + 1)), "set of one byte too many")
    same(client.get("large"), None, "get after a set that was too large")
    key = "k" * 250
    same(client.set(key, b"1"), True, "set with the longest key")
    same(client.get(key), b"1", "get with the longest key")


def the_rest(client):
    same(client.version().startswith(b"1."), True, "version")
    stats = client.stats()
    same(stats[b"curr_items"] > 5000 and stats[b"cmd_get"] > 5000, True, "stats")
    same(client.stats("settings")[b"item_size_max"], LARGEST_VALUE, "stats settings")
    client.set("flags", b"1", flags=4_000_000_000)
    same(client.raw_command(b"get flags", b"END\r\n"), b"VALUE flags 4000000000 1\r\n1\r\n", "flags")
    same(client.raw_command(b"verbosity 1"), b"OK", "verbosity")
    same(client.flush_all(noreply=False), True, "flush_all")
    same(client.get("flags"), None, "get after flush_all")
    client.set("flags", b"2")
    client.flush_all(delay=1000, noreply=True)
    same(client.get("flags"), b"2", "get before a flush that is due later")
    client.quit()


def main():
    client = Client((sys.argv[1], int(sys.argv[2])), timeout=60, connect_timeout=60, default_noreply=False)
    for part in (
        writes,
        compare_and_swap,
        deletes,
        arithmetic,
        expiry,
        without_replies,
        many_keys,
        large_values,
        the_rest,
    ):
        part(client)
    print(f"{checks} checks")


main()
