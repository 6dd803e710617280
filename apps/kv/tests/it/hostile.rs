//! Clients that want what others need: memory for values that they never finish or replies that they never take, the
//! last connection, and answers for machines that never asked.

use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use yonder_kv::{KvConfig, UdpTrust};

use crate::harness::{Running, ask, read_until, stat};
use crate::memory::FlatMemory;

/// What the buffers of all clients may take: a little more than [`HOLDERS`] values.
const BUFFERS: usize = 8 << 20;
const HOLDERS: usize = 8;
const VALUE: usize = 1 << 20;
const OUT_OF_MEMORY: &[u8] = b"SERVER_ERROR out of memory storing object\r\n";
const NO_ROOM_FOR_REPLY: &[u8] = b"SERVER_ERROR out of memory writing get response\r\n";
/// Ends a test in which something never happens.
const PATIENCE: Duration = Duration::from_secs(30);

fn start(adjust: impl FnOnce(&mut KvConfig)) -> Running {
    Running::start(FlatMemory::new(64 << 20), |config| {
        config.buffer_bytes_max = Some(BUFFERS);
        adjust(config);
    })
}

/// Tries until it succeeds.
fn until<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(success) = attempt() {
            return success;
        }
        assert!(start.elapsed() < PATIENCE, "not in {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(1)); // tidy: sleep: back-off between attempts
    }
}

fn set(key: &str, noreply: &str) -> Vec<u8> {
    [format!("set {key} 0 0 {VALUE}{noreply}\r\n").as_bytes(), &vec![b'v'; VALUE], b"\r\n"].concat()
}

/// Asks for a large value: the answer is whether it came as a whole. The alternative is that there was no room for it.
fn is_answered(client: &mut TcpStream) -> bool {
    client.write_all(b"get k\r\n").expect("the server listens");
    let mut reply = [0; NO_ROOM_FOR_REPLY.len()];
    client.read_exact(&mut reply).expect("the connection stays");
    if reply == NO_ROOM_FOR_REPLY {
        return false;
    }
    assert!(reply.starts_with(b"VALUE k 0 "), "{}", reply.escape_ascii());
    assert_eq!(read_until(client, b"END\r\n").len() + reply.len(), "VALUE k 0 1048576\r\n\r\nEND\r\n".len() + VALUE);
    true
}

/// Clients that have each sent most of a value.
fn half_sent(server: &Running, count: usize) -> Vec<TcpStream> {
    let half = &set("half", "")[..1_000_000];
    let send = |_| {
        let mut client = server.connect();
        client.write_all(half).expect("the server listens to a client that goes on");
        client
    };
    (0..count).map(send).collect()
}

/// Clients that have between them nearly all that there is, and have had it for less than a second, as a rule.
fn holders(server: &Running, good: &mut TcpStream) -> Vec<TcpStream> {
    let holders = half_sent(server, HOLDERS);
    until("all holders have their memory", || (stat(good, "buffer_bytes") > BUFFERS as u64 * 15 / 16).then_some(()));
    holders
}

#[test]
fn half_sent_values_keep_no_memory_from_others() {
    let server = start(|_| {});
    let mut good = server.connect();
    let mut silent = holders(&server, &mut good);
    silent.extend(half_sent(&server, 4 * HOLDERS));
    let mut refused = 0;
    until("a good client's value is stored", || {
        // A byte now and then changes nothing. Some are gone, and some get theirs thrown away.
        silent.iter_mut().for_each(|client| drop(client.write_all(b"v")));
        match ask(&mut good, &set("k", ""), b"\r\n").as_slice() {
            b"STORED\r\n" => Some(()),
            reply => {
                assert_eq!(reply, OUT_OF_MEMORY);
                refused += 1;
                None
            }
        }
    });
    assert!(ask(&mut good, b"get k\r\n", b"END\r\n").len() > VALUE);
    assert!(stat(&mut good, "buffer_refusals") >= refused);
    assert!(stat(&mut good, "silent_kicks") >= 1);
    let peak = stat(&mut good, "buffer_bytes_peak");
    assert!(peak <= BUFFERS as u64 && peak > BUFFERS as u64 / 2, "{peak} of {BUFFERS} bytes were taken");
    drop(silent);
    until("all memory is given back", || (stat(&mut good, "buffer_bytes") == 0).then_some(()));
}

#[test]
fn a_value_without_room_is_refused_takes_the_old_one_along_and_harms_nothing_behind_it() {
    let server = start(|_| {});
    let mut good = server.connect();
    for (noreply, expected) in [("", [OUT_OF_MEMORY, b"END\r\n"].concat()), (" noreply", b"END\r\n".to_vec())] {
        until("a value is refused", || {
            let _holders = holders(&server, &mut good);
            assert_eq!(ask(&mut good, b"set k 0 0 3\r\nold\r\n", b"\r\n"), b"STORED\r\n");
            let reply = ask(&mut good, &[&set("k", noreply)[..], b"get k\r\n"].concat(), b"END\r\n");
            if reply.len() > VALUE {
                // The holders were silent for a second before the server came to this.
                return None;
            }
            assert_eq!(reply.escape_ascii().to_string(), expected.escape_ascii().to_string());
            Some(())
        });
    }
}

