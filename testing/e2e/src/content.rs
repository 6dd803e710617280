//! A data set whose every value says which key, version and writer it belongs to, so that no other bytes pass for it.

/// Keys and values of one writer.
#[derive(Clone, Copy, Debug)]
pub struct Content {
    /// Part of every key and value: contents with different names share nothing.
    pub name: &'static str,
    /// Keys are `0..keys`.
    pub keys: u64,
    /// Size of every value, in bytes.
    pub value_bytes: usize,
}

impl Content {
    /// The text of a key.
    #[must_use]
    pub fn key(&self, index: u64) -> String {
        format!("{}-{index}", self.name)
    }

    /// The value of a key in one of its versions.
    #[must_use]
    pub fn value(&self, index: u64, version: u64) -> Vec<u8> {
        let parts = self.name.bytes().map(u64::from).chain([index, version]);
        let mut state = parts.fold(0, |state, part| mix(state ^ part));
        let mut value = format!("{} version {version}\n", self.key(index)).into_bytes();
        while value.len() < self.value_bytes {
            state = mix(state);
            value.extend(state.to_le_bytes());
        }
        value.truncate(self.value_bytes);
        value
    }
}

/// The finalizer of splitmix64: every bit of the input changes half of the output.
fn mix(state: u64) -> u64 {
    let mut mixed = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_two_values_are_alike() {
        let contents = ["a", "b"].map(|name| Content { name, keys: 50, value_bytes: 100 });
        let mut values = HashSet::new();
        for content in contents {
            for (index, version) in (0..50).flat_map(|index| (0..3).map(move |version| (index, version))) {
                let value = content.value(index, version);
                assert_eq!(value.len(), 100);
                assert_eq!(value, content.value(index, version));
                assert!(values.insert(value[40..].to_vec()), "{index} {version}");
            }
        }
    }
}
