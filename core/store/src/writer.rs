//! [`Writer`]: writes pages to the end of a log, many with one transfer.
//!
//! A page is copied into a batch when it is posted, so that its frame can be used for something else the moment its
//! owner forgets the write, whatever the disk does. A batch goes to the disk when it is full, when the log goes on
//! elsewhere, or when it is flushed. The index learns of its pages when the disk has said that all of it is written.
//!
//! Batches begin and end with pages of the disk, and what is left of the last one is written as zeros: a file system
//! lets a write that has a part of its blocks wait for all other transfers of the file, and all others for that write.

use yonder_units::{Narrow, PAGE_BYTES, PageIndex};

use crate::{BufferIndex, Disk, GRAIN_BYTES, Head, Index, Location, Log, PAGE_GRAINS, Shape};

/// There is no room for more before something ends: a transfer, or a cleaning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

/// What is to be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Write {
    /// Its poster's name for it, unique among those that have not ended.
    pub id: u64,
    /// The page.
    pub page: PageIndex,
    /// Which bytes of it.
    pub shape: Shape,
    /// How many these are.
    pub bytes: usize,
}

/// The end of one write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Written {
    /// As given to the post.
    pub id: u64,
    /// Whether the store has the content.
    pub is_done: bool,
}

/// Where a content comes from.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// From the page's owner.
    Owner { id: u64, shape: Shape, checksum: u64 },
    /// From elsewhere in the log.
    Log { from: Location },
    /// From an owner who wants it no more.
    Cancelled,
}

#[derive(Clone, Copy, Debug)]
struct Item {
    page: PageIndex,
    location: Location,
    source: Source,
}

/// A buffer, and what is in it, one behind the other.
#[derive(Debug)]
struct Batch {
    items: Vec<Item>,
    grains: usize,
}

impl Batch {
    /// Where it ends in the log.
    fn end(&self) -> Option<u64> {
        self.items.last().map(|last| last.location.end())
    }
}

/// The writes of one thread.
#[derive(Debug)]
pub struct Writer {
    head: Head,
    first: u16,
    batch_grains: usize,
    batches: Box<[Batch]>,
    free: Vec<usize>,
    /// The batch that goes on growing.
    filling: Option<usize>,
    /// Batches that the disk has.
    in_flight: usize,
    outstanding: usize,
}

impl Writer {
    /// A writer at `head` that has `buffers` buffers of its disk for itself, from the one with the number `first`, each
    /// of `batch_bytes`.
    ///
    /// # Panics
    /// If there are fewer than two, or a batch has no room for a page.
    #[must_use]
    pub fn new(head: Head, first: u16, buffers: u16, batch_bytes: usize) -> Self {
        let batch_grains = batch_bytes / PAGE_BYTES * PAGE_GRAINS;
        assert!(buffers >= 2 && batch_grains >= PAGE_GRAINS, "{buffers} batches of {batch_bytes} bytes");
        let batch = || Batch { items: Vec::with_capacity(batch_grains), grains: 0 };
        Self {
            head,
            first,
            batch_grains,
            batches: (0..buffers).map(|_| batch()).collect(),
            free: (0..usize::from(buffers)).rev().collect(),
            filling: None,
            in_flight: 0,
            outstanding: 0,
        }
    }

    /// Takes a content, which `fill` writes to where it is told.
    pub fn post(
        &mut self,
        index: &Index,
        log: &mut Log,
        disk: &mut impl Disk,
        Write { id, page, shape, bytes }: Write,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), Full> {
        let (place, content) = self.place(log, disk, page, bytes.div_ceil(GRAIN_BYTES))?;
        let (inside, padding) = disk.buffer(content.buffer)[content.start..content.end].split_at_mut(bytes);
        fill(inside);
        padding.fill(0);
        let checksum = index.checksum(page, &disk.buffer(content.buffer)[content.start..content.end]);
        self.push(content, Item { page, location: place, source: Source::Owner { id, shape, checksum } });
        self.outstanding += 1;
        Ok(())
    }

    /// Takes what is at `from` of the log and has been checked. `content` is as long as that.
    pub(crate) fn post_move(
        &mut self,
        log: &mut Log,
        disk: &mut impl Disk,
        page: PageIndex,
        from: Location,
        (source, start): (BufferIndex, usize),
    ) -> Result<(), Full> {
        let (place, content) = self.place(log, disk, page, from.grains())?;
        disk.copy(source, start, content.buffer, content.start, from.grains() * GRAIN_BYTES);
        self.push(content, Item { page, location: place, source: Source::Log { from } });
        Ok(())
    }

