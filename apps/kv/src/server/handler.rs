//! What workers run: [`KvHandler`] executes one [`KvRequest`] on the store.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use yonder::sched::Handler;

use super::budget::{Account, Budget, Charge};
use super::registry::Key;
use crate::memory::ItemMemory;
use crate::protocol::{Command, reply};
use crate::store::{Execution, Store};

/// Who waits for a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Client {
    Tcp(Key),
    Udp(Key),
}

/// One unit of work.
pub struct KvRequest {
    pub(super) work: Work,
    /// Seconds since 1970.
    pub(super) now_s: u32,
}

pub(super) enum Work {
    Execute { client: Client, command: Command },
    Crawl { slots_max: usize },
}

/// What a [`KvRequest`] led to.
pub struct KvReply {
    pub(super) outcome: WorkDone,
}

pub(super) enum WorkDone {
    Executed(Executed),
    Crawled,
}

/// What became of a command.
pub(super) struct Executed {
    pub(super) client: Client,
    pub(super) execution: Execution,
    /// What the reply is charged for.
    pub(super) charge: Charge,
    /// Whether there was no room for something.
    pub(super) was_refused: bool,
}

/// Serves requests from a store. Shared by all workers.
pub struct KvHandler<M: ItemMemory> {
    pub(super) store: Arc<Store<M>>,
    /// What clients and requests may have allocated.
    pub(super) buffers: Budget,
}

impl<M: ItemMemory> KvHandler<M> {
    /// The store that requests are served from.
    pub fn store(&self) -> &Arc<Store<M>> {
        &self.store
    }
}

impl<M: ItemMemory> Handler for KvHandler<M> {
    type Request = KvRequest;
    type Reply = KvReply;

    fn handle(&self, request: KvRequest) -> KvReply {
        let KvRequest { work, now_s } = request;
        let outcome = match work {
            Work::Execute { client, command } => {
                // A panic must reach this client as an error, not leave it waiting. Locks and slots are given back
                // while it unwinds.
                let mut account = Account::new(&self.buffers);
                let execute = AssertUnwindSafe(|| self.store.execute_in(command, now_s, &mut account));
                let executed = catch_unwind(execute);
                let execution =
                    executed.unwrap_or_else(|_| Execution { reply: reply::INTERNAL_ERROR.to_vec(), rest: None });
                let (charge, was_refused) = account.close(execution.reply.capacity());
                WorkDone::Executed(Executed { client, execution, charge, was_refused })
            }
            Work::Crawl { slots_max } => {
                self.store.crawl(now_s, slots_max);
                WorkDone::Crawled
            }
        };
        KvReply { outcome }
    }

    fn key(&self, request: &KvRequest) -> Option<u64> {
        match &request.work {
            Work::Execute { command, .. } => command.key().map(|key| self.store.key_number(key)),
            Work::Crawl { .. } => None,
        }
    }
}
