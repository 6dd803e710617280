//! Local memory in the shape of far memory, that can fail on purpose: [`FlatMemory`]. And ways to run commands on it.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use yonder_kv::protocol::{Command, Parser, Step};
use yonder_kv::{ItemMemory, Store};

const PAGE_BYTES: u64 = 4096;
const VALUE_BYTES_MAX: usize = 1 << 20;
const PANIC: u64 = u64::MAX;

/// An injected paging error.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Lost {
    /// The node, for a while.
    Node,
    /// The page, for good.
    Page,
}

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "lost, for a test: {self:?}")
    }
}

impl std::error::Error for Lost {}

/// Which accesses fail.
pub(crate) enum Faults {
    /// None.
    Never,
    /// All.
    Always,
    /// One in this many, by a fixed pseudo-random sequence.
    OneIn(u64),
    /// All, with a panic instead of an error.
    Panic,
}

/// Memory in pages, each behind a lock, so that an access of several pages is no more atomic than a far one.
#[derive(Clone)]
pub(crate) struct FlatMemory(Arc<Inner>);

struct Inner {
    pages: Vec<Mutex<Box<[u8]>>>,
    /// 0: never fail; 1: always; n: one in n; [`PANIC`]: panic.
    fail_one_in: AtomicU64,
    sequence: AtomicU64,
    accesses: AtomicU64,
    writes: AtomicU64,
    lost_pages: Mutex<HashSet<u64>>,
    meanwhile: Mutex<Option<Others>>,
    afterwards: Mutex<Option<Others>>,
    during_renewal: Mutex<Option<Others>>,
    /// Whether renewals fail, and are executed later.
    renewals_fail: AtomicBool,
    late_renewals: Mutex<HashSet<u64>>,
}

/// What other requests do.
type Others = Box<dyn FnOnce() + Send>;

impl FlatMemory {
    pub(crate) fn new(bytes: u64) -> Self {
        let page = || Mutex::new(vec![0; PAGE_BYTES as usize].into_boxed_slice());
        Self(Arc::new(Inner {
            pages: (0..bytes / PAGE_BYTES).map(|_| page()).collect(),
            fail_one_in: AtomicU64::new(0),
            sequence: AtomicU64::new(1),
            accesses: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            lost_pages: Mutex::default(),
            meanwhile: Mutex::default(),
            afterwards: Mutex::default(),
            during_renewal: Mutex::default(),
            renewals_fail: AtomicBool::new(false),
            late_renewals: Mutex::default(),
        }))
    }

    /// From now on, these accesses fail.
    pub(crate) fn fail(&self, faults: Faults) {
        let one_in = match faults {
            Faults::Never => 0,
            Faults::Always => 1,
            Faults::OneIn(one_in) => one_in,
            Faults::Panic => PANIC,
        };
        self.0.fail_one_in.store(one_in, Ordering::Relaxed);
    }

    /// The page with the byte at `offset` is lost for good.
    pub(crate) fn lose(&self, offset: u64) {
        self.0.lost_pages.lock().unwrap_or_else(PoisonError::into_inner).insert(offset / PAGE_BYTES);
    }

    /// What others do while the next access waits for its page.
    pub(crate) fn meanwhile(&self, others: impl FnOnce() + Send + 'static) {
        *self.0.meanwhile.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(others));
    }

    /// What others do after the next access, before whoever made it goes on.
    pub(crate) fn afterwards(&self, others: impl FnOnce() + Send + 'static) {
        *self.0.afterwards.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(others));
    }

    /// What others do when the next renewal has made its pages new, before whoever asked for it goes on.
    pub(crate) fn during_renewal(&self, others: impl FnOnce() + Send + 'static) {
        *self.0.during_renewal.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(others));
    }

    /// Whether renewals fail from now on: each is executed late, unless another of its pages has succeeded by then.
    pub(crate) fn fail_renewals(&self, fail: bool) {
        self.0.renewals_fail.store(fail, Ordering::Relaxed);
    }

    /// Executes renewals that have failed. Returns of how many pages.
    pub(crate) fn renew_late(&self) -> usize {
        let mut late = self.0.late_renewals.lock().unwrap_or_else(PoisonError::into_inner);
        late.iter().for_each(|page| self.renew_page(*page));
        let pages = late.len();
        late.clear();
        pages
    }

    fn renew_page(&self, page: u64) {
        self.0.lost_pages.lock().unwrap_or_else(PoisonError::into_inner).remove(&page);
        self.0.pages[page as usize].lock().unwrap_or_else(PoisonError::into_inner).fill(0);
    }

    /// How many pages have been accessed so far.
    pub(crate) fn accesses(&self) -> u64 {
        self.0.accesses.load(Ordering::Relaxed)
    }

    /// How many writes there have been so far.
    pub(crate) fn writes(&self) -> u64 {
        self.0.writes.load(Ordering::Relaxed)
    }

    /// Visits the bytes page by page; a page may fail after earlier ones have been visited.
    fn visit(
        &self,
        offset: u64,
        len: usize,
        mut visit: impl FnMut(&mut [u8], std::ops::Range<usize>),
    ) -> Result<(), Lost> {
        let (before, after) = [&self.0.meanwhile, &self.0.afterwards]
            .map(|others| others.lock().unwrap_or_else(PoisonError::into_inner).take())
            .into();
        before.into_iter().for_each(|others| others());
        let mut done = 0;
        while done < len {
            let at = offset + done as u64;
            let start = (at % PAGE_BYTES) as usize;
            let count = (len - done).min(PAGE_BYTES as usize - start);
            self.fault()?;
            if self.0.lost_pages.lock().unwrap_or_else(PoisonError::into_inner).contains(&(at / PAGE_BYTES)) {
                return Err(Lost::Page);
            }
            let mut page = self.0.pages[(at / PAGE_BYTES) as usize].lock().unwrap_or_else(PoisonError::into_inner);
            visit(&mut page[start..start + count], done..done + count);
            done += count;
        }
        after.into_iter().for_each(|others| others());
        Ok(())
    }

    fn fault(&self) -> Result<(), Lost> {
        self.0.accesses.fetch_add(1, Ordering::Relaxed);
        let one_in = self.0.fail_one_in.load(Ordering::Relaxed);
        if one_in == 0 {
            return Ok(());
        }
        assert!(one_in != PANIC, "a panic, for a test");
        let step = self.0.sequence.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        let mixed = (step ^ step >> 31).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        if (mixed >> 33).is_multiple_of(one_in) { Err(Lost::Node) } else { Ok(()) }
    }
}