    /// Has the disk write what was posted so far.
    pub fn flush(&mut self, disk: &mut impl Disk) {
        let Some(filling) = self.filling.take() else { return };
        let batch = &self.batches[filling];
        let (start, end) = (batch.items[0].location.start(), batch.items[batch.items.len() - 1].location.end());
        assert!(end - start == batch.grains as u64, "a batch with gaps: {batch:?}");
        assert!(start.is_multiple_of(PAGE_GRAINS as u64), "a batch begins within a page: {batch:?}");
        let [end, padded] = [batch.grains, batch.grains.next_multiple_of(PAGE_GRAINS)].map(|end| end * GRAIN_BYTES);
        let buffer = self.buffer(filling);
        disk.buffer(buffer)[end..padded].fill(0);
        disk.write(buffer, start * GRAIN_BYTES as u64, padded);
        self.in_flight += 1;
        self.check();
    }

    /// The disk has ended what it did with `buffer`; `is_written`, if it says that it has all of it. Tells of every
    /// post of [`Writer::post`] that was not cancelled.
    pub fn done(
        &mut self,
        index: &Index,
        log: &mut Log,
        buffer: BufferIndex,
        is_written: bool,
        completed: &mut dyn FnMut(Written),
    ) {
        let number = usize::from(buffer.0 - self.first);
        let has_disk_it = self.filling != Some(number) && !self.free.contains(&number);
        debug_assert!(has_disk_it, "the disk ends what it has not: {buffer:?}");
        let batch = &mut self.batches[number];
        for item in batch.items.drain(..) {
            let Item { page, location, source } = item;
            match source {
                Source::Owner { id, shape, checksum } => {
                    if is_written {
                        log.commit(location);
                        if let Some(before) = index.set(page, shape, checksum, location) {
                            log.release(before);
                        }
                    } else {
                        log.abandon(location);
                    }
                    self.outstanding -= 1;
                    completed(Written { id, is_done: is_written });
                }
                Source::Log { from } if is_written => {
                    log.commit(location);
                    log.release(if index.relocate(page, from, location) { from } else { location });
                }
                Source::Log { .. } | Source::Cancelled => log.abandon(location),
            }
        }
        batch.grains = 0;
        self.free.push(number);
        self.in_flight -= 1;
        self.check();
    }

    /// Forgets the write that was posted as `id`: whatever the disk has of it, the index will not. Whether there was
    /// one.
    pub fn cancel(&mut self, id: u64) -> bool {
        let is_it = |item: &&mut Item| matches!(item.source, Source::Owner { id: posted, .. } if posted == id);
        let Some(item) = self.batches.iter_mut().flat_map(|batch| &mut batch.items).find(is_it) else { return false };
        item.source = Source::Cancelled;
        self.outstanding -= 1;
        true
    }

    /// Posts that have not ended.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// Whether the disk has nothing of it, and nothing waits to be flushed.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.in_flight == 0 && self.filling.is_none()
    }

    /// Finds room for `grains` in the log and behind one another in a batch.
    fn place(
        &mut self,
        log: &mut Log,
        disk: &mut impl Disk,
        page: PageIndex,
        grains: usize,
    ) -> Result<(Location, Room), Full> {
        // The log may go on elsewhere, and then the content needs a batch of its own.
        if self.free.is_empty() {
            return Err(Full);
        }
        let batch = self.filling.map(|filling| &self.batches[filling]);
        let behind = batch.filter(|batch| batch.grains + grains <= self.batch_grains).and_then(Batch::end);
        let location = log.reserve(self.head, page, grains, behind).ok_or(Full)?;
        if behind != Some(location.start()) {
            self.flush(disk);
        }
        let filling = *self.filling.get_or_insert_with(|| self.free.pop().expect("one is free"));
        let before = self.batches[filling].grains;
        self.batches[filling].grains += grains;
        let [start, end] = [before, before + grains].map(|grains| grains * GRAIN_BYTES);
        Ok((location, Room { batch: filling, buffer: self.buffer(filling), start, end }))
    }

    /// Each batch is free, growing or with the disk.
    fn check(&self) {
        let batches = self.free.len() + usize::from(self.filling.is_some()) + self.in_flight;
        debug_assert!(batches == self.batches.len(), "{batches} of {} batches", self.batches.len());
    }

    fn push(&mut self, room: Room, item: Item) {
        self.batches[room.batch].items.push(item);
    }

    fn buffer(&self, batch: usize) -> BufferIndex {
        BufferIndex(self.first + batch.narrow_u16())
    }
}

/// Bytes of a batch's buffer.
#[derive(Clone, Copy)]
struct Room {
    batch: usize,
    buffer: BufferIndex,
    start: usize,
    end: usize,
}
