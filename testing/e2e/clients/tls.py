"""TLS and a password, through Python's own `ssl`, against the server at HOST PORT: tls.py HOST PORT AUTHORITY.

Then through pymemcache, if it is there. Prints the number of checks and exits with 0.
"""

import socket
import ssl
import sys

LARGE = bytes(index % 251 for index in range(1 << 20))

checks = 0


def same(found, wanted, what):
    global checks
    checks += 1
    if found != wanted:
        sys.exit(f"{what}: {found!r:.200} instead of {wanted!r:.200}")


def ask(stream, said, lines=1):
    stream.write(said)
    stream.flush()
    return b"".join(stream.readline() for _ in range(lines))


def by_hand(host, port, context):
    with socket.create_connection((host, port)) as plain, context.wrap_socket(plain, server_hostname=host) as secure:
        same(secure.version(), "TLSv1.3", "the version")
        stream = secure.makefile("rwb")
        same(ask(stream, b"get k\r\n"), b"CLIENT_ERROR unauthenticated\r\n", "get of a stranger")
        same(ask(stream, b"set k 0 0 12\r\nalice secret\r\n"), b"STORED\r\n", "the password")
        same(ask(stream, b"set k 0 0 %d\r\n%b\r\n" % (len(LARGE), LARGE)), b"STORED\r\n", "set of a large value")
        same(ask(stream, b"get k\r\n"), b"VALUE k 0 %d\r\n" % len(LARGE), "get of it")
        same(stream.read(len(LARGE)), LARGE, "its bytes")
        same(ask(stream, b"", 2), b"\r\nEND\r\n", "its end")
        # Python raises an error if the end is not said.
        same(ask(stream, b"quit\r\n"), b"", "quit")


def in_plain(host, port):
    with socket.create_connection((host, port)) as plain:
        plain.sendall(b"version\r\n")
        same(plain.makefile("rb").read()[:1], b"\x15", "the answer in plain, an alert")


def pymemcache(host, port, context):
    try:
        from pymemcache.client.base import Client
    except ImportError:
        return
    client = Client((host, port), tls_context=context)
    client.set("ignored", b"alice secret", noreply=False)
    same(client.set("p", LARGE, noreply=False), True, "set through pymemcache")
    same(client.get("p"), LARGE, "get through pymemcache")
    client.close()


def main():
    host, port, authority = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    context = ssl.create_default_context(cafile=authority)
    by_hand(host, port, context)
    in_plain(host, port)
    pymemcache(host, port, context)
    print(f"{checks} checks")


main()
