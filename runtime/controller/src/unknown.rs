//! [`Line`]: what becomes of a line of a later release, which says something that this one does not know.
//!
//! Fields that are not known are passed over, as everywhere. A line is unknown if it, or the request, answer, refusal,
//! command or outcome in it, has a name that is not one of ours: then its receiver is told that much. All other lines
//! that cannot be read are errors of their senders.
//!
//! A controller refuses an unknown request of a peer that may ask, and passes over any other unknown line of a node
//! that is registered; the connection stays. It turns away all others that say what is unknown, as it does those that
//! say what is known where they may not: a node that asks, a client that reports. A node passes over what it does not
//! know, and a client fails what it asked.
//!
//! Invariant: nothing of what is unknown is kept but its name, and nothing is read of it before the line has failed to
//! be read in the ordinary way.

use std::fmt;

use serde::de::value::StrDeserializer;
use serde::de::{DeserializeOwned, Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use yonder_placement::{Answer, Command, Outcome, Refusal, Request};

use crate::messages::{FromController, ToController};

/// Longest name that is said again: those of ours are much shorter.
const NAME_BYTES_MAX: usize = 64;

/// An object that comes on a line.
pub(crate) trait Line: DeserializeOwned {
    /// What a line is to its receiver that cannot be read, if it is one of a later release.
    fn of_later_release(_line: &[u8]) -> Option<Self> {
        None
    }
}

impl Line for ToController {
    fn of_later_release(line: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        struct Ask {
            id: u64,
            request: Name,
        }
        match outer(line)? {
            Name(name) if !is_variant::<Self>(&name) => Some(Self::Unknown { ask: None }),
            Name(name) if name == "outcome" => {
                is_unknown::<Outcome>(&inner(line)?).then_some(Self::Unknown { ask: None })
            }
            Name(name) if name == "ask" => {
                let Ask { id, request } = inner(line)?;
                is_unknown::<Request>(&request).then_some(Self::Unknown { ask: Some(id) })
            }
            Name(_) => None,
        }
    }
}

impl Line for FromController {
    fn of_later_release(line: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        struct Answered<T> {
            id: u64,
            answer: T,
        }
        match outer(line)? {
            Name(name) if !is_variant::<Self>(&name) => Some(Self::Unknown { answer_to: None, name }),
            Name(name) if name == "do" => {
                let command: Name = inner(line)?;
                is_unknown::<Command>(&command).then_some(Self::Unknown { answer_to: None, name: command.0 })
            }
            Name(name) if name == "answer" => {
                let Answered::<Name> { id, answer: Name(name) } = inner(line)?;
                if name != "refused" {
                    return (!is_variant::<Answer>(&name)).then_some(Self::Unknown { answer_to: Some(id), name });
                }
                let Answered::<Only<Name>> { answer: Only(refusal), .. } = inner(line)?;
                let unknown = is_unknown::<Refusal>(&refusal).then_some(Refusal::Unknown { name: refusal.0 });
                unknown.map(|refusal| Self::Answer { id, answer: Answer::Refused(refusal) })
            }
            Name(_) => None,
        }
    }
}

/// The names of the variants of an enum.
pub(crate) fn variants<T: DeserializeOwned>() -> &'static [&'static str] {
    match T::deserialize(StrDeserializer::<Variants>::new("")) {
        Err(Variants(names)) => names,
        Ok(_) => &[],
    }
}

fn is_variant<T: DeserializeOwned>(name: &str) -> bool {
    variants::<T>().contains(&name)
}

fn is_unknown<T: DeserializeOwned>(name: &Name) -> bool {
    !is_variant::<T>(&name.0)
}

/// The name of what is on a line.
fn outer(line: &[u8]) -> Option<Name> {
    serde_json::from_slice(line).ok()
}

/// What is on a line, without its name.
fn inner<T: DeserializeOwned>(line: &[u8]) -> Option<T> {
    serde_json::from_slice(line).ok().map(|Only(value)| value)
}

/// The name of a variant, whatever it has: `"name"` or `{"name":...}`.
struct Name(String);

/// What a variant has, whatever its name.
struct Only<T>(T);

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Names;

        impl<'de> Visitor<'de> for Names {
            type Value = Name;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, "a name of {NAME_BYTES_MAX} bytes at most")
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<Name, E> {
                let is_name = name.bytes().all(|byte| byte == b'-' || byte.is_ascii_alphanumeric());
                let is_fit = is_name && !name.is_empty() && name.len() <= NAME_BYTES_MAX;
                is_fit.then(|| Name(name.to_owned())).ok_or_else(|| E::invalid_length(name.len(), &self))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Name, A::Error> {
                let (name, IgnoredAny) =
                    map.next_entry::<Name, _>()?.ok_or_else(|| A::Error::invalid_length(0, &self))?;
                Ok(name)
            }
        }

        from.deserialize_any(Names)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Only<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Values<T>(std::marker::PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Values<T> {
            type Value = Only<T>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object with one name")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Only<T>, A::Error> {
                let (IgnoredAny, value) = map.next_entry()?.ok_or_else(|| A::Error::invalid_length(0, &self))?;
                Ok(Only(value))
            }
        }

        from.deserialize_map(Values(std::marker::PhantomData))
    }
}

