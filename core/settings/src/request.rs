//! [`Request`]: what one process asks another, as one line.
//!
//! ```text
//! 1 about | 1 get | 1 get NAME | 1 set NAME=VALUE | 1 stats | 1 regions | 1 cold
//! ```
//!
//! The first word is the protocol's version.

use std::fmt;

use crate::name::Name;
use crate::value::Value;

/// The protocol's version, the first word of every request.
pub const VERSION: &str = "1";

/// What is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request {
    /// Which process it is, and how much memory it has.
    About,
    /// One setting, or all.
    Get(Option<Name>),
    /// A change of a setting. The value is of the setting's kind.
    Set(Name, Value),
    /// Its counters.
    Stats,
    /// Its regions.
    Regions,
    /// How much of its memory has not been touched for how long.
    Cold,
}

impl Request {
    /// Parses a line, without its end.
    ///
    /// # Errors
    /// One line that says what is wrong.
    pub fn parse(line: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(line).map_err(|_| "a request is text".to_owned())?;
        let (version, asked) = text.split_once(' ').unwrap_or((text, ""));
        if version != VERSION {
            let other = version.escape_debug();
            return Err(format!(
                "this process speaks version {VERSION}, not '{other}': use the yonder that it was started with"
            ));
        }
        match asked.split_once(' ') {
            None => match asked {
                "about" => Ok(Self::About),
                "get" => Ok(Self::Get(None)),
                "stats" => Ok(Self::Stats),
                "regions" => Ok(Self::Regions),
                "cold" => Ok(Self::Cold),
                _ => Err(format!("'{}' is no request", asked.escape_debug())),
            },
            Some(("get", name)) => Ok(Self::Get(Some(name.parse()?))),
            Some(("set", assignment)) => parse_assignment(assignment).map(|(name, value)| Self::Set(name, value)),
            Some(_) => Err(format!("'{}' is no request", asked.escape_debug())),
        }
    }
}

/// Parses `NAME=VALUE`.
///
/// # Errors
/// One line that says what to type.
pub fn parse_assignment(text: &str) -> Result<(Name, Value), String> {
    let (name, value) = text
        .split_once('=')
        .ok_or_else(|| format!("'{}' sets nothing: type NAME=VALUE, such as quota=64MiB", text.escape_debug()))?;
    let name: Name = name.parse()?;
    Ok((name, Value::parse(name.kind(), value)?))
}

/// The line, without its end.
impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::About => write!(f, "{VERSION} about"),
            Self::Get(None) => write!(f, "{VERSION} get"),
            Self::Get(Some(name)) => write!(f, "{VERSION} get {name}"),
            Self::Set(name, value) => write!(f, "{VERSION} set {name}={value}"),
            Self::Stats => write!(f, "{VERSION} stats"),
            Self::Regions => write!(f, "{VERSION} regions"),
            Self::Cold => write!(f, "{VERSION} cold"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::REQUEST_BYTES_MAX;
    use crate::value::TIME_NS_MAX;

    #[test]
    fn what_is_wrong_is_said_in_one_line() {
        for (line, says) in [
            (&b""[..], "speaks version 1, not ''"),
            (b"2 get", "speaks version 1, not '2'"),
            (b"GET / HTTP/1.1", "speaks version 1"),
            (b"1", "'' is no request"),
            (b"1 get ", "'' is no setting"),
            (b"1  get", "is no request"),
            (b"1 stats all", "'stats all' is no request"),
            (b"1 set quota", "'quota' sets nothing: type NAME=VALUE"),
            (b"1 set quota=", "'' is not a size"),
            (b"1 set quota=1 2", "'1 2' is not a size"),
            (b"1 set standby-age=5", "'5' is not a time"),
            (b"1 set\r=1", "is no request"),
            (b"1 \xff", "a request is text"),
        ] {
            let said = Request::parse(line).unwrap_err();
            assert!(said.contains(says) && !said.contains(['\n', '\r']), "{said}");
        }
    }

    fn any_request() -> impl Strategy<Value = Request> {
        let name = prop_oneof![
            Just(Name::StandbyAge),
            Just(Name::StandbyPages),
            Just(Name::Local),
            Just(Name::SoftLimit),
            Just(Name::Quota),
            any::<u32>().prop_map(Name::RegionQuota)
        ];
        let set = (name.clone(), prop::option::of(0u64..=1 << 52), 0..=TIME_NS_MAX, any::<u64>());
        let set = set.prop_map(|(name, limit, nanos, count)| {
            let values = [Value::Size(limit), Value::Time(limit.map(|_| nanos)), Value::Count(limit.map(|_| count))];
            Request::Set(name, *values.iter().find(|value| value.kind() == name.kind()).unwrap())
        });
        let plain = [Request::About, Request::Get(None), Request::Stats, Request::Regions, Request::Cold];
        prop_oneof![prop::sample::select(plain.to_vec()), name.prop_map(|name| Request::Get(Some(name))), set]
    }

    proptest! {
        #[test]
        fn requests_parse_as_they_print_and_fit(request in any_request()) {
            let line = request.to_string();
            prop_assert!(line.len() < REQUEST_BYTES_MAX && !line.contains('\n'));
            prop_assert_eq!(Request::parse(line.as_bytes()), Ok(request));
        }

        #[test]
        fn any_bytes_are_a_request_or_a_line_that_says_why_not(
            bytes in prop_oneof![
                prop::collection::vec(any::<u8>(), 0..40),
                "1 (get|set|stats) ?[a-z.0-9=-]{0,20}".prop_map(String::into_bytes),
            ],
        ) {
            match Request::parse(&bytes) {
                Ok(request) => prop_assert_eq!(Request::parse(request.to_string().as_bytes()), Ok(request)),
                Err(said) => prop_assert!(!said.contains('\n'), "{}", said),
            }
        }
    }
}
