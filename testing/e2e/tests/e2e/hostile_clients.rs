//! Clients that send nonsense, too much, too little or too slowly: they get the protocol's errors and hurt nobody else.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use yonder_e2e::{Client, Content, Got, Process, TIMEOUT, Yonder};

/// Longest that a well-behaved client waits for an answer while others misbehave.
const ANSWER: Duration = Duration::from_secs(5);
/// Rounds of a well-behaved client beside each kind of misbehaviour.
const ROUNDS: u64 = 50;

fn serve(yonder: Yonder) -> Process {
    yonder.serve(&["kv", "--listen", "127.0.0.1:0", "--memory", "64MiB", "--local", "4MiB"])
}

/// Runs `misbehave` while a well-behaved client writes and reads; fails if that one waits long or reads anything wrong.
fn beside_a_good_client<R>(server: SocketAddr, misbehave: impl FnOnce() -> R) -> R {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let good = scope.spawn(|| {
            let content = Content { name: "good", keys: 500, value_bytes: 2000 };
            let mut client = Client::connect(server);
            let mut rounds = 0;
            while rounds < ROUNDS || !over.load(Ordering::Acquire) {
                let (index, version) = (rounds % content.keys, rounds);
                let start = Instant::now();
                client.fill(&content, index..=index, version);
                client.verify(&content, index..=index, version);
                assert!(start.elapsed() < ANSWER, "two answers took {:?}", start.elapsed());
                rounds += 1;
            }
        });
        // Told also when misbehaving fails, so that the failure is seen.
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(misbehave));
        over.store(true, Ordering::Release);
        good.join().expect("a good client is served");
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Sends everything, ends the sending side, and returns all that comes back.
fn converse(server: SocketAddr, input: &[u8]) -> String {
    let mut client = Client::connect(server);
    client.send(input);
    client.finish().escape_ascii().to_string().replace("\\r\\n", "\n")
}

#[test]
fn malformed_commands_get_the_protocols_errors() {
    const FORMAT: &str = "CLIENT_ERROR bad command line format\n";
    let Some(yonder) = Yonder::ready() else { return };
    let process = serve(yonder);
    let server = process.address();
    let long_key = format!("get {}\r\n", "k".repeat(251));
    let long_set = format!("set {} 0 0 1\r\n", "k".repeat(251));
    let long_line = "x".repeat(100_000);
    let cases: [(&[u8], &str); 22] = [
        (b"nonsense\r\n", "ERROR\n"),
        (b"\r\n", "ERROR\n"),
        (b"GET k\r\n", "ERROR\n"),
        (b"get\r\n", "ERROR\n"),
        (b"set k 0 0\r\n", "ERROR\n"),
        (b"set k 0 0 -1\r\n", FORMAT),
        (b"set k 0 0 many\r\n", FORMAT),
        (b"set k 0 0 99999999999999999999\r\n", FORMAT),
        (b"set k zero 0 1\r\n", FORMAT),
        (b"set k 0 0 1\r\ntoo much\r\nversion\r\n", "CLIENT_ERROR bad data chunk\nERROR\nVERSION"),
        (b"set n 0 0 1\r\nx\r\nincr n 1\r\n", "STORED\nCLIENT_ERROR cannot increment or decrement non-numeric value\n"),
        (b"incr n one\r\n", "CLIENT_ERROR invalid numeric delta argument\n"),
        (b"touch n soon\r\n", "CLIENT_ERROR invalid exptime argument\n"),
        (b"cas n 0 0 1\r\n", "ERROR\n"),
        (b"cas n 0 0 1 x\r\n", FORMAT),
        (b"delete n 5\r\n", "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\n"),
        (long_key.as_bytes(), FORMAT),
        (long_set.as_bytes(), FORMAT),
        (long_line.as_bytes(), "CLIENT_ERROR line too long\n"),
        // A browser, the binary protocol, and noise.
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nflush_all\r\n", ""),
        (b"\x80\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\r\nversion\r\n", "ERROR\nVERSION"),
        (b"\x00\xff\xfe get k\x00\x7f\r\nget \x00\r\n", "ERROR\nCLIENT_ERROR bad command line format\n"),
    ];
    beside_a_good_client(server, || {
        for (input, expected) in cases {
            let answer = converse(server, input);
            let shown = input[..input.len().min(60)].escape_ascii();
            assert!(answer.starts_with(expected), "'{shown}' got '{answer}' instead of '{expected}'");
            let tail = answer.strip_prefix(expected).expect("just seen");
            assert!(tail.is_empty() || expected.ends_with("VERSION"), "'{shown}' got '{answer}'");
        }
    });
}