impl ItemMemory for FlatMemory {
    type Error = Lost;

    fn is_lost(error: &Lost) -> bool {
        *error == Lost::Page
    }

    fn renew(&self, offset: u64, bytes: u64) -> Result<(), Lost> {
        let mut late = self.0.late_renewals.lock().unwrap_or_else(PoisonError::into_inner);
        let pages = offset / PAGE_BYTES..(offset + bytes) / PAGE_BYTES;
        if self.0.renewals_fail.load(Ordering::Relaxed) {
            late.extend(pages);
            return Err(Lost::Node);
        }
        for page in pages {
            late.remove(&page);
            self.renew_page(page);
        }
        drop(late);
        let others = self.0.during_renewal.lock().unwrap_or_else(PoisonError::into_inner).take();
        others.into_iter().for_each(|others| others());
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.0.pages.len() as u64 * PAGE_BYTES
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Lost> {
        self.visit(offset, into.len(), |page, range| into[range].copy_from_slice(page))
    }

    fn write(&self, offset: u64, from: &[u8]) -> Result<(), Lost> {
        self.0.writes.fetch_add(1, Ordering::Relaxed);
        self.visit(offset, from.len(), |page, range| page.copy_from_slice(&from[range]))
    }

    fn read_u64(&self, offset: u64) -> Result<u64, Lost> {
        let mut bytes = [0; 8];
        self.read(offset, &mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    fn write_u64(&self, offset: u64, value: u64) -> Result<(), Lost> {
        self.write(offset, &value.to_ne_bytes())
    }

    fn matches(&self, offset: u64, bytes: &[u8]) -> Result<bool, Lost> {
        let mut same = true;
        self.visit(offset, bytes.len(), |page, range| same &= *page == bytes[range])?;
        Ok(same)
    }
}

/// Parses commands that need no server.
pub(crate) fn commands(input: &[u8]) -> Vec<Command> {
    let mut parser = Parser::new(VALUE_BYTES_MAX);
    let (mut at, mut commands) = (0, Vec::new());
    loop {
        let parsed = parser.step(&input[at..]);
        at += parsed.consumed;
        match parsed.step {
            Step::Execute(command) => commands.push(command),
            Step::NeedMore { .. } if at == input.len() => return commands,
            step => panic!("{step:?} at {}", input[at..].escape_ascii()),
        }
    }
}

/// Executes commands to the end and returns the replies.
pub(crate) fn run(store: &Store<FlatMemory>, input: &[u8], now_s: u32) -> Vec<u8> {
    let mut reply = Vec::new();
    for command in commands(input) {
        let mut next = Some(command);
        while let Some(command) = next {
            let execution = store.execute(command, now_s);
            reply.extend(execution.reply);
            next = execution.rest;
        }
    }
    reply
}

/// The value in the reply to a `get` of one key.
pub(crate) fn value(reply: &[u8]) -> Option<&[u8]> {
    let line = reply.iter().position(|byte| *byte == b'\n')? + 1;
    reply.starts_with(b"VALUE ").then(|| &reply[line..reply.len() - b"\r\nEND\r\n".len()])
}

/// One number of the store's statistics.
pub(crate) fn stat(store: &Store<FlatMemory>, name: &str) -> u64 {
    store.stats().iter().find(|(found, _)| *found == name).expect("the statistic exists").1
}

/// A value that names its key all along, so that a mix of two values is noticed.
pub(crate) fn stamped(key: u64, len: usize) -> Vec<u8> {
    format!("[{key}]").bytes().cycle().take(len).collect()
}
