//! Protection of far memory over several nodes: which places have a page's content, and what is done about those that
//! lose it.
//!
//! A [`Group`] is a part of an allocation, with a word for each page and up to eight [`Place`]s, each on another node.
//! Its owner is the only writer, and alone knows which place is current for which page. Queue pairs, one a thread,
//! share the group; so does a mender, and a supervisor who gives places up and puts others in.
//!
//! | file | what it has |
//! |---|---|
//! | `group`, `view` | the slots of a group, and the places in them |
//! | `page`, `word` | what happens to a page: writes, reads, mends |
//! | `sweep` | what is left when a place was given up |
//! | `evacuate` | places that are up and are left all the same, page by page |
//! | `counts` | how many pages are protected less than wanted |
//! | `code` | pages in shares, of which some are enough |
//! | `read`, `write` | one read and one write under way |
//! | `health` | whether a node answers |
//! | `hedge` | when a second place is asked for a page that is late, and how often |
//! | `pace` | which nodes keep up with the others |
//! | `laggards` | for which ones writes wait so long that their places are evacuated |
//! | `mend` | which page is mended next, how fast, and for how long |
//! | `rules` | what a simulator may break |
//!
//! Invariants: a read that counts has brought what was last acknowledged, or zeros of a page that never was; a place
//! that was given up is never asked again; a page that the user was promised is lost only if too many places are.
//!
//! Neighbours: `runtime/fabric` performs this over its fabrics; `core/placement` has the records of what is where.

#![forbid(unsafe_code)]

mod atomic;
pub mod code;
mod counts;
mod evacuate;
mod group;
pub mod health;
pub mod hedge;
pub mod laggards;
pub mod mend;
pub mod pace;
mod page;
mod read;
mod rules;
mod slots;
mod sweep;
mod view;
mod word;
mod write;

pub use evacuate::Evacuation;
pub use group::{Cause, GivenUp, Group, Protection};
pub use page::{Extent, Look, MendEnd, MendTicket, ReadTicket, WriteEnd, WriteRefusal, WriteTicket, Writing};
pub use read::{Read, ReadNext, ReadStep};
pub use rules::{Kept, Rule, Rules};
pub use slots::{Place, SLOTS_MAX, Slot, SlotSet};
pub use sweep::Swept;
pub use view::{Use, View};
pub use word::Word;
pub use write::{Landing, Write, WriteNext, WriteStep};
