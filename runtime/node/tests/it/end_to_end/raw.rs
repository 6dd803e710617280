//! A client made of single messages, over a stream or by datagrams: it repeats, cuts and forges what it likes.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};

use socket2::{Domain, Socket, Type};
use yonder_node::{Listen, Node};
use yonder_wire::{
    AllocateRequest, AtomicOperation, Backing, Body, ErrorCode, Greeting, Header, Kind, Permission, Rights, Welcome,
    split,
};

use crate::end_to_end::messages::{Messages, sealed};
use crate::end_to_end::testbed::{PAGE, TIMEOUT};

/// Where the cookie is in a header.
const COOKIE_AT: std::ops::Range<usize> = 4..12;
/// Requests of all clients have names of their own.
static NEXT_ID: AtomicU64 = AtomicU64::new(1000);

/// A client.
pub(crate) enum Raw {
    Stream(Messages),
    /// With the cookie of its address, once the node has told it.
    Datagrams(UdpSocket, u64),
}

/// An address space and a right to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Grant {
    pub(crate) pid: u32,
    pub(crate) capability: u128,
}

/// The message with this cookie: whole if it was whole, and damaged if it was damaged.
fn with_cookie(bytes: &[u8], cookie: u64) -> Vec<u8> {
    match split(bytes) {
        Ok(Some(message)) if message.verify().is_ok() => {
            let header = Header { cookie, ..message.header };
            let rest = &bytes[message.bytes()..];
            [&header.seal(message.payload)[..], message.payload, rest].concat()
        }
        _ => {
            let mut bytes = bytes.to_vec();
            if let Some(place) = bytes.get_mut(COOKIE_AT) {
                place.copy_from_slice(&cookie.to_le_bytes());
            }
            bytes
        }
    }
}

/// What an answer is, but for its time: the refusal or the payload.
pub(crate) type Answered = Result<(Header, Vec<u8>), ErrorCode>;

impl Raw {
    /// A client of the node's first address that has not greeted.
    pub(crate) fn connect(node: &Node) -> Self {
        Self::connect_from(node, Ipv4Addr::LOCALHOST)
    }

    /// As [`Raw::connect`], from an address of this machine.
    pub(crate) fn connect_from(node: &Node, from: Ipv4Addr) -> Self {
        let from = SocketAddr::from((from, 0));
        match &node.addresses()[0] {
            Listen::Tcp(address) => {
                let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
                socket.bind(&from.into()).unwrap();
                socket.connect(&address.parse::<SocketAddr>().unwrap().into()).unwrap();
                Self::Stream(Messages::new(socket.into(), TIMEOUT))
            }
            Listen::Udp(address) => {
                let socket = UdpSocket::bind(from).unwrap();
                socket.connect(address).unwrap();
                socket.set_read_timeout(Some(TIMEOUT)).unwrap();
                Self::Datagrams(socket, 0)
            }
            Listen::Shm(_) => panic!("no messages for data go there"),
        }
    }

    /// As [`Raw::open`], from an address of this machine.
    pub(crate) fn open_from(node: &Node, from: Ipv4Addr) -> Self {
        let mut raw = Self::connect_from(node, from);
        raw.greet(None);
        raw
    }

    /// A client that has greeted.
    pub(crate) fn open(node: &Node) -> Self {
        let mut raw = Self::connect(node);
        raw.greet(None);
        raw
    }

    /// Asks for the data thread `home`.
    pub(crate) fn greet(&mut self, home: Option<u32>) -> Welcome {
        let mut payload = [0; Greeting::BYTES];
        Greeting { home }.write_to(&mut payload);
        let (header, payload) = self.ask(&fresh(Kind::Hello, Greeting::BYTES as u32), &payload).unwrap();
        assert_eq!(header.kind, Kind::Hello);
        Welcome::from_bytes(&payload).unwrap()
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        match self {
            Self::Stream(messages) => std::io::Write::write_all(&mut messages.stream, bytes).unwrap(),
            Self::Datagrams(socket, cookie) => {
                let bytes = with_cookie(bytes, *cookie);
                assert_eq!(socket.send(&bytes).unwrap(), bytes.len());
            }
        }
    }

    /// The next message; `None` if the node has closed the connection.
    pub(crate) fn receive(&mut self) -> Option<(Header, Vec<u8>)> {
        match self {
            Self::Stream(messages) => messages.receive(),
            Self::Datagrams(socket, cookie) => {
                let mut buffer = vec![0; 1 << 16];
                let bytes = socket.recv(&mut buffer).expect("the node answers");
                let message = split(&buffer[..bytes]).unwrap().expect("answers are whole");
                message.verify().unwrap();
                assert_eq!(message.bytes(), bytes);
                *cookie = message.header.cookie;
                Some((message.header, message.payload.to_vec()))
            }
        }
    }

    /// The answer to a request.
    pub(crate) fn ask(&mut self, request: &Header, payload: &[u8]) -> Answered {
        self.send(&sealed(request, payload));
        self.answer(request)
    }

