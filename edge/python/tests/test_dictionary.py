"""The dictionary that processes share."""

import multiprocessing
import os
import pickle
import threading

import pytest

import yonder
from conftest import Node


@pytest.fixture
def shared(node):
    """A dictionary on a node of its own."""
    with yonder.Dictionary(node.url) as shared:
        yield shared


def test_it_is_a_mutable_mapping(shared):
    assert not shared and list(shared) == [] and "a" not in shared
    shared["a"] = b"1"
    shared[b"b"] = bytearray(b"2")
    shared["ä"] = memoryview(b"3")
    assert shared[b"a"] == shared["a"] == b"1" and shared["b"] == b"2" and len(shared) == 3
    assert dict(shared) == {b"a": b"1", b"b": b"2", "ä".encode(): b"3"} and b"b" in shared and 5 not in shared
    assert sorted(shared.values()) == [b"1", b"2", b"3"] and shared == dict(shared.items())
    assert shared.get("none") is None and shared.get("none", b"x") == b"x"
    assert shared.setdefault("a", b"9") == b"1" and shared.setdefault("new", b"9") == b"9" == shared["new"]
    del shared["a"]
    assert shared.pop("b") == b"2" and shared.pop("b", None) is None
    for missing in (lambda: shared["a"], lambda: shared.pop("a"), lambda: shared.__delitem__("a")):
        with pytest.raises(KeyError, match="'a'"):
            missing()
    shared.update({"x": b"7", b"y": b""})
    assert shared["x"] == b"7" and shared["y"] == b""
    shared.clear()
    assert len(shared) == 0 and not list(shared)


def test_every_key_is_met_once(shared):
    expected = {str(number).encode() * (1 + number % 30): bytes([number % 256]) for number in range(3000)}
    shared.update(expected)
    assert len(shared) == 3000
    keys = list(shared)
    assert len(keys) == 3000 and set(keys) == expected.keys() and dict(shared.items()) == expected
    met = []
    for number, key in enumerate(shared):
        met.append(key)
        # The table shrinks and grows meanwhile.
        if number % 2 and key != keys[0]:
            del shared[key]
            shared[b"new %d" % number] = b""
    assert len(met) == len(set(met)) and expected.keys() <= set(met)


def test_sizes(shared):
    shared[b"k" * 4096] = b"v" * 60_000
    shared[b""] = b""
    assert shared[b"k" * 4096] == b"v" * 60_000 and shared[b""] == b""
    for wrong in (lambda: shared.get(b"k" * 4097), lambda: shared.update({b"k": b"v" * 65_536})):
        with pytest.raises(ValueError, match="at most"):
            wrong()
    for wrong in (lambda: shared.update({"k": 5}), lambda: shared.update({"k": "text"}), lambda: shared[5]):
        with pytest.raises(TypeError, match="bytes-like"):
            wrong()


def test_a_node_that_is_asked_by_datagrams(node):
    other = Node(os.environ["YONDER_BIN"], scheme="udp")
    try:
        with yonder.Dictionary(other.url) as shared:
            expected = {b"%d" % number * 500: b"v" for number in range(200)}
            shared.update(expected)
            shared[b"k"] = b"v" * 65_000
            assert shared.pop(b"k") == b"v" * 65_000 and shared == expected
            with pytest.raises(ValueError, match="too long for a message to udp://.*name the node by tcp://"):
                shared[b"k"] = b"v" * 65_500
    finally:
        other.kill()


def test_another_process_sees_the_same_one(shared, run):
    shared["question"] = b"6 * 7"
    program = """
        import sys, yonder
        with yonder.Dictionary(sys.argv[1], sys.argv[2]) as same:
            same["answer"] = str(eval(same["question"])).encode()
            print(sorted(same), same.ticket == sys.argv[2])
    """
    ended = run(program, shared.url, shared.ticket)
    assert ended.stdout == "[b'answer', b'question'] True\n", ended.stderr
    assert shared["answer"] == b"42", "it has not ended with those who have opened it"


def _note(shared, number):
    shared[str(number)] = b"seen"
    return shared.setdefault("first", str(number).encode())


def test_pickled_it_is_the_same_one(shared):
    assert pickle.loads(pickle.dumps(shared)).setdefault("a", b"1") == shared["a"]
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        first = pool.starmap(_note, [(shared, number) for number in range(6)])
    assert len(set(first)) == 1 and len(shared) == 8


def test_threads_use_it_at_the_same_time(shared):
    def work(number):
        for turn in range(50):
            shared[f"{number} {turn}"] = bytes([number])
            assert shared[f"{number} {turn}"] == bytes([number])

    running = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    assert len(shared) == 400


def test_a_forked_child_opens_its_own(shared):
    shared["a"] = b"1"
    url, ticket = shared.url, shared.ticket
    child = os.fork()
    if child == 0:
        code = 1
        try:
            with pytest.raises(RuntimeError, match=r"open it by yonder.Dictionary\(url, ticket\)"):
                shared["a"]
            shared.close()
            yonder.Dictionary(url, ticket)["b"] = b"2"
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert dict(shared) == {b"a": b"1", b"b": b"2"}


def test_keys_are_spread_over_several_nodes(node, shared):
    other = Node(os.environ["YONDER_BIN"])
    try:
        with yonder.Dictionary(f"{node.url},{other.url}") as both:
            expected = {b"%d" % number: b"v" for number in range(200)}
            both.update(expected)
            parts = [table.len() for table in both._tables]
            assert both == expected and sum(parts) == len(both) == 200 and min(parts) > 50
            assert yonder.Dictionary(both.url, both.ticket) == expected
            with pytest.raises(ValueError, match="2 tickets for 1 nodes"):
                yonder.Dictionary(node.url, both.ticket)
        assert not shared, "each dictionary is its own"
    finally:
        other.kill()


def test_a_dictionary_ends_with_its_maker(node):
    made = yonder.Dictionary(node.url)
    made["a"] = b"1"
    same = yonder.Dictionary(node.url, made.ticket)
    made.close()
    assert made.closed and not same.closed
    with pytest.raises(ValueError, match="was closed"):
        made["a"]
    with pytest.raises(yonder.NodeError, match="has forgotten this address space") as caught:
        same["a"]
    assert isinstance(caught.value, OSError) and caught.value.node == node.url


def test_a_node_that_is_gone_is_an_error(node):
    shared = yonder.Dictionary(node.url, deadline="300ms")
    shared["a"] = b"1"
    node.kill()
    with pytest.raises(yonder.NodeError, match="does not answer") as caught:
        shared["a"]
    assert caught.value.node == node.url and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "arguments, error, text",
    [
        (("nowhere",), ValueError, "nowhere"),
        (("controller://127.0.0.1:1",), ValueError, "give the URLs of nodes"),
        (("shm:///no/such/socket",), ConnectionError, "/no/such/socket"),
        (("tcp://127.0.0.1:1", "ticket"), ValueError, "'ticket' is not a ticket"),
        (("tcp://127.0.0.1:1", None, "5"), ValueError, "such as 2.5us"),
    ],
)
def test_what_cannot_be_opened_says_what_to_give(arguments, error, text):
    with pytest.raises(error, match=text) as caught:
        yonder.Dictionary(*arguments)
    assert "\n" not in str(caught.value)