#[test]
fn oversized_values_are_refused_and_take_the_old_one_along() {
    let Some(yonder) = Yonder::ready() else { return };
    let flags = ["kv", "--listen", "127.0.0.1:0", "--memory", "64MiB", "--local", "4MiB", "--value-max", "64KiB"];
    let process = yonder.serve(&flags);
    let server = process.address();
    beside_a_good_client(server, || {
        let mut client = Client::connect(server);
        let limit = 64 << 10;
        for bytes in [limit, limit + 1, 1 << 20, 5 << 20] {
            assert_eq!(client.set("v", b"small"), "STORED");
            let answer = client.set("v", &vec![b'x'; bytes]);
            if bytes <= limit {
                assert_eq!(answer, "STORED");
                assert_eq!(client.get("v"), Got::Value(vec![b'x'; bytes]));
            } else {
                assert_eq!(answer, "SERVER_ERROR object too large for cache");
                // The client wanted the old value gone, so it must not come back.
                assert_eq!(client.get("v"), Got::Miss);
            }
        }
        assert_eq!(client.set("v", b"grows"), "STORED");
        client.send(format!("append v 0 0 {limit}\r\n{}\r\n", "y".repeat(limit)).as_bytes());
        // As memcached answers; the item stays as it was.
        assert_eq!(client.line(), "NOT_STORED");
        assert_eq!(client.get("v"), Got::Value(b"grows".to_vec()));
        // Announced and never sent: the end of the connection ends it.
        assert_eq!(converse(server, b"set v 0 0 2000000000\r\nxxxx"), "SERVER_ERROR object too large for cache\n");
        assert_eq!(converse(server, b"set v 0 0 1000\r\nxxxx"), "");
    });
}

#[test]
fn half_closed_clients_get_every_answer() {
    const COMMANDS: usize = 2000;
    let Some(yonder) = Yonder::ready() else { return };
    let process = serve(yonder);
    let server = process.address();
    let (mut input, mut expected) = (String::new(), String::new());
    for number in 0..COMMANDS {
        let value = number.to_string().repeat(1 + number % 700);
        input.push_str(&format!("set h{number} 0 0 {}\r\n{value}\r\nget h{number} h\r\nbad\r\n", value.len()));
        expected.push_str(&format!("STORED\nVALUE h{number} 0 {}\n{value}\nEND\nERROR\n", value.len()));
    }
    beside_a_good_client(server, || {
        let mut client = Client::connect(server);
        let sender = client.send_the_last(input.into_bytes());
        for line in expected.lines() {
            assert_eq!(client.line(), line);
        }
        assert!(client.rest().is_empty());
        sender.join().expect("everything was sent");
        assert_eq!(converse(server, b"get h0\r\nget h1"), "VALUE h0 0 1\n0\nEND\n");
        assert_eq!(converse(server, b""), "");
    });
}

#[test]
fn slow_clients_keep_nobody_waiting() {
    const IDLE: usize = 100;
    const BIG_GETS: usize = 200;
    let Some(yonder) = Yonder::ready() else { return };
    let process = serve(yonder);
    let server = process.address();
    let value = vec![b'v'; 1 << 20];
    assert_eq!(Client::connect(server).set("big", &value), "STORED");
    beside_a_good_client(server, || {
        // Some say nothing, some stop in the middle of a command or of a value.
        let halves: [&[u8]; 4] = [b"", b"get big", b"set slow 0 0 1000000\r\nhalf", b"set slow 0 0 10"];
        let mut idle: Vec<Client> = (0..IDLE).map(|_| Client::connect(server)).collect();
        for (client, half) in idle.iter_mut().zip(halves.iter().cycle()) {
            client.send(half);
        }
        // One wants 200 MiB and takes none of it.
        let mut greedy = Client::connect(server);
        greedy.send(&b"get big\r\n".repeat(BIG_GETS));
        // One sends byte by byte.
        let mut dripping = Client::connect(server);
        for byte in b"set drip 0 0 20\r\n01234567890123456789\r\nget drip\r\n" {
            dripping.send(&[*byte]);
        }
        assert_eq!((dripping.line(), dripping.line()), ("STORED".to_owned(), "VALUE drip 0 20".to_owned()));
        // Those that stopped go on, and are served as if they never had.
        idle[1].send(b"\r\n");
        assert!(idle[1].next_item("big") == Got::Value(value.clone()));
        idle[3].send(b"\r\n0123456789\r\n");
        assert_eq!(idle[3].line(), "STORED");
        drop(idle);
        for _ in 0..BIG_GETS {
            assert!(greedy.next_item("big") == Got::Value(value.clone()));
        }
    });
}

