//! The guide for Redis: what `yonder run --guide redis -- redis-server` fetches before Redis touches it.
//!
//! DiLOS (section 6.3) has a guide for the same two kinds of values; it is told what Redis does by hooks in Redis. This
//! one is told nothing: it finds the structure that a fault belongs to by what it sees.
//!
//! **Lists** (`list`). Somebody who walks a list and misses a node's entries has just come from the node, or from an
//! iterator that points to it: one of them is in a register. A node says where its entries are, how many bytes they
//! have, and which node is next, so from there on the guide walks ahead.
//!
//! **Strings** (`text`). Who sends a string looks at its header first, so that is what is missed. The header says how
//! long it is.
//!
//! It serves the packaged Redis of versions 6 and 7 as it is. Of another program, or of another layout, it finds
//! nothing, and the general prefetcher does what it does without a guide.

#![forbid(unsafe_code)]

mod layout;
mod list;
mod text;

use yonder_guide::{Arrived, Cause, Guide, Reach, Touch, Verdict};

use list::ListWalk;
use text::Text;

/// Notes of reads for lists; those for strings are others.
const OF_LIST: u64 = 1 << 63;

yonder_plugin::export_guide!(RedisGuide);

/// See the head of this file.
#[derive(Default)]
pub struct RedisGuide {
    list: ListWalk,
    text: Text,
}

impl Guide for RedisGuide {
    fn touched(&mut self, touch: &Touch<'_>, reach: &mut dyn Reach) -> Verdict {
        match touch.cause {
            Cause::Miss if self.list.missed(touch, reach) => return Verdict::Known,
            Cause::Miss => self.text.missed(touch, reach),
            Cause::Hit => _ = self.list.hit(touch.address, reach) || self.text.hit(touch.address, reach),
        }
        Verdict::Unknown
    }

    fn arrived(&mut self, arrived: &Arrived<'_>, reach: &mut dyn Reach) {
        if arrived.note & OF_LIST != 0 {
            self.list.arrived(arrived, reach);
        } else {
            self.text.arrived(arrived, reach);
        }
    }
}
