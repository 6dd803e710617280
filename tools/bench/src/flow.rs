//! [`Flow`]: one client that has some requests under way; [`drive`]: the loop that loads it, the same for every system
//! that is compared; [`Synchronous`] and [`Asynchronous`], the flows over a remote address space.
//!
//! Requests name items, and each item has a content that is known, so that every answer can be checked.

use std::collections::VecDeque;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use yonder::clib::{Pending, Thread};
use yonder::units::Nanos;
use yonder_load::LatencyRecorder;

use crate::BenchError;

/// One client, whose requests end in the order in which they were posted.
pub(crate) trait Flow {
    /// Begins a request for `item`. It may be sent at once or with the next wait.
    fn post(&mut self, item: u64) -> Result<(), BenchError>;

    /// Waits until the oldest request has ended, and returns how many have.
    fn wait(&mut self) -> Result<usize, BenchError>;
}

/// What a flow is loaded with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Requests are for items below this, at random.
    pub(crate) items: u64,
    /// Requests under way at a time.
    pub(crate) depth: usize,
    /// For how long requests are posted.
    pub(crate) duration: Duration,
    /// Seed of the choice of items.
    pub(crate) seed: u64,
}

/// What a load has come to.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub(crate) latency: LatencyRecorder,
    pub(crate) seconds: f64,
}

impl Measured {
    /// Operations that have ended.
    pub(crate) fn ops(&self) -> u64 {
        self.latency.len()
    }
}

/// Keeps `load.depth` requests of a flow under way for `load.duration`. A latency is from before a post to after the
/// wait that saw its end.
pub(crate) fn drive(flow: &mut dyn Flow, load: &Load) -> Result<Measured, BenchError> {
    let mut random = SmallRng::seed_from_u64(load.seed);
    let mut latency = LatencyRecorder::new();
    let mut posted: VecDeque<Nanos> = VecDeque::with_capacity(load.depth);
    let start = yonder::clock::now();
    let end = start + load.duration.as_nanos() as Nanos;
    let mut now = start;
    loop {
        while now < end && posted.len() < load.depth {
            posted.push_back(now);
            flow.post(random.random_range(0..load.items))?;
            now = yonder::clock::now();
        }
        if posted.is_empty() {
            return Ok(Measured { latency, seconds: (now - start) as f64 / 1e9 });
        }
        let ended = flow.wait()?;
        now = yonder::clock::now();
        for begun in posted.drain(..ended) {
            latency.record(now - begun);
        }
    }
}

/// Items of some size in a remote address space, one behind the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Items {
    pub(crate) address: u64,
    pub(crate) bytes: usize,
}

impl Items {
    fn address_of(self, item: u64) -> u64 {
        self.address + item * self.bytes as u64
    }
}

/// Reads or writes, one at a time.
pub(crate) struct Synchronous<'a> {
    thread: &'a mut Thread,
    items: Items,
    direction: Direction,
    item: u64,
    buffer: Vec<u8>,
}

impl<'a> Synchronous<'a> {
    pub(crate) fn new(thread: &'a mut Thread, items: Items, direction: Direction) -> Self {
        Self { thread, items, direction, item: 0, buffer: vec![0; items.bytes] }
    }
}

impl Flow for Synchronous<'_> {
    fn post(&mut self, item: u64) -> Result<(), BenchError> {
        self.item = item;
        if self.direction == Direction::Write {
            stamp(item, &mut self.buffer);
        }
        Ok(())
    }

    fn wait(&mut self) -> Result<usize, BenchError> {
        let address = self.items.address_of(self.item);
        match self.direction {
            Direction::Read => {
                self.thread.rread(address, &mut self.buffer)?;
                check(self.item, &self.buffer)?;
            }
            Direction::Write => self.thread.rwrite(address, &self.buffer)?,
        }
        Ok(1)
    }
}

/// What requests do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Direction {
    /// They read.
    #[default]
    Read,
    /// They write.
    Write,
}

/// Reads or writes, several at a time.
pub(crate) struct Asynchronous<'a> {
    thread: &'a mut Thread,
    items: Items,
    direction: Direction,
    pending: VecDeque<(u64, Pending<Vec<u8>>)>,
    spare: Vec<Vec<u8>>,
}

