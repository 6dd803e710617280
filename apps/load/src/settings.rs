//! What a load run is told: rates, mixes and sizes, from the text that a user types, with errors that say what to type.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::Serialize;

use crate::keys::{Distribution, KEYS_MAX};
use crate::ledger::OVERLAP_MAX;
use crate::protocol::Protocol;
use crate::value::HEADER_BYTES;
use crate::workload::{Requests, Workload};

/// Smallest value: its header alone, which names the key and the version.
pub const VALUE_BYTES_MIN: usize = HEADER_BYTES;
/// Largest value, a little under the megabyte that memcached's servers take.
pub const VALUE_BYTES_MAX: usize = 1_000_000;
/// Most connections of one run.
pub(crate) const CONNECTIONS_MAX: usize = 4096;
/// Most requests that one connection may have outstanding.
pub(crate) const DEPTH_MAX: usize = 4096;
/// Most requests that may wait for a connection.
pub(crate) const BACKLOG_MAX: usize = 1 << 20;
/// Highest rate of an open loop, in requests per second.
const RATE_MAX: f64 = 1e8;

/// What is wrong with a setting, and what to type instead.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SettingError {
    /// Not a [`Rate`].
    #[error("'{0}' is not a rate: type max, or requests per second such as 50000, 50K or 1.5M")]
    Rate(String),
    /// Not a [`Distribution`].
    #[error("'{0}' is not a distribution of keys: type uniform or zipf:THETA, such as zipf:0.99")]
    Distribution(String),
    /// Not a [`Mix`].
    #[error("'{text}' is not a mix of requests ({why}): type shares in percent, such as get=95,set=5")]
    Mix {
        /// As typed.
        text: String,
        /// What is wrong with it.
        why: String,
    },
    /// Not a [`Workload`].
    #[error(
        "'{0}' is not a workload: type ycsb-a, ycsb-b, ycsb-c, ycsb-d, ycsb-e, ycsb-f, readmost, readwrite or writemost"
    )]
    Workload(String),
    /// Scans of a server whose protocol has none here.
    #[error("scans are asked for in memcached's protocol alone: type another workload than ycsb-e")]
    Scans,
    /// A number is out of its range.
    #[error("{flag} {value} is out of range: type a number from {least} to {most}")]
    OutOfRange {
        /// The flag that sets it.
        flag: &'static str,
        /// As typed.
        value: u64,
        /// Smallest number that works.
        least: u64,
        /// Largest number that works.
        most: u64,
    },
}

/// Serializes as text what is shown as text.
macro_rules! serialize_as_text {
    ($($shown:ty),*) => {$(
        impl Serialize for $shown {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    )*};
}

serialize_as_text!(Rate, Mix, Distribution, Workload);

/// How fast requests are started.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Rate {
    /// Closed loop: every connection always has its depth of requests outstanding.
    Max,
    /// Open loop: requests per second, with Poisson arrivals.
    PerSecond(f64),
}

impl Rate {
    /// Requests per second of an open loop; none of a closed one.
    #[must_use]
    pub fn per_second(self) -> Option<f64> {
        match self {
            Self::Max => None,
            Self::PerSecond(rate) => Some(rate),
        }
    }
}

impl FromStr for Rate {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        let bad = || SettingError::Rate(text.to_owned());
        let trimmed = text.trim();
        if trimmed == "max" {
            return Ok(Self::Max);
        }
        let (number, scale) = match trimmed.strip_suffix(['k', 'K']) {
            Some(number) => (number, 1e3),
            None => trimmed.strip_suffix('M').map_or((trimmed, 1.0), |number| (number, 1e6)),
        };
        let per_second = number.trim().parse::<f64>().map_err(|_| bad())? * scale;
        if (1.0..=RATE_MAX).contains(&per_second) { Ok(Self::PerSecond(per_second)) } else { Err(bad()) }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Max => f.write_str("max"),
            Self::PerSecond(rate) => write!(f, "{rate}"),
        }
    }
}