/// The names that were expected where there was none of them.
#[derive(Debug)]
struct Variants(&'static [&'static str]);

impl Error for Variants {
    fn custom<T: fmt::Display>(_message: T) -> Self {
        Self(&[])
    }

    fn unknown_variant(_name: &str, expected: &'static [&'static str]) -> Self {
        Self(expected)
    }
}

impl std::error::Error for Variants {}

impl fmt::Display for Variants {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "one of {:?}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(line: &str) -> Option<ToController> {
        assert!(serde_json::from_str::<ToController>(line).is_err(), "{line}");
        ToController::of_later_release(line.as_bytes())
    }

    fn from(line: &str) -> Option<FromController> {
        assert!(serde_json::from_str::<FromController>(line).is_err(), "{line}");
        FromController::of_later_release(line.as_bytes())
    }

    #[test]
    fn what_a_later_release_tells_a_controller_is_unknown() {
        for line in
            [r#"{"sing":{"loud":true}}"#, r#""sing""#, r#"{"outcome":{"sung":{"pid":1}}}"#, r#"{"outcome":"sung"}"#]
        {
            assert_eq!(to(line), Some(ToController::Unknown { ask: None }), "{line}");
        }
        for line in [r#"{"ask":{"id":7,"request":{"sing":[1]}}}"#, r#"{"ask":{"x":[],"request":"sing","id":7}}"#] {
            assert_eq!(to(line), Some(ToController::Unknown { ask: Some(7) }), "{line}");
        }
    }

    #[test]
    fn what_a_later_controller_says_is_unknown() {
        let unknown = |answer_to, name: &str| Some(FromController::Unknown { answer_to, name: name.to_owned() });
        assert_eq!(from(r#"{"sing":{}}"#), unknown(None, "sing"));
        assert_eq!(from(r#"{"do":{"sing":{"pid":1}}}"#), unknown(None, "sing"));
        assert_eq!(from(r#"{"answer":{"id":7,"answer":"sung"}}"#), unknown(Some(7), "sung"));
        assert_eq!(from(r#"{"answer":{"answer":{"sung":{}},"id":7}}"#), unknown(Some(7), "sung"));
        let refused = Answer::Refused(Refusal::Unknown { name: "no-voice".to_owned() });
        let refused = Some(FromController::Answer { id: 7, answer: refused });
        assert_eq!(from(r#"{"answer":{"id":7,"answer":{"refused":{"no-voice":{"pid":1}}}}}"#), refused);
        assert_eq!(from(r#"{"answer":{"id":7,"answer":{"refused":"no-voice"}}}"#), refused);
    }

    #[test]
    fn what_is_wrong_is_not_unknown() {
        let long = format!(r#"{{"{}":{{}}}}"#, "s".repeat(NAME_BYTES_MAX + 1));
        for line in [
            r#"{"ask":{"id":7,"request":{"locate":{"pid":1}}}}"#,
            r#"{"ask":{"id":-7,"request":"sing"}}"#,
            r#"{"ask":{"id":7,"request":{"sing":1,"dance":1}}}"#,
            r#"{"ask":{"id":7}}"#,
            r#"{"outcome":{"moved":{}}}"#,
            r#"{"report":{"sing":1}}"#,
            r#"{"sing":{},"dance":{}}"#,
            r#"{"sing":{}} GET /"#,
            r#"{"s\"ing":{}}"#,
            r#"{"":{}}"#,
            &long,
            "GET / HTTP/1.1",
            "{}",
            "[]",
            "7",
        ] {
            assert_eq!(to(line), None, "{line}");
        }
        for line in [
            r#"{"do":{"move-region":{}}}"#,
            r#"{"answer":{"id":7,"answer":{"placed":{}}}}"#,
            r#"{"answer":{"id":7,"answer":{"refused":{"busy":{}}}}}"#,
            r#"{"answer":{"id":7,"answer":{"refused":{}}}}"#,
        ] {
            assert_eq!(from(line), None, "{line}");
        }
    }

    #[test]
    fn an_enum_has_the_names_of_its_variants() {
        assert_eq!(variants::<ToController>(), ["register", "report", "outcome", "ask"]);
        assert!(variants::<Request>().contains(&"place-group") && variants::<Command>().contains(&"open-region"));
        assert_eq!(variants::<u32>(), [""; 0]);
    }
}
