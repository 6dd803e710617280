//! [`Honest`]: a client that uses its memory as it may, and knows what must be in it.
//!
//! Its network repeats, cuts and changes what it sends. Invariant: `model` is what its memory holds, and `sent` what
//! became of each request that is executed at most once.

use yonder_simulation::encoded;
use yonder_wire::{AtomicOperation, Body, ErrorCode, Header, Kind, MESSAGE_BYTES_MAX};

use super::node::{Answer, Credential, Node, PAGE, allocation};
use crate::script::Step;

/// Pages that it reads and writes; before them lies one with a secret.
const DATA_PAGES: u64 = 2;
/// Names of its requests begin behind this. Nobody else knows where.
const FIRST_ID: u64 = 1 << 62;
/// Attempts of one request, at most.
const ATTEMPTS_MAX: u64 = 16;
/// Bytes of the secret.
const SECRET_BYTES: usize = 16;

/// A request that is executed at most once.
#[derive(Clone, Debug)]
struct Sent {
    header: Header,
    payload: Vec<u8>,
    attempts: u64,
    /// What became of it, and the word before an atomic; `None` while the node has not said.
    end: Option<Result<u64, ErrorCode>>,
}

/// The honest client.
#[derive(Debug)]
pub(super) struct Honest {
    pub(super) own: Credential,
    /// Where its memory begins: the page with the secret.
    pub(super) base: u64,
    model: Vec<u8>,
    secret: [u8; SECRET_BYTES],
    /// An allocation that comes and goes, full of the secret.
    scratch: Option<u64>,
    sent: Vec<Sent>,
    next_id: u64,
}

impl Honest {
    /// A client with memory, and with a secret that nobody guesses.
    pub(super) fn new(node: &mut Node, secret: u128) -> Self {
        let mut honest = Self {
            own: Credential::default(),
            base: 0,
            model: vec![0; (DATA_PAGES * PAGE) as usize],
            secret: secret.to_le_bytes(),
            scratch: None,
            sent: Vec::new(),
            next_id: FIRST_ID | (secret as u64 >> 4),
        };
        let created = honest.ask(node, Kind::CreateSpace, 0, 0, &[]);
        honest.own = Credential { pid: created.header.pid, capability: created.header.capability };
        honest.base = honest.allocate(node, (1 + DATA_PAGES) * PAGE).expect("an empty node has room");
        honest.fill_with_secret(node, honest.base).expect("an empty node has memory");
        honest
    }

    /// What nobody else may see.
    pub(super) fn secret(&self) -> [u8; SECRET_BYTES] {
        self.secret
    }

    /// Where it reads and writes.
    fn data(&self) -> u64 {
        self.base + PAGE
    }

    /// Does one thing, and says what it did and what came of it.
    pub(super) fn act(&mut self, node: &mut Node, step: &mut Step<'_>) -> [u64; 3] {
        let what = step.below(12);
        let seen = match what {
            0..3 => self.begin_write(node, step),
            3 => self.begin_atomic(node, step),
            4 => self.begin_discard(node, step),
            5 => self.read(node, step),
            6 => self.come_and_go(node),
            7..9 => self.send_again(node, step),
            9 => self.send_changed(node, step),
            10 => self.send_cut(node, step),
            _ => self.give_up(node, step),
        };
        [1, what, seen]
    }

    /// Everything is as the model says, and the secret is where it was.
    pub(super) fn check_all(&mut self, node: &mut Node) {
        let (data, bytes) = (self.data(), self.model.len());
        assert_eq!(self.read_at(node, data, bytes), Ok(self.model.clone()), "the honest client's memory was changed");
        let secret = self.read_at(node, self.base, PAGE as usize).expect("the secret is there");
        assert!(secret.chunks_exact(SECRET_BYTES).all(|chunk| chunk == self.secret), "the secret was changed");
    }

    fn begin_write(&mut self, node: &mut Node, step: &mut Step<'_>) -> u64 {
        let (offset, fill) = (step.below(DATA_PAGES * PAGE), step.byte());
        let length = (1 + step.below(2 * PAGE)).min(DATA_PAGES * PAGE - offset);
        let payload: Vec<u8> = (0..length).map(|at| fill.wrapping_add(at as u8)).collect();
        self.begin(node, Kind::Write, offset, length as u32, payload)
    }

