//! The server over loopback sockets, with scripted clients.

use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use yonder_kv::{KvConfig, KvServer, Listen, ShutdownCommand};

use crate::harness::{Running, ask, read_until, stat};
use crate::memory::{Faults, FlatMemory};

fn start() -> Running {
    Running::start(FlatMemory::new(16 << 20), |_| {})
}

/// A pipeline of `count` writes and reads, and its replies.
fn pipeline(count: usize) -> (Vec<u8>, Vec<u8>) {
    let (mut input, mut output) = (Vec::new(), Vec::new());
    for number in 0..count {
        let value = number.to_string().repeat(1 + number % 300);
        let len = value.len();
        input.extend(format!("set k{number} 1 0 {len}\r\n{value}\r\nadd k{number} 0 0 1 noreply\r\nx\r\n").bytes());
        input.extend(format!("get k{number} absent\r\nbad\r\nincr k{number} x\r\n").bytes());
        output.extend(format!("STORED\r\nVALUE k{number} 1 {len}\r\n{value}\r\nEND\r\nERROR\r\n").bytes());
        output.extend(b"CLIENT_ERROR invalid numeric delta argument\r\n");
    }
    (input, output)
}

#[test]
fn pipelined_commands_are_answered_in_order_to_half_closed_clients() {
    let server = start();
    let (input, expected) = pipeline(500);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| assert!(server.converse(&input) == expected));
        }
    });
    server.stop();
}

#[test]
fn input_may_come_byte_by_byte() {
    let server = start();
    let (input, expected) = pipeline(5);
    let mut client = server.connect();
    client.set_nodelay(true).expect("a socket option");
    for byte in input {
        client.write_all(&[byte]).expect("the server listens");
    }
    client.write_all(b"quit\r\n").expect("the server listens");
    let mut output = Vec::new();
    client.read_to_end(&mut output).expect("the server answers");
    assert_eq!(output.escape_ascii().to_string(), expected.escape_ascii().to_string());
}

#[test]
fn quit_ends_the_connection_after_the_replies() {
    let server = start();
    let mut client = server.connect();
    client.write_all(b"set k 0 0 1\r\n1\r\nget k\r\nquit\r\nget k\r\n").expect("the server listens");
    let mut output = Vec::new();
    client.read_to_end(&mut output).expect("the server answers");
    assert_eq!(output, b"STORED\r\nVALUE k 0 1\r\n1\r\nEND\r\n");
}

