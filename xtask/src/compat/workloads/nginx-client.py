# Writes the table of names, and the file that is sent. `ask` asks for both, over the server's socket.
import gzip
import hashlib
import http.client
import pathlib
import socket
import sys

NAMES = 300_000
ASKED = 3_000
FILE_BYTES = 8 << 20

folder = pathlib.Path(sys.argv[2])


class Connection(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(folder / "nginx.socket"))


def prepare():
    with open(folder / "names.map", "w") as names:
        for number in range(NAMES):
            names.write(f"name-{number:08}-{number * 7919 % NAMES:08} {number};\n")
    block = hashlib.sha512(b"file").hexdigest() + "\n"
    (folder / "file.txt").write_text(block * (FILE_BYTES // len(block)))


def ask():
    server = Connection("localhost")
    digest = hashlib.sha256()
    for turn in range(ASKED):
        number = turn * 104_729 % NAMES
        server.request("GET", f"/number?name=name-{number:08}-{number * 7919 % NAMES:08}")
        answer = server.getresponse().read()
        assert answer == f"{number}\n".encode(), (number, answer)
        digest.update(answer)
    print("names", digest.hexdigest())
    for encoding in ["identity", "gzip"]:
        server.request("GET", "/file.txt", headers={"Accept-Encoding": encoding})
        content = server.getresponse().read()
        content = gzip.decompress(content) if encoding == "gzip" else content
        print("file", len(content), hashlib.sha256(content).hexdigest())


{"prepare": prepare, "ask": ask}[sys.argv[1]]()