/// The most memory that a process has had at a time.
fn peak_bytes(process: &Process) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.pid())).expect("the process lives");
    let kib = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("Linux says so");
    kib.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

#[test]
fn half_sent_values_take_no_more_memory_than_buffers_may() {
    const CLIENTS: usize = 300;
    let Some(yonder) = Yonder::ready() else { return };
    let flags = ["kv", "--listen", "127.0.0.1:0", "--memory", "64MiB", "--local", "4MiB", "--buffers", "16MiB"];
    let process = yonder.serve(&flags);
    let server = process.address();
    let before = peak_bytes(&process);
    let grown = beside_a_good_client(server, || {
        let half = [&b"set half 0 0 1048000\r\n"[..], &vec![b'y'; 1_000_000]].concat();
        let mut clients: Vec<Client> = (0..CLIENTS).map(|_| Client::connect(server)).collect();
        clients.iter_mut().for_each(|client| client.send(&half));
        // Large values of others are stored, once these clients have been silent for a moment.
        let (mut good, start) = (Client::connect(server), Instant::now());
        while good.set("large", &vec![b'v'; 1 << 20]) != "STORED" {
            assert!(start.elapsed() < TIMEOUT, "half-sent values keep others from being stored");
        }
        assert_eq!(good.get("large"), Got::Value(vec![b'v'; 1 << 20]));
        peak_bytes(&process) - before
    });
    // The buffers, what each client has at rest, and what the allocator makes of both.
    assert!(grown < 64 << 20, "{CLIENTS} clients that never finish took {} MiB", grown >> 20);
}

#[test]
fn clients_that_vanish_are_forgotten() {
    let Some(yonder) = Yonder::ready() else { return };
    let process = serve(yonder);
    let server = process.address();
    let mut watcher = Client::connect(server);
    assert_eq!(watcher.set("big", &vec![b'v'; 1 << 20]), "STORED");
    for _ in 0..50 {
        // Closing with replies unread resets the connection.
        let mut client = Client::connect(server);
        client.send(&b"get big\r\n".repeat(20));
        assert_eq!(client.line(), "VALUE big 0 1048576");
    }
    let give_up = Instant::now() + TIMEOUT;
    while watcher.stats().number("curr_connections") > 1 {
        assert!(Instant::now() < give_up, "the server still waits for clients that are gone");
    }
    assert_eq!(watcher.stats().number("total_connections"), 51);
}

#[test]
fn clients_beyond_the_limit_are_told_so() {
    let Some(yonder) = Yonder::ready() else { return };
    let flags = ["kv", "--listen", "127.0.0.1:0", "--memory", "64MiB", "--local", "4MiB", "--connections", "3"];
    let process = yonder.serve(&flags);
    let server = process.address();
    let mut clients: Vec<Client> = (0..3).map(|_| Client::connect(server)).collect();
    for client in &mut clients {
        assert!(client.ask("version").starts_with("VERSION "));
    }
    assert_eq!(Client::connect(server).line(), "ERROR Too many open connections");
    assert_eq!(clients[0].set("k", b"1"), "STORED");
    clients.pop();
    let give_up = Instant::now() + TIMEOUT;
    while clients[0].stats().number("curr_connections") > 2 {
        assert!(Instant::now() < give_up, "the server still counts a client that is gone");
    }
    assert_eq!(Client::connect(server).get("k"), Got::Value(b"1".to_vec()));
}