#[test]
fn bad_input_gets_the_protocols_errors_and_hurts_nobody() {
    let server = start();
    let mut bystander = server.connect();
    let long_key = "k".repeat(251);
    let large = "x".repeat((1 << 20) + 1);
    for (input, expected) in [
        (format!("get {long_key}\r\nmn\r\n"), "CLIENT_ERROR bad command line format\r\nMN\r\n"),
        (
            format!("set big 0 0 {}\r\n{large}\r\nget big\r\n", large.len()),
            "SERVER_ERROR object too large for cache\r\nEND\r\n",
        ),
        ("set k 0 0 1\r\nxyz\r\nget k\r\n".to_owned(), "CLIENT_ERROR bad data chunk\r\nERROR\r\nEND\r\n"),
        ("x".repeat(5000), "CLIENT_ERROR line too long\r\n"),
        ("GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(), ""),
        ("set k 0 0 100\r\nhalf".to_owned(), ""),
    ] {
        let output = server.converse(input.as_bytes());
        assert_eq!(String::from_utf8_lossy(&output), expected, "{:.40}", input);
        assert_eq!(ask(&mut bystander, b"get nothing\r\n", b"END\r\n"), b"END\r\n");
    }
}

#[test]
fn the_largest_value_passes() {
    let server = start();
    let value = "v".repeat(1 << 20);
    let input = format!("set k 0 0 {}\r\n{value}\r\nget k\r\n", 1 << 20);
    let expected = format!("STORED\r\nVALUE k 0 {}\r\n{value}\r\nEND\r\n", 1 << 20);
    assert!(server.converse(input.as_bytes()) == expected.as_bytes());
}

#[test]
fn a_client_that_does_not_read_is_not_listened_to_and_loses_nothing() {
    const GETS: usize = 300;
    let server = start();
    let mut bystander = server.connect();
    let value = "v".repeat(1 << 20);
    ask(&mut bystander, format!("set k 0 0 {}\r\n{value}\r\n", 1 << 20).as_bytes(), b"STORED\r\n");
    let mut slow = server.connect();
    slow.write_all(&b"get k\r\n".repeat(GETS)).expect("the commands fit the socket");
    for _ in 0..500 {
        assert_eq!(ask(&mut bystander, b"get nothing\r\n", b"END\r\n"), b"END\r\n");
    }
    let executed = stat(&mut bystander, "cmd_get") - 500;
    assert!(executed < GETS as u64 / 2, "{executed} gets were executed for a client that does not read");
    let item = format!("VALUE k 0 {}\r\n{value}\r\nEND\r\n", 1 << 20);
    let mut reply = vec![0; item.len()];
    for _ in 0..GETS {
        slow.read_exact(&mut reply).expect("the reply is complete");
        assert!(reply == item.as_bytes());
    }
}

#[test]
fn a_client_that_vanishes_is_forgotten() {
    let server = start();
    let mut bystander = server.connect();
    let value = "v".repeat(1 << 20);
    ask(&mut bystander, format!("set k 0 0 {}\r\n{value}\r\n", 1 << 20).as_bytes(), b"STORED\r\n");
    for _ in 0..20 {
        let mut client = server.connect();
        client.write_all(&b"get k\r\n".repeat(50)).expect("the commands fit the socket");
        read_until_len(&mut client, 10_000);
    }
    while stat(&mut bystander, "curr_connections") > 1 {}
    assert_eq!(stat(&mut bystander, "total_connections"), 21);
}

fn read_until_len(client: &mut TcpStream, len: usize) {
    client.read_exact(&mut vec![0; len]).expect("the server answers");
}

#[test]
fn too_many_clients_are_told_so() {
    let server = Running::start(FlatMemory::new(16 << 20), |config| config.connections_max = 2);
    let mut first = server.connect();
    let second = server.connect();
    ask(&mut first, b"version\r\n", b"\r\n");
    // The second client is known to the server before it answers another question of the first.
    while stat(&mut first, "curr_connections") < 2 {}
    let mut third = String::new();
    server.connect().read_to_string(&mut third).expect("an error line");
    assert_eq!(third, "ERROR Too many open connections\r\n");
    drop(second);
    while stat(&mut first, "curr_connections") == 2 {}
    assert_eq!(ask(&mut server.connect(), b"get k\r\n", b"END\r\n"), b"END\r\n");
    assert_eq!(stat(&mut first, "rejected_connections"), 1);
}

#[test]
fn statistics_have_memcacheds_names() {
    let server = start();
    let mut client = server.connect();
    ask(&mut client, b"set k 0 0 1\r\n1\r\nget k absent\r\n", b"END\r\n");
    let number = |client: &mut TcpStream, name| stat(client, name);
    for (name, expected) in [
        ("request_hits", 2),
        ("cmd_get", 2),
        ("cmd_set", 1),
        ("get_hits", 1),
        ("get_misses", 1),
        ("curr_items", 1),
        ("total_items", 1),
        ("curr_connections", 1),
        ("limit_maxbytes", 16 << 20),
        ("pointer_size", 64),
        ("threads", 1),
        ("evictions", 0),
        ("major_faults", 7),
    ] {
        assert_eq!(number(&mut client, name), expected, "{name}");
    }
    assert!(number(&mut client, "time") > 1_700_000_000);
    for (command, expected) in [
        ("stats settings\r\n", "STAT item_size_max 1048576\r\n"),
        ("stats items\r\n", "STAT items:1:number 1\r\n"),
        ("stats slabs\r\n", "STAT 1:used_chunks 1\r\n"),
        ("stats sizes\r\n", "STAT sizes_status disabled\r\n"),
        ("stats hits\r\n", "STAT "),
    ] {
        let lines = ask(&mut client, command.as_bytes(), b"END\r\n");
        assert!(String::from_utf8_lossy(&lines).contains(expected), "{command:?} gave {}", lines.escape_ascii());
    }
    assert_eq!(ask(&mut client, b"stats reset\r\n", b"\r\n"), b"RESET\r\n");
    assert_eq!((number(&mut client, "cmd_get"), number(&mut client, "curr_items")), (0, 1));
    assert_eq!(
        (number(&mut client, "request_hits"), ask(&mut client, b"stats hits\r\n", b"END\r\n")),
        (0, b"END\r\n".to_vec())
    );
}

#[test]
fn a_lost_node_or_a_panic_fails_the_request_only() {
    let memory = FlatMemory::new(16 << 20);
    let server = Running::start(memory.clone(), |_| {});
    let mut client = server.connect();
    ask(&mut client, b"set k 0 0 1\r\n1\r\n", b"STORED\r\n");
    for (faults, expected) in [
        (Faults::Always, &b"SERVER_ERROR far memory unavailable\r\n"[..]),
        (Faults::Panic, b"SERVER_ERROR internal error\r\n"),
    ] {
        memory.fail(faults);
        assert_eq!(ask(&mut client, b"get k\r\n", b"\r\n"), expected);
        assert_eq!(ask(&mut client, b"set k 0 0 1\r\n2\r\n", b"\r\n"), expected);
        memory.fail(Faults::Never);
        assert_eq!(ask(&mut client, b"get k\r\n", b"END\r\n"), b"VALUE k 0 1\r\n1\r\nEND\r\n");
    }
}

#[test]
fn shutting_down_answers_what_is_under_way_and_ends() {
    let server = start();
    let mut idle = server.connect();
    let mut busy = server.connect();
    ask(&mut idle, b"version\r\n", b"\r\n");
    ask(&mut busy, b"set k 0 0 1\r\n1\r\n", b"STORED\r\n");
    let address = server.tcp;
    server.stop();
    let mut rest = Vec::new();
    idle.read_to_end(&mut rest).expect("the connection ends in order");
    assert!(rest.is_empty());
    assert!(TcpStream::connect(address).is_err());
}

fn udp_client(server: &Running) -> UdpSocket {
    let client = UdpSocket::bind("127.0.0.1:0").expect("loopback has free ports");
    client.connect(server.udp.expect("it listens on udp")).expect("an address");
    client.set_read_timeout(Some(Duration::from_secs(60))).expect("a valid timeout");
    client
}

/// Sends one request and puts the reply together from its datagrams.
fn udp_ask(client: &UdpSocket, request_id: u8, input: &[u8]) -> Vec<u8> {
    client.send(&[&[0, request_id, 0, 0, 0, 1, 0, 0], input].concat()).expect("sent");
    let mut pieces: Vec<Option<Vec<u8>>> = Vec::new();
    while pieces.is_empty() || pieces.iter().any(Option::is_none) {
        let mut datagram = [0; 2000];
        let len = client.recv(&mut datagram).expect("the server answers");
        assert!(len <= 1400);
        let (frame, payload) = datagram[..len].split_at(8);
        assert_eq!(frame[..2], [0, request_id]);
        let number = |at: usize| usize::from(u16::from_be_bytes([frame[at], frame[at + 1]]));
        pieces.resize(number(4), None);
        pieces[number(2)] = Some(payload.to_vec());
    }
    pieces.into_iter().flatten().flatten().collect()
}

#[test]
fn udp_requests_are_answered_in_datagrams() {
    let server = start();
    let client = udp_client(&server);
    let value = "0123456789".repeat(500);
    assert_eq!(udp_ask(&client, 1, format!("set k 3 0 5000\r\n{value}\r\n").as_bytes()), b"STORED\r\n");
    let expected = format!("VALUE k 3 5000\r\n{value}\r\nEND\r\n");
    assert_eq!(udp_ask(&client, 2, b"get k\r\n"), expected.as_bytes());
    assert_eq!(udp_ask(&client, 3, b"get absent\r\nbad\r\n"), b"END\r\nERROR\r\n");
    // These get no answer, and harm nothing.
    for datagram in [&b""[..], b"short", &[0, 9, 0, 0, 0, 1, 0, 0], b"\0\x09\0\0\0\x01\0\0set k 0 0 9\r\nhalf"] {
        client.send(datagram).expect("sent");
    }
    client.send(b"\0\x04\0\0\0\x02\0\0get k\r\n").expect("sent");
    let mut datagram = [0; 100];
    let len = client.recv(&mut datagram).expect("the server answers");
    assert_eq!(
        datagram[..len].escape_ascii().to_string(),
        b"\0\x04\0\0\0\x01\0\0SERVER_ERROR multi-packet request not supported\r\n".escape_ascii().to_string()
    );
    assert_eq!(udp_ask(&client, 5, b"get absent\r\n"), b"END\r\n");
    server.stop();
}

#[test]
fn an_address_in_use_is_one_clear_line() {
    let server = start();
    let config = KvConfig::new(server.tcp);
    let error = KvServer::bind(config, FlatMemory::new(16 << 20)).err().expect("the address is taken").to_string();
    assert!(error.starts_with(&format!("cannot listen on tcp {}: ", server.tcp)), "{error}");
    assert!(error.contains("type --listen") && !error.contains('\n'), "{error}");
    let mut client = server.connect();
    client.write_all(b"get k\r\n").expect("the server listens");
    assert_eq!(read_until(&mut client, b"END\r\n"), b"END\r\n");
}

#[test]
fn clients_connect_at_a_path() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("kv.sock");
    let listen_there = |config: &mut KvConfig| config.listen = Listen::Unix(path.clone());
    // What a server that was killed leaves behind.
    drop(UnixListener::bind(&path).expect("the folder is ours"));
    let server = Running::start(FlatMemory::new(16 << 20), listen_there);
    let mut client = UnixStream::connect(&path).expect("the server listens");
    client.write_all(b"set k 0 0 1\r\n1\r\nget k\r\nstats settings\r\n").expect("the server listens");
    let said = String::from_utf8(read_until(&mut client, b"ssl_enabled no\r\nEND\r\n")).expect("text");
    assert!(said.starts_with("STORED\r\nVALUE k 0 1\r\n1\r\nEND\r\n"), "{said}");
    assert!(said.contains(&format!("STAT domain_socket {}\r\n", path.display())), "{said}");
    assert!(said.contains("STAT tcpport 0\r\n") && said.contains("STAT inter NULL\r\n"), "{said}");
    let refused = KvServer::bind(KvConfig::new(Listen::Unix(path.clone())), FlatMemory::new(16 << 20)).err();
    let refused = refused.expect("another server listens there").to_string();
    assert!(refused.contains("kv.sock") && refused.contains("type --listen") && !refused.contains('\n'), "{refused}");
    server.stop();
    assert!(!path.exists(), "the path is gone with the server");
    std::fs::write(&path, "somebody's").expect("the folder is ours");
    let refused = KvServer::bind(KvConfig::new(Listen::Unix(path.clone())), FlatMemory::new(16 << 20));
    assert!(refused.is_err() && path.exists(), "a file is no socket that was left over");
}

