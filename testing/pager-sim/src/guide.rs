//! [`RandomGuide`]: a guide that fetches ahead, peeks and reads here and there, and checks all that it is told.

use yonder_guide::{Arrived, Guide, Reach, Reading, Touch, Verdict, word};
use yonder_units::PAGE_BYTES;

use crate::oracle::{self, Word};
use crate::program::WORDS;
use crate::world::{below, with};

/// Pages from that of a touch on that it looks at.
const PAGES: u64 = 6;

/// A guide. What it reads is a word, as programs use them.
pub(crate) struct RandomGuide;

/// A region's addresses begin at a multiple of this.
const REGION: u64 = 1 << 32;

fn word_at(address: u64) -> Word {
    let (region, offset) = (address / REGION * REGION, address % REGION);
    (region as usize, (offset / PAGE_BYTES as u64) as u32, (offset % PAGE_BYTES as u64) as u16)
}

impl Guide for RandomGuide {
    fn touched(&mut self, touch: &Touch<'_>, reach: &mut dyn Reach) -> Verdict {
        let page = touch.address / PAGE_BYTES as u64 + below(PAGES);
        let address = page * PAGE_BYTES as u64;
        match below(4) {
            0 => _ = reach.prefetch(address, (1 + below(PAGES)) * PAGE_BYTES as u64),
            1 | 2 => read(address, reach),
            _ => {}
        }
        if below(2) == 0 { Verdict::Known } else { Verdict::Unknown }
    }

    /// The note is the step at which the read was asked for.
    fn arrived(&mut self, arrived: &Arrived<'_>, reach: &mut dyn Reach) {
        oracle::check(word_at(arrived.address), word(arrived.bytes), arrived.note);
        if below(2) == 0 {
            read(arrived.address + PAGE_BYTES as u64, reach);
        }
    }
}

/// Reads a word of the page of `address`, or peeks at it.
fn read(address: u64, reach: &mut dyn Reach) {
    let at = address / PAGE_BYTES as u64 * PAGE_BYTES as u64 + u64::from(WORDS[below(WORDS.len() as u64) as usize]);
    let (since, mut bytes) = (with(|world| world.steps), [0; 8]);
    let is_here =
        if below(2) == 0 { reach.peek(at, &mut bytes) } else { reach.read(at, &mut bytes, since) == Reading::Done };
    if is_here {
        oracle::check(word_at(at), word(&bytes), since);
    }
}