/// The shares of the kinds of requests, in percent. They always add up to 100.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mix {
    get_percent: u8,
}

impl Mix {
    /// A mix of `get_percent` gets, the rest sets.
    ///
    /// # Panics
    /// If the share is more than 100.
    #[must_use]
    pub fn gets(get_percent: u8) -> Self {
        assert!(get_percent <= 100, "a share is at most 100 percent, not {get_percent}");
        Self { get_percent }
    }

    /// Share of gets, in percent.
    #[must_use]
    pub fn get_percent(self) -> u8 {
        self.get_percent
    }

    /// Share of sets, in percent.
    #[must_use]
    pub fn set_percent(self) -> u8 {
        100 - self.get_percent
    }
}

impl FromStr for Mix {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        let bad = |why: String| SettingError::Mix { text: text.to_owned(), why };
        let (mut get, mut set) = (None, None);
        for part in text.split(',') {
            let (name, share) = part.split_once('=').ok_or_else(|| bad(format!("'{}' has no '='", part.trim())))?;
            let share: u32 = share.trim().parse().map_err(|_| bad(format!("'{}' is not a share", share.trim())))?;
            let slot = match name.trim() {
                "get" => &mut get,
                "set" => &mut set,
                other => return Err(bad(format!("there is no request '{other}'"))),
            };
            if slot.replace(share).is_some() {
                return Err(bad(format!("{} is there twice", name.trim())));
            }
        }
        let (get, set) = (get.unwrap_or(0), set.unwrap_or(0));
        match get.saturating_add(set) {
            100 => Ok(Self { get_percent: get as u8 }),
            sum => Err(bad(format!("the shares add up to {sum}, not 100"))),
        }
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "get={},set={}", self.get_percent(), self.set_percent())
    }
}

/// What a loading thread does until its next request is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Waiting {
    /// Sleep: leaves the CPU to the server, and starts requests some ten microseconds late.
    Sleep,
    /// Poll: for machines with a CPU to spare for each loading thread.
    Spin,
}

/// Everything that stays the same over the runs of one load.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct LoadSettings {
    /// Where the server listens: host and port.
    pub target: String,
    /// The language it speaks.
    pub protocol: Protocol,
    /// How many keys there are; at the start, if a workload inserts more.
    pub keys: u64,
    /// Bytes of each value, from [`VALUE_BYTES_MIN`] to [`VALUE_BYTES_MAX`].
    pub value_size: usize,
    /// What is asked for, of which keys.
    #[serde(flatten)]
    pub requests: Requests,
    /// Connections over all threads.
    pub connections: usize,
    /// Loading threads, at most one for each connection.
    pub threads: usize,
    /// Requests that a connection may have outstanding.
    pub depth: usize,
    /// Requests over all threads that may wait for a connection when every one has its depth outstanding; more than
    /// these are dropped and counted.
    pub backlog: usize,
    /// What a thread does between requests.
    pub waiting: Waiting,
    /// How long the server may be silent: after the end of a run, where an answer that is still missing then is an
    /// error, and during a fill, which fails then.
    #[serde(skip)]
    pub patience: Duration,
    /// Seed of arrivals, keys and mix.
    pub seed: u64,
}

impl LoadSettings {
    /// Settings for a server at `target`, with the defaults of `yonder load kv`.
    #[must_use]
    pub fn new(target: impl Into<String>) -> Self {
        Self {
            target: target.into(),
            protocol: Protocol::Memcached,
            keys: 100_000,
            value_size: 1024,
            requests: Requests::Mixed { dist: Distribution::Uniform, mix: Mix::gets(95) },
            connections: 16,
            threads: 1,
            depth: 16,
            backlog: 1024,
            waiting: Waiting::Sleep,
            patience: Duration::from_secs(10),
            seed: 1,
        }
    }