impl<'a> Asynchronous<'a> {
    pub(crate) fn new(thread: &'a mut Thread, items: Items, direction: Direction, depth: usize) -> Self {
        let spare = (0..depth).map(|_| vec![0; items.bytes]).collect();
        Self { thread, items, direction, pending: VecDeque::with_capacity(depth), spare }
    }

    fn end(&mut self, item: u64, completed: yonder::clib::Completed<Vec<u8>>) -> Result<(), BenchError> {
        completed.result?;
        if self.direction == Direction::Read {
            check(item, &completed.buffer)?;
        }
        self.spare.push(completed.buffer);
        Ok(())
    }
}

impl Flow for Asynchronous<'_> {
    fn post(&mut self, item: u64) -> Result<(), BenchError> {
        let mut buffer = self.spare.pop().expect("no more requests than buffers");
        let address = self.items.address_of(item);
        let pending = match self.direction {
            Direction::Read => self.thread.rread_async(address, buffer)?,
            Direction::Write => {
                stamp(item, &mut buffer);
                self.thread.rwrite_async(address, buffer)?
            }
        };
        self.pending.push_back((item, pending));
        Ok(())
    }

    fn wait(&mut self) -> Result<usize, BenchError> {
        let (item, oldest) = self.pending.pop_front().expect("a request is under way");
        let completed = self.thread.rwait(oldest);
        self.end(item, completed)?;
        let mut ended = 1;
        while let Some((item, pending)) = self.pending.pop_front() {
            match self.thread.rpoll(pending) {
                Ok(completed) => self.end(item, completed)?,
                Err(pending) => {
                    self.pending.push_front((item, pending));
                    break;
                }
            }
            ended += 1;
        }
        Ok(ended)
    }
}

/// Puts the first bytes of an item's content into `content`.
pub(crate) fn stamp(item: u64, content: &mut [u8]) {
    let stamp = stamp_of(item);
    let bytes = content.len().min(stamp.len());
    content[..bytes].copy_from_slice(&stamp[..bytes]);
}

/// Checks that `content` is the item's.
pub(crate) fn check(item: u64, content: &[u8]) -> Result<(), BenchError> {
    let stamp = stamp_of(item);
    let bytes = content.len().min(stamp.len());
    if content[..bytes] == stamp[..bytes] { Ok(()) } else { Err(BenchError::WrongValues(1)) }
}

/// What an item begins with: another number for each, and never zeros alone.
fn stamp_of(item: u64) -> [u8; 8] {
    ((item + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ends requests in pairs, and counts how many were under way at most.
    #[derive(Default)]
    struct Pairs {
        under_way: usize,
        most: usize,
        posted: u64,
    }

    impl Flow for Pairs {
        fn post(&mut self, item: u64) -> Result<(), BenchError> {
            assert!(item < 10);
            (self.under_way, self.posted) = (self.under_way + 1, self.posted + 1);
            self.most = self.most.max(self.under_way);
            Ok(())
        }

        fn wait(&mut self) -> Result<usize, BenchError> {
            let ended = self.under_way.min(2);
            self.under_way -= ended;
            Ok(ended)
        }
    }

    #[test]
    fn a_flow_is_kept_at_its_depth_and_drained() {
        let mut flow = Pairs::default();
        let load = Load { items: 10, depth: 5, duration: Duration::from_millis(5), seed: 1 };
        let measured = drive(&mut flow, &load).unwrap();
        assert_eq!((flow.most, flow.under_way, measured.ops()), (5, 0, flow.posted));
        assert!(measured.ops() > 0 && measured.seconds >= 0.005);
    }

    #[test]
    fn contents_are_told_apart_whatever_their_length() {
        for bytes in [1, 4, 8, 100] {
            let mut content = vec![0; bytes];
            stamp(7, &mut content);
            assert!(check(7, &content).is_ok() && content != vec![0; bytes]);
        }
        let mut content = vec![0; 4];
        stamp(7, &mut content);
        assert!(check(8, &content).is_err() && check(7, &[0; 4]).is_err());
    }
}
