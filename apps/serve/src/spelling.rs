//! How a [`Protocol`](crate::Protocol) spells types that serde knows: as `postcard` does.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Appends a value.
///
/// # Panics
/// If its `Serialize` fails.
pub fn put<T: Serialize>(value: &T, to: &mut Vec<u8>) {
    *to = postcard::to_extend(value, std::mem::take(to)).expect("a vector takes what is written");
}

/// The value that `bytes` begin with.
///
/// # Errors
/// If they are none of this type; the text says how.
pub fn get<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    postcard::from_bytes(bytes).map_err(|error| error.to_string())
}