    fn begin_atomic(&mut self, node: &mut Node, step: &mut Step<'_>) -> u64 {
        let offset = step.below(DATA_PAGES * PAGE / 8) * 8;
        let operand = step.number();
        let operation = match step.below(4) {
            0 => AtomicOperation::TestAndSet,
            1 => AtomicOperation::Store(operand),
            2 => AtomicOperation::FetchAdd(operand),
            _ => AtomicOperation::CompareAndSwap { expected: step.below(3), new: operand },
        };
        let payload = encoded(&operation);
        self.begin(node, Kind::Atomic, offset, payload.len() as u32, payload)
    }

    fn begin_discard(&mut self, node: &mut Node, step: &mut Step<'_>) -> u64 {
        let whole_pages = step.once_in(2);
        let offset = if whole_pages { step.below(DATA_PAGES) * PAGE } else { step.below(DATA_PAGES * PAGE) };
        let length = if whole_pages { PAGE } else { (1 + step.below(2 * PAGE)).min(DATA_PAGES * PAGE - offset) };
        self.begin(node, Kind::Discard, offset, length as u32, Vec::new())
    }

    /// Sends a new request about its data.
    fn begin(&mut self, node: &mut Node, kind: Kind, offset: u64, length: u32, payload: Vec<u8>) -> u64 {
        let header = self.header(node, kind, self.data() + offset, length);
        self.sent.push(Sent { header, payload, attempts: 1, end: None });
        self.attempt(node, self.sent.len() - 1, header)
    }

    /// Sends an attempt of a request, and checks that it is executed now or was before.
    fn attempt(&mut self, node: &mut Node, index: usize, header: Header) -> u64 {
        let answer = node.ask(&header, &self.sent[index].payload);
        let result = answer.result().map(|()| if header.kind == Kind::Atomic { answer.header.address } else { 0 });
        let end = self.sent[index].end;
        match (end, result) {
            (_, Err(ErrorCode::TooOld)) => assert!(self.sent[index].attempts > 1, "a new request is not too old"),
            (Some(end), result) => assert_eq!(result, end, "every attempt ends as the first did"),
            (None, Ok(old)) => {
                self.apply(index, old);
                self.sent[index].end = Some(result);
            }
            (None, Err(ErrorCode::Busy)) => {}
            (None, Err(code)) => {
                assert_eq!(code, ErrorCode::OutOfMemory, "a good {:?} is refused", header.kind);
                self.sent[index].end = Some(result);
            }
        }
        result.err().map_or(0, |code| code as u64) + 32 * u64::from(end.is_some())
    }

    /// The request was executed now.
    fn apply(&mut self, index: usize, old: u64) {
        let Sent { header, payload, .. } = &self.sent[index];
        let at = (header.address - self.data()) as usize;
        match header.kind {
            Kind::Write => self.model[at..at + payload.len()].copy_from_slice(payload),
            Kind::Discard => self.model[at..at + header.length as usize].fill(0),
            _ => {
                let operation = AtomicOperation::from_bytes(payload).expect("it was made here");
                let word: &mut [u8; 8] = (&mut self.model[at..at + 8]).try_into().expect("8 bytes");
                assert_eq!(old, u64::from_le_bytes(*word), "an atomic found what was not there");
                *word = operation.apply(old).to_le_bytes();
            }
        }
    }

    fn read(&mut self, node: &mut Node, step: &mut Step<'_>) -> u64 {
        let offset = step.below(DATA_PAGES * PAGE);
        let length = (1 + step.below(2 * PAGE)).min(DATA_PAGES * PAGE - offset) as usize;
        let expected = self.model[offset as usize..][..length].to_vec();
        assert_eq!(self.read_at(node, self.data() + offset, length), Ok(expected), "a read finds what was written");
        0
    }

    /// Allocates memory and fills it with the secret, or frees it: who gets that memory next must not find it.
    fn come_and_go(&mut self, node: &mut Node) -> u64 {
        if let Some(address) = self.scratch.take() {
            assert_eq!(self.ask(node, Kind::Free, address, 0, &[]).result(), Ok(()));
            return 0;
        }
        let Ok(address) = self.allocate(node, PAGE) else { return 1 };
        self.scratch = Some(address);
        self.fill_with_secret(node, address).map_or_else(|code| code as u64, |()| 2)
    }