#[test]
fn a_line_without_room_ends_its_connection() {
    let server = start(|_| {});
    let mut good = server.connect();
    until("a line is refused", || {
        let _holders = holders(&server, &mut good);
        let reply = server.converse(&[b"get", &b" k".repeat(400_000)[..]].concat());
        if reply.is_empty() {
            // There was room, because the holders were silent for a second, so its end ended it.
            return None;
        }
        assert_eq!(String::from_utf8_lossy(&reply), "SERVER_ERROR out of memory reading request\r\n");
        Some(())
    });
}

#[test]
fn replies_that_are_not_taken_keep_no_memory_from_others() {
    const GREEDY: usize = 2 * HOLDERS;
    let server = start(|_| {});
    let mut good = server.connect();
    assert_eq!(ask(&mut good, &set("k", ""), b"\r\n"), b"STORED\r\n");
    let greedy: Vec<TcpStream> = (0..GREEDY)
        .map(|_| {
            let mut client = server.connect();
            // More than the system takes on their behalf.
            client.write_all(&b"get k\r\n".repeat(30)).expect("the commands fit the socket");
            client
        })
        .collect();
    until("a good client gets the value", || {
        let mut client = server.connect();
        let mut reply = Vec::new();
        let whole = client.write_all(b"get k\r\nquit\r\n").is_ok() && client.read_to_end(&mut reply).is_ok();
        assert!(whole && (reply.ends_with(b"END\r\n") || reply == NO_ROOM_FOR_REPLY), "{}", reply.escape_ascii());
        (reply != NO_ROOM_FOR_REPLY).then_some(())
    });
    let peak = stat(&mut good, "buffer_bytes_peak");
    assert!(peak <= BUFFERS as u64 && peak > BUFFERS as u64 / 2, "{peak} of {BUFFERS} bytes were taken");
    drop(greedy);
    until("all memory is given back", || (stat(&mut good, "buffer_bytes") == 0).then_some(()));
}

#[test]
fn a_value_without_room_for_its_reply_is_refused_and_ends_no_connection() {
    let server = start(|_| {});
    let mut good = server.connect();
    assert_eq!(ask(&mut good, &set("k", ""), b"\r\n"), b"STORED\r\n");
    until("a value is refused", || {
        let kicks = stat(&mut good, "silent_kicks");
        let holders = holders(&server, &mut good);
        let is_answered = is_answered(&mut good);
        assert_eq!(ask(&mut good, b"get absent\r\n", b"END\r\n"), b"END\r\n", "what needs little is served");
        let connections = stat(&mut good, "curr_connections");
        // Else the holders were silent for a second before the server came to this.
        let is_as_meant = !is_answered && stat(&mut good, "silent_kicks") == kicks;
        is_as_meant.then(|| assert!(connections > holders.len() as u64, "{connections} connections are left"))
    });
    assert!(stat(&mut good, "buffer_refusals") >= 1);
    until("it is answered when there is room", || is_answered(&mut good).then_some(()));
    assert!(stat(&mut good, "buffer_bytes_peak") <= BUFFERS as u64);
}

/// Requests under way and replies on their way have no more than there is, however many ask at a time.
#[test]
fn many_readers_of_large_values_have_a_bound_together() {
    const READERS: usize = 12;
    let server = start(|_| {});
    let mut good = server.connect();
    assert_eq!(ask(&mut good, &set("k", ""), b"\r\n"), b"STORED\r\n");
    std::thread::scope(|scope| {
        for _ in 0..READERS {
            scope.spawn(|| {
                let mut client = server.connect();
                for _ in 0..5 {
                    until("a value comes", || is_answered(&mut client).then_some(()));
                }
            });
        }
    });
    let peak = stat(&mut good, "buffer_bytes_peak");
    assert!(peak <= BUFFERS as u64 && peak >= VALUE as u64 / 2, "{peak} of {BUFFERS} bytes were taken");
    until("all memory is given back", || (stat(&mut good, "buffer_bytes") == 0).then_some(()));
}