    /// Checks every range, and names the flag and the range where a number does not fit.
    pub fn validate(&self) -> Result<(), SettingError> {
        let within = |flag, value: u64, least: u64, most: u64| {
            let fits = (least..=most).contains(&value);
            if fits { Ok(()) } else { Err(SettingError::OutOfRange { flag, value, least, most }) }
        };
        if self.protocol == Protocol::Redis && self.requests.has_scans() {
            return Err(SettingError::Scans);
        }
        within("--keys", self.keys, 1, KEYS_MAX)?;
        within("--value-size", self.value_size as u64, VALUE_BYTES_MIN as u64, VALUE_BYTES_MAX as u64)?;
        within("--connections", self.connections as u64, 1, CONNECTIONS_MAX as u64)?;
        within("--threads", self.threads as u64, 1, self.connections as u64)?;
        within("--depth", self.depth as u64, 1, DEPTH_MAX as u64)?;
        within("--connections times --depth", (self.connections * self.depth) as u64, 1, OVERLAP_MAX as u64)?;
        within("--backlog", self.backlog as u64, 0, BACKLOG_MAX as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Workload;

    #[test]
    fn rates_parse() {
        assert_eq!("max".parse(), Ok(Rate::Max));
        assert_eq!("50000".parse(), Ok(Rate::PerSecond(50_000.0)));
        assert_eq!("50k".parse(), Ok(Rate::PerSecond(50_000.0)));
        assert_eq!(" 1.5M".parse(), Ok(Rate::PerSecond(1_500_000.0)));
        for bad in ["", "fast", "0", "-5", "1G", "k", "NaN", "inf", "1e12", "0.5"] {
            assert!(bad.parse::<Rate>().is_err(), "{bad}");
        }
        assert_eq!(
            "fast".parse::<Rate>().unwrap_err().to_string(),
            "'fast' is not a rate: type max, or requests per second such as 50000, 50K or 1.5M"
        );
        assert_eq!(Rate::PerSecond(50_000.0).to_string().parse(), Ok(Rate::PerSecond(50_000.0)));
    }

    #[test]
    fn mixes_parse() {
        assert_eq!("get=95,set=5".parse(), Ok(Mix::gets(95)));
        assert_eq!("set=10, get=90".parse(), Ok(Mix::gets(90)));
        assert_eq!("get=100".parse(), Ok(Mix::gets(100)));
        assert_eq!("set=100".parse(), Ok(Mix::gets(0)));
        assert_eq!(Mix::gets(95).to_string(), "get=95,set=5");
        let message = |text: &str| text.parse::<Mix>().unwrap_err().to_string();
        assert_eq!(
            message("get=95,set=6"),
            "'get=95,set=6' is not a mix of requests (the shares add up to 101, not 100): \
             type shares in percent, such as get=95,set=5"
        );
        assert!(message("get").contains("'get' has no '='"));
        assert!(message("get=9x,set=1").contains("'9x' is not a share"));
        assert!(message("scan=100").contains("no request 'scan'"));
        assert!(message("get=50,get=50").contains("get is there twice"));
        assert!(message("get=4294967295,set=101").contains("not 100"));
        assert!("".parse::<Mix>().is_err());
    }

    #[test]
    fn ranges_are_checked() {
        let good = LoadSettings::new("127.0.0.1:1");
        assert_eq!(good.validate(), Ok(()));
        let small = LoadSettings { value_size: 15, ..good.clone() };
        assert_eq!(
            small.validate().unwrap_err().to_string(),
            "--value-size 15 is out of range: type a number from 16 to 1000000"
        );
        for bad in [
            LoadSettings { keys: 0, ..good.clone() },
            LoadSettings { keys: KEYS_MAX + 1, ..good.clone() },
            LoadSettings { connections: 0, ..good.clone() },
            LoadSettings { threads: 17, ..good.clone() },
            LoadSettings { depth: 0, ..good.clone() },
            LoadSettings { protocol: Protocol::Redis, requests: Requests::Workload(Workload::YcsbE), ..good.clone() },
            LoadSettings { depth: 4096, ..good },
        ] {
            assert!(bad.validate().is_err(), "{bad:?}");
        }
    }
}
