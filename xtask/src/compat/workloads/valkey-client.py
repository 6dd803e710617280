# Fills the server, reads all of it in another order, has it write a snapshot, which forks it, and says what it read.
import hashlib
import sys
import time

import valkey

KEYS = 60_000
SNAPSHOT_TIME_MAX = 60

server = valkey.Valkey(unix_socket_path=sys.argv[1])


def value(number):
    return hashlib.md5(str(number).encode()).hexdigest() * (1 + number % 40)


def fill(numbers):
    pipe = server.pipeline(transaction=False)
    for number in numbers:
        pipe.set(f"key:{number}", value(number))
        pipe.zadd("scores", {f"member:{number}": number * 7919 % 100_003})
    pipe.execute()


for first in range(0, KEYS, 1000):
    fill(range(first, first + 1000))

server.bgsave()
deadline = time.monotonic() + SNAPSHOT_TIME_MAX
while server.info("persistence")["rdb_bgsave_in_progress"] and time.monotonic() < deadline:
    time.sleep(0.01)
print("snapshot", server.info("persistence")["rdb_last_bgsave_status"])

digest = hashlib.sha256()
order = [number * 7919 % KEYS for number in range(KEYS)]
for first in range(0, KEYS, 500):
    for number, read in zip(order[first:], server.mget(f"key:{number}" for number in order[first : first + 500])):
        assert read.decode() == value(number), number
        digest.update(read)
print("keys", server.dbsize(), digest.hexdigest())
digest = hashlib.sha256()
for member, score in server.zrange("scores", 0, -1, withscores=True):
    digest.update(member + str(int(score)).encode())
print("scores", server.zcard("scores"), digest.hexdigest())
