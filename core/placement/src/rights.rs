//! [`Rights`] as the number that they have in requests to nodes.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};
use yonder_wire::Rights;

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a field so")]
pub(crate) fn serialize<S: Serializer>(rights: &Rights, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u32(*rights as u32)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Rights, D::Error> {
    let number = u32::deserialize(deserializer)?;
    Rights::from_number(number).ok_or_else(|| D::Error::custom("rights are 1, 2 or 3"))
}