#[test]
fn the_last_connection_is_taken_from_a_client_that_is_silent_half_way() {
    let server = start(|config| config.connections_max = 3);
    let mut idle = server.connect();
    assert_eq!(ask(&mut idle, b"get k\r\n", b"\r\n"), b"END\r\n");
    let mut half: Vec<TcpStream> = Vec::new();
    for count in 2..4 {
        let mut client = server.connect();
        client.write_all(b"set k 0 0 8\r\nhalf").expect("the server listens");
        half.push(client);
        until("a client is known", || (stat(&mut idle, "curr_connections") == count).then_some(()));
    }
    let mut new = until("a new client gets a place", || {
        let mut client = server.connect();
        // The server may have turned it away, and forgotten it, by now.
        let _ = client.write_all(b"get k\r\n");
        let mut reply = [0; 5];
        client.read_exact(&mut reply).ok()?;
        (&reply == b"END\r\n").then_some(client)
    });
    assert_eq!(stat(&mut idle, "silent_kicks"), 1);
    assert!(matches!(half[0].read(&mut [0; 8]), Ok(0) | Err(_)), "the one that was silent longest is gone");
    assert_eq!(ask(&mut half[1], b"half\r\n", b"\r\n"), b"STORED\r\n");
    assert!(ask(&mut new, b"get k\r\n", b"END\r\n").starts_with(b"VALUE k 0 8\r\nhalfhalf"));
}

#[test]
fn clients_that_have_never_said_a_thing_keep_no_other_out() {
    let server = start(|config| config.connections_max = 3);
    let mut idle = server.connect();
    assert_eq!(ask(&mut idle, b"get k\r\n", b"\r\n"), b"END\r\n");
    let silent = [server.connect(), server.connect()];
    until("all places are taken", || (stat(&mut idle, "curr_connections") == 3).then_some(()));
    let new = until("a new client gets a place", || {
        let mut client = server.connect();
        let _ = client.write_all(b"get k\r\n");
        let mut reply = [0; 5];
        client.read_exact(&mut reply).ok()?;
        (&reply == b"END\r\n").then_some(client)
    });
    assert_eq!(ask(&mut idle, b"get k\r\n", b"\r\n"), b"END\r\n", "one that has asked stays");
    drop((silent, new));
}

#[test]
fn idle_clients_are_closed_where_that_is_wanted() {
    let server = start(|config| config.idle_timeout = Some(Duration::from_secs(2)));
    let (mut idle, mut busy) = (server.connect(), server.connect());
    assert_eq!(ask(&mut idle, b"get k\r\n", b"\r\n"), b"END\r\n");
    idle.set_nonblocking(true).expect("a socket option");
    let start = Instant::now();
    until("an idle client is closed", || {
        assert_eq!(ask(&mut busy, b"get k\r\n", b"\r\n"), b"END\r\n");
        matches!(idle.read(&mut [0; 8]), Ok(0)).then_some(())
    });
    assert!(start.elapsed() > Duration::from_millis(1900), "closed after {:?}", start.elapsed());
    assert_eq!(stat(&mut busy, "idle_kicks"), 1);
}

#[test]
fn a_source_that_proves_nothing_is_sent_no_more_than_came_from_it() {
    const ASKED: u64 = 50;
    const ERROR: &[u8] = b"SERVER_ERROR reply too large for UDP\r\n";
    let server = start(|config| config.udp_trust = UdpTrust::NoSource);
    let mut good = server.connect();
    assert_eq!(ask(&mut good, &set("k", ""), b"\r\n"), b"STORED\r\n");
    let start = Instant::now();
    let forged = UdpSocket::bind("127.0.0.1:0").expect("loopback has free ports");
    forged.connect(server.udp.expect("it listens on udp")).expect("an address");
    forged.set_read_timeout(Some(Duration::from_secs(1))).expect("a valid timeout");
    let (mut sent, mut received) = (0, 0);
    let mut send = |id: u8, command: &[u8]| {
        sent += forged.send(&[&[0, id, 0, 0, 0, 1, 0, 0], command].concat()).expect("sent");
    };
    let mut receive_until = |id: u8| {
        let mut datagram = [0; 2000];
        while let Ok(bytes) = forged.recv(&mut datagram) {
            received += bytes;
            if datagram[1] == id {
                return Some(datagram[8..bytes].to_vec());
            }
        }
        None
    };
    while stat(&mut good, "cmd_get") < ASKED {
        send(1, b"get k\r\n");
    }
    let mut answer = |id, command: &[u8]| {
        until("a short answer", || {
            send(id, command);
            receive_until(id)
        })
    };
    // What is no longer than its question is answered, and the error is no longer than this one.
    assert_eq!(answer(2, b"get absent\r\n"), b"END\r\n");
    assert_eq!(answer(3, &[b"get k", &b" absent".repeat(10)[..], b"\r\n"].concat()), ERROR);
    let allowed = sent as u64 + 1400 * (2 + start.elapsed().as_secs());
    assert!(received as u64 <= allowed, "{received} bytes came for {sent} that were sent");
    assert!(stat(&mut good, "udp_answers_withheld") > ASKED / 2);
    // A connection proves its source.
    assert!(ask(&mut good, b"get k\r\n", b"END\r\n").len() > VALUE);
}