    /// The answer to a request that was sent.
    pub(crate) fn answer(&mut self, request: &Header) -> Answered {
        let (header, payload) = self.receive().expect("the node answers");
        assert_eq!((header.request_id, header.kind), (request.request_id, request.kind));
        assert!(header.time > 0, "an answer tells the node's clock");
        if header.is_refusal() { Err(header.code) } else { Ok((header, payload)) }
    }

    /// Makes an address space with a lease of `lease_ms` milliseconds, or with the node's own if that is 0.
    pub(crate) fn create_space(&mut self, lease_ms: u32) -> Grant {
        let (header, _) = self.ask(&fresh(Kind::CreateSpace, lease_ms), &[]).unwrap();
        Grant { pid: header.pid, capability: header.capability }
    }

    /// An address space with the node's lease, and an allocation of some pages in it.
    pub(crate) fn create_memory(&mut self, pages: u64) -> (Grant, u64) {
        let space = self.create_space(0);
        (space, self.allocate(space, pages).unwrap())
    }

    pub(crate) fn allocate(&mut self, space: Grant, pages: u64) -> Result<u64, ErrorCode> {
        let (request, body) = allocation(space, pages, Permission::ReadWrite);
        self.ask(&request, &body).map(|(header, _)| header.address)
    }

    /// The right to `space` with fewer rights.
    pub(crate) fn grant(&mut self, space: Grant, rights: Rights) -> Result<Grant, ErrorCode> {
        let request = Header { length: rights as u32, ..space.request(Kind::Grant, 0, 0) };
        self.ask(&request, &[]).map(|(header, _)| Grant { capability: header.capability, ..space })
    }

    /// Writes a page of `byte`.
    pub(crate) fn write(&mut self, space: Grant, address: u64, byte: u8) -> Result<(), ErrorCode> {
        self.ask(&space.write(address), &page_of(byte)).map(drop)
    }

    /// The byte that all of the page at `address` consists of.
    pub(crate) fn read(&mut self, space: Grant, address: u64) -> Result<u8, ErrorCode> {
        let (_, payload) = self.ask(&space.request(Kind::Read, address, PAGE as u32), &[])?;
        assert!(payload.iter().all(|byte| *byte == payload[0]) && payload.len() as u64 == PAGE, "a torn page");
        Ok(payload[0])
    }

    /// The old value of the word at `address`, after `operation`.
    pub(crate) fn atomic(&mut self, space: Grant, address: u64, operation: AtomicOperation) -> Result<u64, ErrorCode> {
        let (request, body) = space.atomic(address, operation);
        self.ask(&request, &body).map(|(header, _)| header.address)
    }

    /// Gives the request up that `request` names; whether it had been executed.
    pub(crate) fn abort(&mut self, request: &Header) -> Result<bool, ErrorCode> {
        let again =
            Header { kind: Kind::Abort, length: 0, fragment_offset: u32::from(!request.kind.is_fast()), ..*request };
        self.ask(&retry(&again), &[]).map(|(header, _)| header.length == 1)
    }
}

impl Grant {
    /// A first attempt.
    pub(crate) fn request(self, kind: Kind, address: u64, length: u32) -> Header {
        Header { pid: self.pid, capability: self.capability, address, ..fresh(kind, length) }
    }

    /// The first attempt of a write of a page.
    pub(crate) fn write(self, address: u64) -> Header {
        self.request(Kind::Write, address, PAGE as u32)
    }

    /// The first attempt of an atomic, and its body.
    pub(crate) fn atomic(self, address: u64, operation: AtomicOperation) -> (Header, Vec<u8>) {
        let mut body = vec![0; AtomicOperation::BYTES];
        operation.write_to(&mut body);
        (self.request(Kind::Atomic, address, body.len() as u32), body)
    }
}

/// The first attempt of an allocation that gets its memory at once, and its body.
pub(crate) fn allocation(space: Grant, pages: u64, permission: Permission) -> (Header, Vec<u8>) {
    let request = AllocateRequest { bytes: pages * PAGE, permission, backing: Backing::Now, from: 0, to: 0 };
    allocation_of(space, &request)
}

/// The first attempt of an allocation, and its body.
pub(crate) fn allocation_of(space: Grant, request: &AllocateRequest) -> (Header, Vec<u8>) {
    let mut body = vec![0; AllocateRequest::BYTES];
    request.write_to(&mut body);
    (space.request(Kind::Allocate, 0, body.len() as u32), body)
}

/// The first attempt of a request.
pub(crate) fn fresh(kind: Kind, length: u32) -> Header {
    Header::request(kind, NEXT_ID.fetch_add(1, Ordering::Relaxed), 0, length)
}

/// Another attempt of `request`.
pub(crate) fn retry(request: &Header) -> Header {
    Header { request_id: NEXT_ID.fetch_add(1, Ordering::Relaxed), ..*request }
}

/// A page of `byte`.
pub(crate) fn page_of(byte: u8) -> Vec<u8> {
    vec![byte; PAGE as usize]
}
