//! [`Lane`]: the client, its clock, and what comes to it.

use yonder_client::{Client, Config, Operation, Received, Transport, WindowConfig};
use yonder_wire::{Direction, ErrorCode, Header, Kind, split};

use super::ledger::{Ledger, Submission};
use crate::script::Step;

/// Longest time that passes at once, in nanoseconds.
const NANOS_MAX: u64 = 1 << 36;
/// How long the end may take: this many messages and waits.
const ROUNDS_MAX: u32 = 20_000;
/// Most bytes of a read or write, but for a few.
const BYTES_MAX: u64 = 700;

/// Most bytes of a discard: a few requests.
const DISCARD_BYTES_MAX: u64 = 1 << 23;

const KINDS: [Kind; 20] = [
    Kind::Read,
    Kind::Read,
    Kind::Read,
    Kind::Write,
    Kind::Write,
    Kind::Write,
    Kind::Atomic,
    Kind::Atomic,
    Kind::Discard,
    Kind::Discard,
    Kind::Free,
    Kind::Allocate,
    Kind::CreateSpace,
    Kind::DestroySpace,
    Kind::Grant,
    Kind::Translate,
    Kind::Call,
    Kind::Status,
    Kind::Ping,
    Kind::Hello,
];

const CODES: [ErrorCode; 12] = [
    ErrorCode::Busy,
    ErrorCode::Corrupt,
    ErrorCode::Busy,
    ErrorCode::Corrupt,
    ErrorCode::BadAddress,
    ErrorCode::OutOfMemory,
    ErrorCode::TooOld,
    ErrorCode::Aborted,
    ErrorCode::Moved,
    ErrorCode::Unsupported,
    ErrorCode::NotAllowed,
    ErrorCode::System,
];

/// A client and all that happens to it.
#[derive(Debug)]
pub(super) struct Lane {
    client: Client,
    ledger: Ledger,
    transport: Transport,
    now: u64,
}

impl Lane {
    /// A lane with small limits, which the step chooses.
    pub(super) fn new(step: &mut Step<'_>) -> Self {
        let transport = if step.once_in(3) { Transport::Stream } else { Transport::Datagram };
        let window = WindowConfig { packets_initial: step.pick(&[4.0, 1.0, 0.05]), ..WindowConfig::default() };
        let config = Config {
            operations_max: step.pick(&[8, 1, 3]),
            fragments_max: step.pick(&[8, 1, 4]),
            fragment_bytes: step.pick(&[128, 200, 4096]),
            dependency_page_bytes: 256,
            timeout_min: 1000,
            timeout_max: 16_000,
            window,
            incast_bytes: step.pick(&[1024, 1, 200]),
            ..Config::new(transport, step.pick(&[1 << 40, 0, (1 << 63) - 1]))
        };
        let dependency_page_bytes = config.dependency_page_bytes;
        Self { client: Client::new(config), ledger: Ledger::new(dependency_page_bytes), transport, now: 100 }
    }

    /// Does one thing, and says which and what came of it.
    pub(super) fn act(&mut self, step: &mut Step<'_>) -> [u64; 3] {
        let what = step.below(16);
        let seen = match what {
            0..3 => self.submit(step),
            3..6 => (0..=step.below(4)).map(|_| u64::from(self.transmit().is_some())).sum(),
            6 => self.wait(step),
            7..10 => self.answer(step),
            10 | 11 => self.answer_wrongly(step),
            12 => self.answer_nothing_asked(step),
            13 => self.cancel(step),
            14 => self.fence(),
            _ => self.happen(step),
        };
        [what, seen, self.client.outstanding() as u64]
    }

    /// What the client reports is as it may be.
    pub(super) fn check(&mut self) {
        while let Some(completion) = self.client.completion() {
            self.ledger.complete(&completion, self.now);
        }
        assert_eq!(self.client.outstanding(), self.ledger.waiting(), "operations are lost, or counted twice");
        if self.client.idle() {
            assert_eq!(self.ledger.waiting(), 0, "an idle client has nothing to wait for");
        }
        let stats = self.client.stats();
        assert!(stats.window_packets.is_finite() && stats.window_packets > 0.0, "{stats:?}");
    }

    /// The node answers everything from now on: everything ends.
    pub(super) fn end(&mut self) {
        if self.transport == Transport::Stream {
            self.client.reconnected(self.now);
        }
        for _ in 0..ROUNDS_MAX {
            if self.client.idle() {
                return;
            }
            match self.transmit() {
                Some(header) => self.deliver_good(&header),
                None => {
                    if let Some(due) = self.client.timeout() {
                        self.now = self.now.max(due);
                    }
                    self.client.advance(self.now);
                }
            }
            self.check();
        }
        panic!("{} operations do not end although all is answered", self.client.outstanding());
    }

    fn submit(&mut self, step: &mut Step<'_>) -> u64 {
        let kind = step.pick(&KINDS);
        let length = match kind {
            Kind::Read | Kind::Write if step.once_in(24) => 100_000,
            Kind::Discard if step.once_in(8) => step.number() % DISCARD_BYTES_MAX,
            Kind::Atomic => 8,
            Kind::Call => step.below(BYTES_MAX),
            _ => step.below(BYTES_MAX),
        };
        let address = if step.once_in(8) { step.number() } else { step.below(2048) };
        let deadline = if step.once_in(3) { self.now.saturating_add(step.below(40_000)) } else { u64::MAX };
        let body: &[u8] = match kind {
            Kind::Atomic => &[0; 24],
            Kind::Allocate => &[0; 32],
            Kind::Hello => &[0; 8],
            _ => &[],
        };
        let token = self.ledger.next_token();
        let pid = 7 + u32::from(step.once_in(4));
        let operation = Operation { kind, pid, capability: 1, address, length, body, deadline, token };
        match self.client.submit(&operation, self.now) {
            Ok(id) => {
                let fields = Submission { kind: Some(kind), pid, address, length, deadline };
                self.ledger.submit(id, fields);
                kind as u64
            }
            Err(_) => {
                assert!(!self.client.has_room());
                0
            }
        }
    }

