//! [`Lane`]: a client with its owner's data, for tests that look at one rule at a time.

use std::collections::HashMap;

use yonder_client::{
    Client, Completion, Config, Operation, OperationId, Outcome, Payload, Received, SubmitError, Transport,
};
use yonder_wire::{AtomicOperation, Body, ErrorCode, Header, Kind, split};

use crate::node::{CAPABILITY, Node, PID, sealed};

/// A message that the client wants to send.
pub(crate) struct Sent {
    pub(crate) header: Header,
    pub(crate) bytes: Vec<u8>,
}

pub(crate) struct Lane {
    pub(crate) client: Client,
    pub(crate) node: Node,
    pub(crate) now: u64,
    /// Data of reads and writes by token.
    pub(crate) data: HashMap<u64, Vec<u8>>,
    pub(crate) answers: Vec<(u64, Vec<u8>)>,
}

/// Limits in which everything is small.
pub(crate) fn small(transport: Transport) -> Config {
    Config {
        operations_max: 8,
        fragments_max: 8,
        fragment_bytes: 128,
        dependency_page_bytes: 256,
        timeout_min: 1000,
        timeout_max: 16_000,
        ..Config::new(transport, 1 << 40)
    }
}

impl Lane {
    pub(crate) fn new(config: Config) -> Self {
        let node = Node::new(1 << 10, 1_000_000);
        Self { client: Client::new(config), node, now: 100, data: HashMap::new(), answers: Vec::new() }
    }

    /// A lane whose client knows the node's clock, from an answer that says nothing of the network: one of the slow
    /// path.
    pub(crate) fn with_clock(config: Config) -> Self {
        let mut lane = Self::new(config);
        lane.submit(Kind::Status, 0, 0, 0);
        lane.run();
        assert_eq!((lane.outcomes(), lane.client.idle()), (vec![(0, Outcome::Done)], true));
        lane.answers.clear();
        lane
    }

    pub(crate) fn operation(kind: Kind, address: u64, length: u64, token: u64) -> Operation<'static> {
        let (pid, capability) = (PID, CAPABILITY);
        Operation { kind, pid, capability, address, length, body: &[], deadline: u64::MAX, token }
    }

    pub(crate) fn try_submit(&mut self, operation: &Operation<'_>) -> Result<OperationId, SubmitError> {
        if matches!(operation.kind, Kind::Read | Kind::Write) {
            self.data.entry(operation.token).or_insert_with(|| vec![operation.token as u8; operation.length as usize]);
        }
        self.client.submit(operation, self.now)
    }

    pub(crate) fn submit(&mut self, kind: Kind, address: u64, length: u64, token: u64) -> OperationId {
        self.try_submit(&Self::operation(kind, address, length, token)).unwrap()
    }

    pub(crate) fn submit_until(
        &mut self,
        deadline: u64,
        kind: Kind,
        address: u64,
        length: u64,
        token: u64,
    ) -> OperationId {
        let operation = Operation { deadline, ..Self::operation(kind, address, length, token) };
        self.try_submit(&operation).unwrap()
    }

    pub(crate) fn submit_atomic(&mut self, operation: AtomicOperation, address: u64, token: u64) -> OperationId {
        let mut body = [0; AtomicOperation::BYTES];
        operation.write_to(&mut body);
        self.try_submit(&Operation { body: &body, ..Self::operation(Kind::Atomic, address, 8, token) }).unwrap()
    }

    /// The next message to send.
    pub(crate) fn transmit(&mut self) -> Option<Sent> {
        let transmit = self.client.transmit(self.now)?;
        let payload = match transmit.payload {
            Payload::None => &[],
            Payload::Inline(bytes) => bytes,
            Payload::Caller { offset, length } => &self.data[&transmit.token][offset as usize..][..length],
        };
        Some(Sent { header: transmit.header, bytes: sealed(&transmit.header, payload) })
    }

    /// All messages that may be sent now.
    pub(crate) fn transmit_all(&mut self) -> Vec<Sent> {
        std::iter::from_fn(|| self.transmit()).collect()
    }

    /// The node's answer to a message.
    pub(crate) fn execute(&mut self, sent: &Sent) -> Vec<u8> {
        self.node.handle(&sent.bytes, self.now).unwrap()
    }

    pub(crate) fn receive(&mut self, bytes: &[u8]) -> Received {
        let message = split(bytes).unwrap().unwrap();
        message.verify().unwrap();
        let received = self.client.receive(&message, self.now);
        match received {
            Received::Data { token, offset } => {
                let into = &mut self.data.get_mut(&token).unwrap()[offset as usize..][..message.payload.len()];
                into.copy_from_slice(message.payload);
            }
            Received::Answer { token } => self.answers.push((token, message.payload.to_vec())),
            Received::Nothing => {}
        }
        received
    }

    /// Sends a message to the node and takes the answer.
    pub(crate) fn exchange(&mut self, sent: &Sent) -> Received {
        let answer = self.execute(sent);
        self.receive(&answer)
    }

    /// Exchanges everything that may be sent, until nothing is.
    pub(crate) fn run(&mut self) {
        while let Some(sent) = self.transmit() {
            self.exchange(&sent);
        }
    }

    /// Lets time pass until the client has something to do.
    pub(crate) fn wait(&mut self) {
        self.now = self.client.timeout().expect("the client waits for nothing").max(self.now);
        self.client.advance(self.now);
    }

    pub(crate) fn completions(&mut self) -> Vec<Completion> {
        std::iter::from_fn(|| self.client.completion()).collect()
    }

    /// Outcomes by token.
    pub(crate) fn outcomes(&mut self) -> Vec<(u64, Outcome)> {
        self.completions().into_iter().map(|completion| (completion.token, completion.outcome)).collect()
    }
}

/// A small lane over datagrams whose client knows the node's clock.
pub(crate) fn lane() -> Lane {
    Lane::with_clock(small(Transport::Datagram))
}

/// What messages ask for, and where.
pub(crate) fn kinds(sent: &[Sent]) -> Vec<(Kind, u64)> {
    sent.iter().map(|sent| (sent.header.kind, sent.header.address)).collect()
}

/// The node's refusal of a message.
pub(crate) fn refusal(sent: &Sent, lane: &Lane, code: ErrorCode) -> Vec<u8> {
    sealed(&sent.header.refusal(lane.node.clock(lane.now), code), &[])
}
