//! YCSB's core workloads and LightSwap's (section 5.4, table 2): which kinds of operations, in which shares, on which
//! keys.
//!
//! [`Workload`] is a name that a user types, [`Requests`] what a load is told to do: a mix of its own, or a workload.
//! Pure.

use std::fmt;
use std::str::FromStr;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::keys::Distribution;
use crate::popularity::{Popularity, THETA};
use crate::settings::{Mix, SettingError};

/// Most keys of a scan, as in YCSB's workload E. How many it is, from 1 on, is uniform.
pub(crate) const SCAN_KEYS_MAX: u8 = 100;
/// What a scan is, for those who read results: memcached's protocol has none.
pub const SCANS_ARE: &str = "gets of 1 to 100 consecutive keys at once";

/// A workload with a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Workload {
    /// YCSB A: half reads, half updates.
    YcsbA,
    /// YCSB B: 95 % reads, 5 % updates.
    YcsbB,
    /// YCSB C: reads.
    YcsbC,
    /// YCSB D: 95 % reads of the latest keys, 5 % inserts.
    YcsbD,
    /// YCSB E: 95 % scans, 5 % inserts.
    YcsbE,
    /// YCSB F: half reads, half reads whose key is then written.
    YcsbF,
    /// LightSwap's Readmost: 90 % reads, 5 % inserts, 5 % updates.
    Readmost,
    /// LightSwap's Readwrite: 50 % reads, 25 % inserts, 25 % updates.
    Readwrite,
    /// LightSwap's Writemost: 10 % reads, 45 % inserts, 45 % updates. Its table has the shares of Readmost here, which
    /// its name denies; these are those of Readmost the other way round.
    Writemost,
}

/// Shares of the kinds of operations, in percent; they add up to 100.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shares {
    pub(crate) read: u8,
    pub(crate) update: u8,
    pub(crate) insert: u8,
    pub(crate) scan: u8,
    pub(crate) read_modify_write: u8,
}

/// What a load asks for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Requests {
    /// Gets and sets of a fixed number of keys.
    Mixed {
        /// How popular each key is.
        dist: Distribution,
        /// Shares of gets and sets.
        mix: Mix,
    },
    /// What a workload says.
    Workload(Workload),
}

/// Every workload, in the order of [`Workload`]: as it is typed, and its shares.
const WORKLOADS: [(Workload, &str, Shares); 9] = [
    (Workload::YcsbA, "ycsb-a", Shares { read: 50, update: 50, ..Shares::NONE }),
    (Workload::YcsbB, "ycsb-b", Shares { read: 95, update: 5, ..Shares::NONE }),
    (Workload::YcsbC, "ycsb-c", Shares { read: 100, ..Shares::NONE }),
    (Workload::YcsbD, "ycsb-d", Shares { read: 95, insert: 5, ..Shares::NONE }),
    (Workload::YcsbE, "ycsb-e", Shares { scan: 95, insert: 5, ..Shares::NONE }),
    (Workload::YcsbF, "ycsb-f", Shares { read: 50, read_modify_write: 50, ..Shares::NONE }),
    (Workload::Readmost, "readmost", Shares { read: 90, insert: 5, update: 5, ..Shares::NONE }),
    (Workload::Readwrite, "readwrite", Shares { read: 50, insert: 25, update: 25, ..Shares::NONE }),
    (Workload::Writemost, "writemost", Shares { read: 10, insert: 45, update: 45, ..Shares::NONE }),
];

impl Shares {
    const NONE: Self = Self { read: 0, update: 0, insert: 0, scan: 0, read_modify_write: 0 };
}

impl Workload {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        WORKLOADS.iter().map(|(workload, ..)| *workload)
    }

    /// As it is typed.
    #[must_use]
    pub fn name(self) -> &'static str {
        WORKLOADS[self as usize].1
    }

    /// Whether it has scans.
    #[must_use]
    pub fn has_scans(self) -> bool {
        self.shares().scan > 0
    }

    pub(crate) fn shares(self) -> Shares {
        WORKLOADS[self as usize].2
    }

    /// Whether the newest keys are the most popular ones.
    fn is_latest(self) -> bool {
        self == Self::YcsbD
    }

    /// How popular each of `keys` keys is at the start. LightSwap does not say of its workloads; they get YCSB's
    /// default.
    pub(crate) fn popularity(self, keys: u64) -> Popularity {
        if self.is_latest() { Popularity::latest(keys) } else { Popularity::scrambled(keys, self.shares().insert > 0) }
    }
}

impl FromStr for Workload {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        let found = Self::all().find(|workload| workload.name() == text.trim());
        found.ok_or_else(|| SettingError::Workload(text.to_owned()))
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Shares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shares = [
            ("read", self.read),
            ("update", self.update),
            ("insert", self.insert),
            ("scan", self.scan),
            ("read-modify-write", self.read_modify_write),
        ];
        let shares = shares.into_iter().filter(|(_, share)| *share > 0);
        f.write_str(&shares.map(|(name, share)| format!("{name}={share}")).collect::<Vec<_>>().join(","))
    }
}

impl Requests {
    /// Whether scans are among them.
    pub(crate) fn has_scans(&self) -> bool {
        self.shares().is_some_and(|shares| shares.scan > 0)
    }

    /// The workload's shares; none for a mix, whose operations are gets and sets.
    pub(crate) fn shares(&self) -> Option<Shares> {
        match self {
            Self::Mixed { .. } => None,
            Self::Workload(workload) => Some(workload.shares()),
        }
    }
}

impl Serialize for Requests {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match self {
            Self::Mixed { dist, mix } => {
                map.serialize_entry("dist", dist)?;
                map.serialize_entry("mix", mix)?;
            }
            Self::Workload(workload) => {
                let kind = if workload.is_latest() { "latest" } else { "scrambled-zipf" };
                map.serialize_entry("workload", workload)?;
                map.serialize_entry("dist", &format!("{kind}:{THETA}"))?;
                map.serialize_entry("mix", &workload.shares().to_string())?;
                if workload.has_scans() {
                    map.serialize_entry("scans_are", SCANS_ARE)?;
                }
            }
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workloads_parse_by_their_names() {
        for workload in Workload::all() {
            assert_eq!(workload.to_string().parse(), Ok(workload));
            let Shares { read, update, insert, scan, read_modify_write } = workload.shares();
            assert_eq!(read + update + insert + scan + read_modify_write, 100, "{workload}");
        }
        assert_eq!(
            "ycsb".parse::<Workload>().unwrap_err().to_string(),
            "'ycsb' is not a workload: type ycsb-a, ycsb-b, ycsb-c, ycsb-d, ycsb-e, ycsb-f, readmost, readwrite or \
             writemost"
        );
    }

    #[test]
    fn results_say_what_was_asked_for() {
        let json = |requests| serde_json::to_string(&requests).unwrap();
        let mixed = Requests::Mixed { dist: Distribution::Uniform, mix: Mix::gets(95) };
        assert_eq!(json(mixed), r#"{"dist":"uniform","mix":"get=95,set=5"}"#);
        assert_eq!(
            json(Requests::Workload(Workload::YcsbD)),
            r#"{"workload":"ycsb-d","dist":"latest:0.99","mix":"read=95,insert=5"}"#
        );
        let scans = json(Requests::Workload(Workload::YcsbE));
        assert!(scans.contains(r#""dist":"scrambled-zipf:0.99","mix":"insert=5,scan=95""#), "{scans}");
        assert!(scans.contains(SCANS_ARE), "{scans}");
    }
}