    fn fence(&mut self) -> u64 {
        let token = self.ledger.next_token();
        let Ok(id) = self.client.fence(token, self.now) else { return 0 };
        let fields = Submission { kind: None, pid: 0, address: 0, length: 0, deadline: u64::MAX };
        self.ledger.submit(id, fields);
        1
    }

    /// The next message of the client.
    fn transmit(&mut self) -> Option<Header> {
        let transmit = self.client.transmit(self.now)?;
        let (header, token) = (transmit.header, transmit.token);
        self.ledger.send(&transmit);
        assert!(token != 0 || matches!(header.kind, Kind::Ping | Kind::Abort));
        Some(header)
    }

    fn wait(&mut self, step: &mut Step<'_>) -> u64 {
        let to_timeout = step.once_in(2);
        match self.client.timeout() {
            Some(due) if to_timeout => self.now = self.now.max(due.min(1 << 60)),
            _ => self.now = (self.now + step.below(NANOS_MAX)).min(1 << 60),
        }
        self.client.advance(self.now);
        u64::from(to_timeout)
    }

    /// An answer to something that was sent, of the right form.
    fn answer(&mut self, step: &mut Step<'_>) -> u64 {
        let Some(header) = self.ledger.recall(step) else { return 0 };
        if step.once_in(3) {
            let code = step.pick(&CODES);
            self.receive(&header.refusal(self.clock(), code), &[]);
            return code as u64;
        }
        self.deliver_good(&header);
        1
    }

    fn deliver_good(&mut self, header: &Header) {
        let payload_bytes = match header.kind {
            Kind::Read => header.length,
            Kind::Hello | Kind::Allocate | Kind::Translate | Kind::Call | Kind::Status => 16,
            _ => 0,
        };
        let mut answer = header.answer(self.clock(), payload_bytes);
        answer.address = if header.kind == Kind::Atomic { header.request_id } else { header.address };
        self.receive(&answer, &vec![1; answer.payload_bytes()]);
    }

    /// An answer to something that was sent, of which one thing is wrong.
    fn answer_wrongly(&mut self, step: &mut Step<'_>) -> u64 {
        let Some(header) = self.ledger.recall(step) else { return 0 };
        let mut answer = header.answer(step.number(), header.length.min(u32::from(u16::MAX)));
        let what = step.below(6);
        match what {
            0 => answer.kind = step.pick(&KINDS),
            1 => answer.direction = Direction::Request,
            2 => answer.length = step.below(300) as u32,
            3 => answer.request_id = answer.request_id.wrapping_add(step.below(40)).wrapping_sub(20),
            4 => answer.request_id ^= 1 << step.below(64),
            _ => answer.code = step.pick(&CODES),
        }
        answer.first_id = answer.first_id.min(answer.request_id);
        if answer.request_id == 0 || answer.request_id - answer.first_id > u64::from(u32::MAX) {
            answer.request_id = answer.request_id.max(1);
            answer.first_id = answer.request_id;
        }
        if answer.direction == Direction::Request {
            answer.code = ErrorCode::None;
        }
        answer.length = answer.length.min(60_000);
        self.receive(&answer, &vec![2; answer.payload_bytes()]);
        what
    }

    fn answer_nothing_asked(&mut self, step: &mut Step<'_>) -> u64 {
        let request_id = step.number().max(1);
        let header = Header::request(step.pick(&KINDS), request_id, step.number(), step.below(300) as u32);
        let answer = header.answer(step.number(), header.length);
        self.receive(&answer, &vec![3; answer.payload_bytes()]);
        u64::from(answer.kind as u8)
    }

    /// Takes an answer to the client, and checks what it makes of it.
    fn receive(&mut self, answer: &Header, payload: &[u8]) {
        let bytes = [&answer.seal(payload)[..], payload].concat();
        let message = split(&bytes).expect("it is sealed").expect("it is whole");
        let received = self.client.receive(&message, self.now);
        let fits = self.ledger.hear(answer, payload.len());
        match received {
            Received::Nothing => {}
            Received::Data { token, offset } => {
                assert!(fits, "data is taken that was not asked for: {answer:?}");
                self.ledger.take_data(token, offset, payload.len() as u64);
            }
            Received::Answer { token } => {
                assert!(fits, "an answer is taken to what was not asked: {answer:?}");
                self.ledger.take_answer(token, answer.kind);
            }
        }
        if !fits {
            assert!(self.client.completion().is_none(), "an answer to nothing ends an operation: {answer:?}");
        }
    }

    fn cancel(&mut self, step: &mut Step<'_>) -> u64 {
        let Some(id) = self.ledger.cancel(step) else { return 0 };
        self.client.cancel(id);
        1
    }

    fn happen(&mut self, step: &mut Step<'_>) -> u64 {
        let what = step.below(4);
        match what {
            0 => {
                self.client.abandon();
                self.ledger.abandon();
            }
            1 => self.client.reconnected(self.now),
            _ => self.client.advance(self.now),
        }
        what
    }

    /// The node's clock.
    fn clock(&self) -> u64 {
        self.now + 1_000_000
    }
}
