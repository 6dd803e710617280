//! `yonder kv` over UDP: stock clients, which only store, and a client of single datagrams for everything else.
//!
//! A request is one datagram: request id, sequence number, number of datagrams, a reserved word (each 16 bits, big
//! endian), then a command. A reply is as many datagrams with the same id as it takes.

use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::time::Instant;

use yonder_e2e::{Client, Content, Got, Process, TIMEOUT, Yonder};

const FRAME_BYTES: usize = 8;
/// Largest datagram that a server sends: what fits a frame of Ethernet.
const DATAGRAM_BYTES_MAX: usize = 1400;

fn serve(yonder: Yonder) -> Process {
    let flags = ["kv", "--listen", "127.0.0.1:0", "--udp", "127.0.0.1:0", "--memory", "64MiB", "--local", "4MiB"];
    yonder.serve(&flags)
}

/// One datagram of a reply.
#[derive(Debug)]
struct Piece {
    id: u16,
    number: u16,
    of: u16,
    reserved: u16,
    bytes: Vec<u8>,
}

struct Datagrams(UdpSocket);

impl Datagrams {
    fn to(server: SocketAddr) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback has free ports");
        socket.connect(server).expect("an address");
        socket.set_read_timeout(Some(TIMEOUT)).expect("a valid time");
        Self(socket)
    }

    fn send(&self, id: u16, number: u16, of: u16, command: &[u8]) {
        let frame = [id, number, of, 0].map(u16::to_be_bytes).concat();
        self.send_bytes(&[&frame, command].concat());
    }

    fn send_bytes(&self, bytes: &[u8]) {
        assert_eq!(self.0.send(bytes).expect("the server has a port"), bytes.len());
    }

    fn receive(&self) -> Piece {
        let mut datagram = [0; 1 << 16];
        let length = self.0.recv(&mut datagram).expect("the server answers");
        assert!((FRAME_BYTES..=DATAGRAM_BYTES_MAX).contains(&length), "a datagram of {length} bytes");
        let word = |at: usize| u16::from_be_bytes([datagram[at], datagram[at + 1]]);
        let bytes = datagram[FRAME_BYTES..length].to_vec();
        Piece { id: word(0), number: word(2), of: word(4), reserved: word(6), bytes }
    }

    /// All of the next reply, put together by its sequence numbers.
    fn reply(&self) -> (u16, Vec<u8>) {
        let first = self.receive();
        let (id, of) = (first.id, first.of);
        let mut pieces = vec![first];
        while pieces.len() < usize::from(of) {
            pieces.push(self.receive());
        }
        pieces.sort_by_key(|piece| piece.number);
        for (number, piece) in pieces.iter().enumerate() {
            assert_eq!((piece.id, usize::from(piece.number), piece.of, piece.reserved), (id, number, of, 0));
        }
        (id, pieces.into_iter().flat_map(|piece| piece.bytes).collect())
    }

    fn ask(&self, id: u16, command: &[u8]) -> String {
        self.send(id, 0, 1, command);
        let (answered, reply) = self.reply();
        assert_eq!(answered, id);
        reply.escape_ascii().to_string().replace("\\r\\n", "\n")
    }

    /// Takes the answers that are there, so that later ones find room.
    fn discard_answers(&self) {
        self.0.set_nonblocking(true).expect("a socket option");
        while self.0.recv(&mut [0; DATAGRAM_BYTES_MAX]).is_ok() {}
        self.0.set_nonblocking(false).expect("a socket option");
    }

    /// Asks for the key `good` under an id of its own, past whatever answers are still waiting, all of them errors.
    fn ask_past_answers(&self) -> String {
        const ID: u16 = 0x600D;
        self.send(ID, 0, 1, b"get good\r\n");
        loop {
            let piece = self.receive();
            let text = String::from_utf8_lossy(&piece.bytes).into_owned();
            if piece.id == ID {
                return text;
            }
            // Noise has many line ends, so its errors fill more than one datagram.
            assert!(text.contains("ERROR") && !text.contains("VALUE"), "a malformed request got: {text}");
        }
    }
}

/// Asks over TCP until the answer is there: a client that stores over UDP is told nothing.
fn wait_for(client: &mut Client, key: &str, value: &[u8]) {
    let start = Instant::now();
    while client.get(key) != Got::Value(value.to_vec()) {
        assert!(start.elapsed() < TIMEOUT, "what was sent over UDP was never stored");
    }
}

#[test]
fn debians_tools_store_over_udp() {
    let Some(yonder) = Yonder::ready() else { return };
    let server = serve(yonder);
    let servers = format!("--servers={}", server.udp_address());
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("file");
    std::fs::write(&path, b"stored over UDP").expect("a temporary folder takes files");
    let mut client = Client::connect(server.address());
    match Command::new("memccp").args([&servers, "--udp"]).arg(&path).output() {
        Ok(output) => assert!(output.status.success(), "{output:?}"),
        Err(error) => {
            println!("SKIP: memccp cannot be run ({error}): apt-get install libmemcached-tools");
            return;
        }
    }
    wait_for(&mut client, "file", b"stored over UDP");
    let before = client.stats().number("cmd_set");
    let slap = ["--udp", "--test=set", "--execute-number=500"];
    let output = Command::new("memcslap").arg(&servers).args(slap).output().expect("one tool is there, so all are");
    assert!(output.status.success(), "{output:?}");
    // The kernel may drop datagrams of such a burst, but not all.
    let start = Instant::now();
    while client.stats().number("cmd_set") == before {
        assert!(start.elapsed() < TIMEOUT, "no datagram of memcslap arrived");
    }
}