    /// Sends an earlier request again, as it was or under a new name.
    fn send_again(&mut self, node: &mut Node, step: &mut Step<'_>) -> u64 {
        let Some(index) = self.recall(step) else { return 0 };
        let Sent { header, attempts, .. } = &mut self.sent[index];
        if step.once_in(2) && *attempts < ATTEMPTS_MAX {
            header.request_id += 1;
        }
        *attempts += 1;
        let header = *header;
        self.attempt(node, index, header)
    }

    /// One bit of an earlier request is flipped on its way.
    fn send_changed(&mut self, node: &mut Node, step: &mut Step<'_>) -> u64 {
        let Some(index) = self.recall(step) else { return 0 };
        let mut bytes = self.bytes(index);
        let bit = step.index(bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        node.deliver(&bytes, MESSAGE_BYTES_MAX).map_or(1, |answer| answer.header.code as u64)
    }

    /// Only the beginning of an earlier request arrives.
    fn send_cut(&mut self, node: &mut Node, step: &mut Step<'_>) -> u64 {
        let Some(index) = self.recall(step) else { return 0 };
        let bytes = self.bytes(index);
        let answer = node.deliver(&bytes[..step.index(bytes.len())], MESSAGE_BYTES_MAX);
        assert!(answer.is_none(), "a part of a message is answered");
        1
    }

    /// Gives an earlier request up.
    fn give_up(&mut self, node: &mut Node, step: &mut Step<'_>) -> u64 {
        let Some(index) = self.recall(step) else { return 0 };
        let Sent { header, attempts, end, .. } = &mut self.sent[index];
        header.request_id += u64::from(*attempts < ATTEMPTS_MAX);
        *attempts += 1;
        let (asked, end) = (*header, *end);
        let fragment_offset = u32::from(!asked.kind.is_fast());
        let answer = node.ask(&Header { kind: Kind::Abort, length: 0, fragment_offset, ..asked }, &[]);
        match (answer.result(), end) {
            (Err(code), _) => assert_eq!(code, ErrorCode::TooOld, "an abort is refused"),
            (Ok(()), None) => {
                assert_eq!(answer.header.length, 0, "what was refused for a moment was not executed");
                self.sent[index].end = Some(Err(ErrorCode::Aborted));
            }
            (Ok(()), Some(end)) => assert_eq!(answer.header.length, u32::from(end.is_ok())),
        }
        1 + u64::from(answer.header.length)
    }

    /// An earlier request.
    fn recall(&self, step: &mut Step<'_>) -> Option<usize> {
        let back = step.index(self.sent.len());
        (self.sent.len()).checked_sub(back + 1)
    }

    fn bytes(&self, index: usize) -> Vec<u8> {
        let Sent { header, payload, .. } = &self.sent[index];
        [&header.seal(payload)[..], payload].concat()
    }

    fn header(&mut self, node: &Node, kind: Kind, address: u64, length: u32) -> Header {
        self.next_id += 2 * ATTEMPTS_MAX;
        node.request(self.own, kind, self.next_id, address, length)
    }

    fn ask(&mut self, node: &mut Node, kind: Kind, address: u64, length: u32, payload: &[u8]) -> Answer {
        let header = self.header(node, kind, address, length);
        node.ask(&header, payload)
    }

    fn allocate(&mut self, node: &mut Node, bytes: u64) -> Result<u64, ErrorCode> {
        let payload = allocation(bytes);
        let answer = self.ask(node, Kind::Allocate, 0, payload.len() as u32, &payload);
        answer.result().map(|()| answer.header.address)
    }

    fn fill_with_secret(&mut self, node: &mut Node, address: u64) -> Result<(), ErrorCode> {
        let secret = self.secret.repeat(PAGE as usize / SECRET_BYTES);
        self.ask(node, Kind::Write, address, PAGE as u32, &secret).result()
    }

    fn read_at(&mut self, node: &mut Node, address: u64, bytes: usize) -> Result<Vec<u8>, ErrorCode> {
        let answer = self.ask(node, Kind::Read, address, bytes as u32, &[]);
        answer.result().map(|()| answer.payload)
    }
}
