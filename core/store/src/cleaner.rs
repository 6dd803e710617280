//! [`Cleaner`]: moves what lives in a segment to the end of the log, so that the segment is free.
//!
//! It reads a victim in pieces that begin and end with something that lives, checks each page of a piece, and posts it
//! to a writer of its own. A page that is not what was written stays where it is: who reads it will see the same.

use yonder_units::{Narrow, PageIndex};

use crate::{BufferIndex, Disk, GRAIN_BYTES, Head, Index, Location, Log, PAGE_GRAINS, Writer};

/// The buffer that pieces are read into; the others are the writer's.
const PIECE: BufferIndex = BufferIndex(0);

/// What is being done.
#[derive(Clone, Copy, Debug)]
enum Phase {
    Idle,
    /// The disk reads a piece.
    Reading(Piece),
    /// What was read is being posted.
    Posting(Piece),
    /// All is posted, and the disk is writing.
    Writing,
}

/// What is read at once of a victim.
#[derive(Clone, Copy, Debug)]
struct Piece {
    /// Its first grain.
    start: u64,
    /// Number of the first move behind it.
    end: usize,
}

/// The cleaning of one log, by one thread.
#[derive(Debug)]
pub struct Cleaner {
    writer: Writer,
    piece_grains: usize,
    phase: Phase,
    victim: usize,
    /// What lived in the victim when it was chosen, by place.
    moves: Vec<(PageIndex, Location)>,
    /// How many of them are done with.
    next: usize,
}

impl Cleaner {
    /// A cleaner of logs with segments of `segment_grains`, that has the first `buffers` buffers of its disk, each of
    /// `buffer_bytes`.
    ///
    /// # Panics
    /// If there are fewer than three, or one has no room for a page.
    #[must_use]
    pub fn new(segment_grains: usize, buffers: u16, buffer_bytes: usize) -> Self {
        let piece_grains = buffer_bytes / GRAIN_BYTES;
        assert!(piece_grains >= PAGE_GRAINS, "pieces of {buffer_bytes} bytes");
        Self {
            writer: Writer::new(Head::Moved, PIECE.0 + 1, buffers - 1, buffer_bytes),
            piece_grains,
            phase: Phase::Idle,
            victim: 0,
            moves: Vec::with_capacity(segment_grains),
            next: 0,
        }
    }

    /// Goes on as far as it can. Whether there is anything to wait for from the disk; if not, nothing is to be cleaned
    /// now.
    pub fn step(&mut self, index: &Index, log: &mut Log, disk: &mut impl Disk) -> bool {
        loop {
            match self.phase {
                Phase::Idle => {
                    if !log.wants_cleaning() || !self.choose(index, log) {
                        return false;
                    }
                    self.read(disk);
                }
                Phase::Reading(_) => return true,
                Phase::Posting(piece) => {
                    if !self.post(index, log, disk, piece) {
                        return true;
                    }
                    self.read(disk);
                }
                Phase::Writing => {
                    if !self.writer.is_idle() {
                        return true;
                    }
                    log.cleaned(self.victim);
                    self.phase = Phase::Idle;
                }
            }
        }
    }

    /// The disk has ended what it did for `buffer`; `is_done`, if it says that it has done all of it.
    pub fn done(&mut self, index: &Index, log: &mut Log, buffer: BufferIndex, is_done: bool) {
        if buffer != PIECE {
            return self.writer.done(index, log, buffer, is_done, &mut |_| {});
        }
        let Phase::Reading(piece) = self.phase else { unreachable!("a read that was not begun") };
        if !is_done {
            self.next = piece.end;
        }
        self.phase = Phase::Posting(piece);
    }

    /// Takes a victim. Whether there is one.
    fn choose(&mut self, index: &Index, log: &mut Log) -> bool {
        let Some(victim) = log.victim() else { return false };
        self.victim = victim;
        self.moves.clear();
        self.moves.extend(log.records(victim).filter(|(page, location)| index.location(*page) == Some(*location)));
        self.next = 0;
        let is_ordered = self.moves.is_sorted_by(|(_, one), (_, next)| one.end() <= next.start());
        debug_assert!(is_ordered, "records overlap: {:?}", self.moves);
        true
    }

    /// Has the disk read the next piece, or write the last of them.
    fn read(&mut self, disk: &mut impl Disk) {
        let Some((_, first)) = self.moves.get(self.next) else {
            self.writer.flush(disk);
            self.phase = Phase::Writing;
            return;
        };
        let fits = |(_, location): &&(PageIndex, Location)| location.end() - first.start() <= self.piece_grains as u64;
        let piece = self.moves[self.next..].iter().take_while(fits);
        let (end, last) = (self.next + piece.clone().count(), piece.last().expect("a page fits").1);
        let grains = (last.end() - first.start()).narrow_usize();
        disk.read(PIECE, first.start() * GRAIN_BYTES as u64, grains * GRAIN_BYTES);
        self.phase = Phase::Reading(Piece { start: first.start(), end });
    }

    /// Posts what was read of `piece`. Whether all of it.
    fn post(&mut self, index: &Index, log: &mut Log, disk: &mut impl Disk, piece: Piece) -> bool {
        while self.next < piece.end {
            let (page, from) = self.moves[self.next];
            let start = (from.start() - piece.start).narrow_usize() * GRAIN_BYTES;
            let content = &disk.buffer(PIECE)[start..start + from.grains() * GRAIN_BYTES];
            let lives = index.location(page) == Some(from);
            if lives
                && index.is_content(page, content)
                && self.writer.post_move(log, disk, page, from, (PIECE, start)).is_err()
            {
                self.writer.flush(disk);
                if !self.writer.is_idle() {
                    return false;
                }
                // There is no room to move anything to, and none will come of waiting.
                self.next = self.moves.len();
                return true;
            }
            self.next += 1;
        }
        true
    }
}
