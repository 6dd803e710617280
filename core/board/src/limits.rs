//! [`TenantLimits`]: how much one tenant of a node may have and do, and how that is typed.
//!
//! The text is a list such as `spaces=16,reserved=4GiB,requests=200k`. It is what a certificate carries, and what a
//! node takes for those whose certificate says nothing.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use yonder_units::{Narrow, parse_bytes, parse_duration};

/// What one tenant may have and do on one node; `None` where only the node's own bounds hold.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TenantLimits {
    /// Address spaces at a time.
    pub spaces: Option<u32>,
    /// Bytes of its allocations, with memory or without.
    pub reserved_bytes: Option<u64>,
    /// Bytes of the node's memory that its pages have.
    pub memory_bytes: Option<u64>,
    /// Requests in a second.
    pub requests: Option<u32>,
    /// Bytes of messages in a second, both ways.
    pub bytes: Option<u64>,
    /// Time of the slow path and of offloads in a second.
    pub work: Option<Duration>,
    /// Connections at a time.
    pub connections: Option<u32>,
}

/// What is wrong with typed limits, and what to type.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "'{text}' is no limit of a tenant: type a list such as \
     spaces=16,reserved=4GiB,memory=2GiB,requests=200k,bytes=1GiB,work=100ms,connections=8"
)]
pub struct LimitsError {
    text: String,
}

/// A second has not more work in it, unless both paths are the tenant's alone.
const WORK_MAX: Duration = Duration::from_secs(2);

impl FromStr for TenantLimits {
    type Err = LimitsError;

    fn from_str(text: &str) -> Result<Self, LimitsError> {
        let mut limits = Self::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let set = part.split_once('=').and_then(|(name, value)| limits.set(name.trim(), value.trim()));
            set.ok_or_else(|| LimitsError { text: part.escape_default().to_string() })?;
        }
        Ok(limits)
    }
}

impl TenantLimits {
    fn set(&mut self, name: &str, value: &str) -> Option<()> {
        let bytes = || parse_bytes(value).ok().filter(|bytes| *bytes > 0);
        match name {
            "spaces" => self.spaces = Some(count(value)?),
            "reserved" => self.reserved_bytes = Some(bytes()?),
            "memory" => self.memory_bytes = Some(bytes()?),
            "requests" => self.requests = Some(count(value)?),
            "bytes" => self.bytes = Some(bytes()?),
            "work" => self.work = Some(parse_duration(value).ok().filter(|work| !work.is_zero() && *work <= WORK_MAX)?),
            "connections" => self.connections = Some(count(value)?),
            _ => return None,
        }
        Some(())
    }

    /// These limits, and `others` where these say nothing.
    #[must_use]
    pub fn or(self, others: Self) -> Self {
        Self {
            spaces: self.spaces.or(others.spaces),
            reserved_bytes: self.reserved_bytes.or(others.reserved_bytes),
            memory_bytes: self.memory_bytes.or(others.memory_bytes),
            requests: self.requests.or(others.requests),
            bytes: self.bytes.or(others.bytes),
            work: self.work.or(others.work),
            connections: self.connections.or(others.connections),
        }
    }
}

/// A number above 0, with `k` for thousands and `M` for millions.
fn count(text: &str) -> Option<u32> {
    let (number, scale) = match text.as_bytes().last()? {
        b'k' => (&text[..text.len() - 1], 1_000),
        b'M' => (&text[..text.len() - 1], 1_000_000),
        _ => (text, 1),
    };
    number.parse::<u32>().ok()?.checked_mul(scale).filter(|count| *count > 0)
}

impl fmt::Display for TenantLimits {
    /// As it is typed; nothing if there is no limit.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |value: Option<u64>| value.map(|value| value.to_string());
        let parts = [
            ("spaces", number(self.spaces.map(u64::from))),
            ("reserved", number(self.reserved_bytes)),
            ("memory", number(self.memory_bytes)),
            ("requests", number(self.requests.map(u64::from))),
            ("bytes", number(self.bytes)),
            ("work", self.work.map(|work| format!("{}us", work.as_micros().max(1).narrow_u64()))),
            ("connections", number(self.connections.map(u64::from))),
        ];
        let mut before = "";
        for (name, value) in parts.iter().filter_map(|(name, value)| Some((name, value.as_ref()?))) {
            write!(formatter, "{before}{name}={value}")?;
            before = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_come_back_as_they_were_typed() {
        let typed = "spaces=16, reserved=4GiB,memory=2GiB,requests=200k,bytes=1MiB,work=100ms,connections=8";
        let limits: TenantLimits = typed.parse().unwrap();
        assert_eq!(limits.requests, Some(200_000));
        assert_eq!(limits.reserved_bytes, Some(4 << 30));
        assert_eq!(limits.work, Some(Duration::from_millis(100)));
        assert_eq!(limits.to_string().parse(), Ok(limits));
        assert_eq!("".parse(), Ok(TenantLimits::default()));
        assert_eq!(TenantLimits::default().to_string(), "");
        let few: TenantLimits = "spaces=1".parse().unwrap();
        assert_eq!(few.or(limits), TenantLimits { spaces: Some(1), ..limits });
    }

    #[test]
    fn what_is_no_limit_is_told() {
        for bad in ["spaces", "spaces=0", "requests=5G", "work=3s", "work=0ms", "tea=1", "bytes=-1", "requests=9999M"] {
            let said = bad.parse::<TenantLimits>().unwrap_err().to_string();
            assert!(said.contains(bad) && said.contains("type a list") && !said.contains('\n'), "{said}");
        }
        assert!(!"tea\n=\x1b1".parse::<TenantLimits>().unwrap_err().to_string().contains(char::is_control));
    }
}
