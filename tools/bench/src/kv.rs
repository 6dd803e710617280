//! `bench kv`: GETs of the store behind `yonder kv`, without its sockets (Adios, section 5.2: memcached with keys of 50
//! bytes and values of 128 or 1,024).
//!
//! Requests are made within the process, so that what is compared is how faults are waited for, and not how a load and
//! a server share CPUs. Keys and values follow from their numbers, and every reply is compared with what was stored.

use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::Serialize;
use yonder::sched::{Handler, SchedConfig, checkpoint};
use yonder::{FarMemory, Region};
use yonder_kv::protocol::{Answer, CasShown, Command, Exptime, KeyValue, Keys, WriteMode};
use yonder_kv::{Store, StoreConfig};
use yonder_load::RequestSource;

use crate::app::{App, AppMemory, AppResult, AppRun};
use crate::{BenchError, OnProgress};

/// Length of a key in bytes.
const KEY_BYTES: usize = 50;
/// What an item has beside its key and value, in bytes: its header, and what its slot has left.
const BESIDE_BYTES: u64 = 46;
/// Room for items in the region, for each byte of them: slots come in sizes, and slabs are whole.
const ROOM: f64 = 1.3;
/// Items that are stored between two reports of progress.
const PROGRESS_EVERY: u64 = 1 << 14;
/// When everything happens, in seconds since 1970: nothing expires.
const NOW_S: u32 = 1;

/// Items by their numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Items {
    count: u64,
    value_bytes: usize,
}

impl Items {
    fn key(number: u64) -> String {
        format!("key-{number:0>digits$}", digits = KEY_BYTES - 4)
    }

    fn value(self, number: u64) -> impl Iterator<Item = u8> {
        let mut words = SmallRng::seed_from_u64(number);
        std::iter::repeat_with(move || words.random::<u64>().to_le_bytes()).flatten().take(self.value_bytes)
    }

    /// The number of the item that this is the reply to a GET of.
    fn number(self, reply: &[u8]) -> Option<u64> {
        let reply = reply.strip_prefix(b"VALUE key-")?;
        let (digits, reply) = reply.split_at_checked(KEY_BYTES - 4)?;
        let number = str::from_utf8(digits).ok()?.parse().ok()?;
        let head = format!(" 0 {}\r\n", self.value_bytes);
        let value = reply.strip_prefix(head.as_bytes())?.strip_suffix(b"\r\nEND\r\n")?;
        let is_whole = value.len() == self.value_bytes && value.iter().copied().eq(self.value(number));
        (is_whole && number < self.count).then_some(number)
    }
}

/// GETs of all items, each as often.
struct Gets {
    items: Items,
    random: SmallRng,
}

impl RequestSource for Gets {
    type Request = Command;
    type Answer = Vec<u8>;
    const KINDS: &'static [&'static str] = &["get"];

    fn next_request(&mut self) -> Command {
        let key = Items::key(self.random.random_range(0..self.items.count));
        Command::Get { keys: Keys::new(key.as_bytes()), cas: CasShown::No, touch: None }
    }

    fn verify(&self, reply: &Vec<u8>) -> Option<usize> {
        self.items.number(reply).map(|_| 0)
    }
}

/// A store that commands are executed on.
struct Executor(Store<Arc<Region>>);

impl Handler for Executor {
    type Request = Command;
    /// What is sent: an error says so in its text.
    type Reply = Result<Vec<u8>, String>;

    fn handle(&self, command: Command) -> Self::Reply {
        checkpoint();
        let reply = self.0.execute(command, NOW_S).reply;
        if reply.starts_with(b"SERVER_ERROR") {
            return Err(String::from_utf8_lossy(&reply).into_owned());
        }
        Ok(reply)
    }

    fn key(&self, command: &Command) -> Option<u64> {
        command.key().map(|key| self.0.key_number(key))
    }
}

/// What is the store's own of a result.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct StoreDetails {
    /// Items.
    pub items: u64,
    /// Bytes of a value.
    pub value_bytes: usize,
}

/// A store in far memory that runs are made on.
pub struct Cache {
    app: App<Executor>,
    items: Items,
}

impl Cache {
    /// Stores as many items of such values as `memory.data` takes.
    ///
    /// # Errors
    /// If far memory cannot be had, or does not hold them.
    pub fn prepare(memory: AppMemory, value_bytes: usize, progress: OnProgress<'_>) -> Result<Self, BenchError> {
        let item_bytes = (KEY_BYTES + value_bytes) as u64 + BESIDE_BYTES;
        let items = Items { count: (memory.data / item_bytes).max(1), value_bytes };
        let far = FarMemory::open(&memory.far, memory.paging)?;
        let region = Arc::new(far.region((memory.data as f64 * ROOM) as u64 + (8 << 20))?);
        let config =
            StoreConfig { value_bytes_max: 1 << 20, items: Some(items.count), hash_seed: 5, access_times: false };
        let store = Store::new(region, config).map_err(|error| BenchError::Settings(error.to_string()))?;
        for number in 0..items.count {
            if number % PROGRESS_EVERY == 0 {
                progress("storing items", number as f64 / items.count as f64);
            }
            let value: Vec<u8> = items.value(number).collect();
            let item = KeyValue::new(Items::key(number).as_bytes(), &value);
            let (mode, exptime, answer) = (WriteMode::Set, Exptime(0), Answer::Wanted);
            let stored = store.execute(Command::Write { mode, item, flags: 0, exptime, answer }, NOW_S).reply;
            if stored != b"STORED\r\n" {
                return Err(BenchError::Settings(format!("an item was not stored: {}", stored.escape_ascii())));
            }
        }
        Ok(Self {
            app: App::new("kv", memory, far, (Executor(store), SchedConfig::with_workers(1).stack_bytes)),
            items,
        })
    }

    /// Runs GETs.
    ///
    /// # Errors
    /// If a reply is wrong, or the threads cannot run.
    pub fn run(&self, run: &AppRun, progress: OnProgress<'_>) -> Result<AppResult<StoreDetails>, BenchError> {
        let Items { count: items, value_bytes } = self.items;
        let source = |seed| Gets { items: self.items, random: SmallRng::seed_from_u64(seed) };
        self.app.run(run, source, || StoreDetails { items, value_bytes }, progress)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_right_if_it_is_whole_and_of_an_item_that_there_is() {
        let items = Items { count: 12, value_bytes: 21 };
        let value = |number| items.value(number).collect::<Vec<_>>();
        let reply = |number, value: &[u8], end: &[u8]| {
            let head = format!("VALUE {} 0 {}\r\n", Items::key(number), value.len());
            [head.as_bytes(), value, end].concat()
        };
        assert_eq!(Items::key(7).len(), KEY_BYTES);
        assert_eq!(items.number(&reply(7, &value(7), b"\r\nEND\r\n")), Some(7));
        assert_eq!(items.number(&reply(7, &value(8), b"\r\nEND\r\n")), None, "another's value");
        assert_eq!(items.number(&reply(12, &value(12), b"\r\nEND\r\n")), None, "there is none");
        assert_eq!(items.number(&reply(7, &value(7)[1..], b"\r\nEND\r\n")), None, "a byte is missing");
        assert_eq!(items.number(&reply(7, &value(7), b"\r\n")), None, "the end is missing");
        assert_eq!(items.number(b"END\r\n"), None, "it is not there any more");
    }
}
