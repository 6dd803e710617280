//! A table of connections or exchanges whose keys never name a later entry: [`Registry`].

/// Names an entry. A key outlives its entry; looking it up then finds nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Key {
    slot: u32,
    generation: u32,
}

impl Key {
    /// The entry's place in the table, for readiness tokens.
    pub(super) fn slot(self) -> usize {
        self.slot as usize
    }
}

struct Entry<T> {
    generation: u32,
    value: Option<T>,
}

/// Entries by key. Places are reused, the most recently freed first.
pub(super) struct Registry<T> {
    entries: Vec<Entry<T>>,
    free: Vec<u32>,
}

impl<T> Registry<T> {
    pub(super) fn new() -> Self {
        Self { entries: Vec::new(), free: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Adds an entry.
    pub(super) fn insert(&mut self, value: T) -> Key {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.entries.push(Entry { generation: 0, value: None });
            (self.entries.len() - 1) as u32
        });
        let entry = &mut self.entries[slot as usize];
        entry.value = Some(value);
        Key { slot, generation: entry.generation }
    }

    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let entry = self.entries.get_mut(key.slot())?;
        if entry.generation == key.generation { entry.value.as_mut() } else { None }
    }

    /// The key of the entry that is at a place now.
    pub(super) fn key_at(&self, slot: usize) -> Option<Key> {
        let entry = self.entries.get(slot)?;
        entry.value.as_ref().map(|_| Key { slot: slot as u32, generation: entry.generation })
    }

    /// Removes an entry, if it is still there.
    pub(super) fn remove(&mut self, key: Key) -> Option<T> {
        let entry = self.entries.get_mut(key.slot()).filter(|entry| entry.generation == key.generation)?;
        let value = entry.value.take()?;
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(key.slot);
        Some(value)
    }

    /// All entries.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        let entries = self.entries.iter().enumerate();
        entries.filter_map(|(slot, entry)| {
            let key = Key { slot: slot as u32, generation: entry.generation };
            entry.value.as_ref().map(|value| (key, value))
        })
    }

    /// The keys of all entries.
    pub(super) fn keys(&self) -> Vec<Key> {
        self.iter().map(|(key, _)| key).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reused_place_is_not_found_by_the_old_key() {
        let mut registry = Registry::new();
        let first = registry.insert("first");
        assert_eq!(registry.remove(first), Some("first"));
        let second = registry.insert("second");
        assert_eq!(second.slot(), first.slot());
        assert_eq!(registry.get_mut(first), None);
        assert_eq!(registry.remove(first), None);
        assert_eq!(registry.get_mut(second), Some(&mut "second"));
        assert_eq!(registry.len(), 1);
        assert_eq!((registry.key_at(second.slot()), registry.keys()), (Some(second), vec![second]));
    }
}