#[test]
fn clients_end_the_server_only_where_they_may() {
    let server = start();
    assert_eq!(server.converse(b"shutdown\r\nmn\r\n"), b"ERROR: shutdown not enabled\r\nMN\r\n");
    server.stop();
    let server = Running::start(FlatMemory::new(16 << 20), |config| config.shutdown = ShutdownCommand::Obeyed);
    let mut bystander = server.connect();
    assert_eq!(ask(&mut bystander, b"mn\r\n", b"MN\r\n"), b"MN\r\n");
    assert_eq!(
        server.converse(b"set k 0 0 1\r\n1\r\nshutdown now\r\nshutdown\r\n"),
        b"STORED\r\nCLIENT_ERROR invalid shutdown mode\r\n"
    );
    assert_eq!(bystander.read(&mut [0; 16]).expect("the server says good-bye"), 0);
    server.stop();
}

#[test]
fn connections_are_listed() {
    let server = start();
    let (mut first, mut half) = (server.connect(), server.connect());
    half.write_all(b"set k 0 0 10\r\nhalf").expect("the server listens");
    let listed = loop {
        let listed = String::from_utf8(ask(&mut first, b"stats conns\r\n", b"END\r\n")).expect("text");
        if listed.contains("conn_nread") {
            break listed;
        }
    };
    let (listener, peer) = (server.tcp, half.local_addr().expect("it is connected"));
    assert!(
        listed.starts_with(&format!("STAT listener:addr tcp:{listener}\r\nSTAT listener:state conn_listening\r\n"))
    );
    assert!(listed.contains(&format!(":addr tcp:{peer}\r\n")), "{listed}");
    assert_eq!(listed.matches(&format!(":listen_addr tcp:{listener}\r\n")).count(), 2, "{listed}");
    assert_eq!(listed.matches(":state conn_parse_cmd\r\n").count(), 1, "{listed}");
    assert_eq!(listed.matches(":secs_since_last_cmd ").count(), 2, "{listed}");
}
