//! What a meta command asks for: [`MetaRequest`] and the types of its parts.

use crate::protocol::{Answer, Exptime, KeyValue};

/// A meta command, for the store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MetaRequest {
    /// What is to be done.
    pub verb: MetaVerb,
    /// The key, and the value that comes with `ms`.
    pub item: KeyValue,
    /// The flags behind the key.
    pub flags: MetaFlags,
}

/// Which meta command it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MetaVerb {
    /// `me`: all that is known of an item but its value, for people.
    Debug,
    /// `mg`.
    Get,
    /// `ms`.
    Set(MetaSetMode),
    /// `md`.
    Delete,
    /// `ma`.
    Arithmetic(MetaArithmetic),
}

/// How `ms` stores its value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MetaSetMode {
    /// Always (`S`).
    Set,
    /// If there is no such item (`E`).
    Add,
    /// If there is such an item (`R`).
    Replace,
    /// Behind the value of an existing item (`A`).
    Append,
    /// In front of the value of an existing item (`P`).
    Prepend,
}

/// What `ma` computes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MetaArithmetic {
    /// Up or down.
    pub direction: crate::protocol::Direction,
    /// By how much.
    pub delta: u64,
    /// The number of an item that is made because there was none.
    pub initial: u64,
}

/// How the client writes the key, and wants it written.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum KeyForm {
    /// As it is.
    #[default]
    Text,
    /// In base64, so that it may be any bytes.
    Base64,
}

/// One flag that has its place in the order: it is shown or done when its turn comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MetaStep {
    /// Show the length of the value.
    Size,
    /// Show the seconds until the item expires.
    TimeLeft,
    /// Show the cas unique.
    Cas,
    /// Show the client's flags.
    ClientFlags,
    /// Show the seconds since the item was accessed.
    LastAccess,
    /// Show whether the item was fetched before.
    Fetched,
    /// Show the key.
    Key,
    /// Show the opaque token.
    Opaque,
    /// Set the expiry.
    Expire(Exptime),
    /// Set the expiry of an item that was made because there was none.
    ExpireNew(Exptime),
    /// Win the right to recache the item if it expires before this.
    Recache(Exptime),
}

/// The flags of a meta command. Those that do not concern a command do nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MetaFlags {
    /// What is shown and done, in the order of the flags.
    pub steps: Vec<MetaStep>,
    /// Comes back as it is, `O` included.
    pub opaque: Vec<u8>,
    /// How the key is written.
    pub key_form: KeyForm,
    /// Whether the answer that is nothing new is wanted: a miss of `mg`, success of the others.
    pub answer: Answer,
    /// Whether the value is shown (`v`).
    pub shows_value: bool,
    /// Whether this access is not counted as one (`u`).
    pub leaves_no_trace: bool,
    /// Whether the item is to become stale (`I`).
    pub invalidates: bool,
    /// Whether only the value goes (`x`).
    pub empties: bool,
    /// The cas unique that the item is to have (`C`).
    pub cas: Option<u64>,
    /// The cas unique that the item is to get (`E`).
    pub new_cas: Option<u64>,
    /// The client's flags that the item is to get (`F`).
    pub client_flags: u32,
}

impl Default for MetaFlags {
    fn default() -> Self {
        Self {
            steps: Vec::new(),
            opaque: Vec::new(),
            key_form: KeyForm::Text,
            answer: Answer::Wanted,
            shows_value: false,
            leaves_no_trace: false,
            invalidates: false,
            empties: false,
            cas: None,
            new_cas: None,
            client_flags: 0,
        }
    }
}

impl MetaFlags {
    /// The expiry that is asked for (`T`).
    #[must_use]
    pub fn exptime(&self) -> Option<Exptime> {
        self.steps.iter().find_map(|step| if let MetaStep::Expire(exptime) = step { Some(*exptime) } else { None })
    }

    /// The expiry of an item that is to be made if there is none (`N`).
    #[must_use]
    pub fn new_exptime(&self) -> Option<Exptime> {
        self.steps.iter().find_map(|step| if let MetaStep::ExpireNew(exptime) = step { Some(*exptime) } else { None })
    }
}

impl MetaRequest {
    /// The key.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        self.item.key()
    }

    /// Bytes that are allocated for it.
    #[must_use]
    pub fn allocated_bytes(&self) -> usize {
        size_of::<Self>()
            + self.item.allocated_bytes()
            + self.flags.opaque.capacity()
            + self.flags.steps.capacity() * size_of::<MetaStep>()
    }
}