#[test]
fn replies_span_datagrams_and_come_from_far_memory() {
    let Some(yonder) = Yonder::ready() else { return };
    let server = serve(yonder);
    // 24 MiB: six times the local memory.
    let content = Content { name: "far", keys: 1000, value_bytes: 24 << 10 };
    let mut tcp = Client::connect(server.address());
    tcp.fill(&content, 0..content.keys, 1);
    let udp = Datagrams::to(server.udp_address());
    for (id, index) in (0..content.keys).step_by(17).enumerate() {
        let (key, value) = (content.key(index), content.value(index, 1));
        udp.send(id as u16, 0, 1, format!("get {key}\r\n").as_bytes());
        let (answered, reply) = udp.reply();
        let header = format!("VALUE {key} 0 {}\r\n", value.len()).into_bytes();
        assert_eq!(usize::from(answered), id);
        assert!(reply == [&header[..], &value, b"\r\nEND\r\n"].concat(), "{key} came back wrong");
        assert!(reply.len() > 10 * DATAGRAM_BYTES_MAX, "one datagram could have held this");
    }
    assert!(tcp.stats().number("major_faults") > 0);
    // The other way round, as large as a datagram can be.
    let large = content.value(1, 2);
    let set = [format!("set large 5 0 {}\r\n", large.len()).as_bytes(), &large, b"\r\n"].concat();
    assert_eq!(udp.ask(7, &set), "STORED\n");
    assert_eq!(tcp.get("large"), Got::Value(large));
}

#[test]
fn requests_and_replies_in_any_order_find_each_other() {
    let Some(yonder) = Yonder::ready() else { return };
    let server = serve(yonder);
    let udp = Datagrams::to(server.udp_address());
    let ids = [7, 3, 65_535, 0, 256, 1];
    for id in ids {
        assert_eq!(udp.ask(id, format!("set k{id} {id} 0 5\r\n{id:05}\r\n").as_bytes()), "STORED\n");
    }
    // All are asked before any answer is taken; each answer names its question.
    ids.iter().for_each(|id| udp.send(*id, 0, 1, format!("get k{id}\r\n").as_bytes()));
    let mut answered: Vec<u16> = Vec::new();
    for _ in ids {
        let (id, reply) = udp.reply();
        assert_eq!(String::from_utf8_lossy(&reply), format!("VALUE k{id} {id} 5\r\n{id:05}\r\nEND\r\n"));
        answered.push(id);
    }
    answered.sort_unstable();
    let mut asked = ids;
    asked.sort_unstable();
    assert_eq!(answered, asked);
    // An answer that the client has lost is asked for again, under the same id or another.
    for id in [9, 9, 10] {
        udp.send(id, 0, 1, b"get k7\r\n");
    }
    for id in [9, 9, 10] {
        let (answered, reply) = udp.reply();
        assert_eq!((answered, &reply[..5]), (id, &b"VALUE"[..]));
    }
}

#[test]
fn requests_in_pieces_are_refused_whatever_their_order() {
    const REFUSED: &str = "SERVER_ERROR multi-packet request not supported\r\n";
    let Some(yonder) = Yonder::ready() else { return };
    let server = serve(yonder);
    let udp = Datagrams::to(server.udp_address());
    assert_eq!(udp.ask(1, b"set k 0 0 3\r\nold\r\n"), "STORED\n");
    // The second half comes first.
    udp.send(2, 1, 2, b"new\r\n");
    udp.send(2, 0, 2, b"set k 0 0 3\r\n");
    for _ in 0..2 {
        let (id, reply) = udp.reply();
        assert_eq!((id, String::from_utf8_lossy(&reply).as_ref()), (2, REFUSED));
    }
    assert_eq!(udp.ask(3, b"get k\r\n"), "VALUE k 0 3\nold\nEND\n");
}

#[test]
fn malformed_datagrams_hurt_nobody() {
    let Some(yonder) = Yonder::ready() else { return };
    let server = serve(yonder);
    let (good, bad) = (Datagrams::to(server.udp_address()), Datagrams::to(server.udp_address()));
    let frame = |of: u16| [0xBAD, 0, of, 0].map(u16::to_be_bytes).concat();
    let noise: Vec<u8> = (0..60_000u32).map(|number| (number.wrapping_mul(0x9E37_79B9) >> 24) as u8).collect();
    let malformed = [
        vec![],
        vec![0],
        b"get good\r\n"[..7].to_vec(),
        frame(1),
        frame(0),
        frame(u16::MAX),
        [&frame(1)[..], b"set half 0 0 100\r\nhalf"].concat(),
        [&frame(1)[..], b"get good"].concat(),
        [&frame(1)[..], &noise].concat(),
        noise,
        b"POST / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
    ];
    for round in 0..50 {
        for datagram in &malformed {
            bad.send_bytes(datagram);
            assert_eq!(good.ask(round, b"set good 0 0 4\r\nfine\r\n"), "STORED\n");
            assert_eq!(good.ask(round + 1, b"get good half\r\n"), "VALUE good 0 4\nfine\nEND\n");
        }
        bad.discard_answers();
    }
    assert_eq!(bad.ask_past_answers(), "VALUE good 0 4\r\nfine\r\nEND\r\n");
    let mut tcp = Client::connect(server.address());
    assert_eq!((tcp.get("half"), tcp.get("good")), (Got::Miss, Got::Value(b"fine".to_vec())));
    assert_eq!(server.stop().code, Some(0));
}
