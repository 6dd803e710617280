//! [`MemoryStore`]: records that end with the process, for tests and trials.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::{Store, StoreError, Write};

/// Records in memory. Clones share them, so that a test can start a controller again.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    records: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
}

impl Store for MemoryStore {
    fn scan(&mut self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        let records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        let found = records.range(prefix.to_owned()..).take_while(|(key, _)| key.starts_with(prefix));
        Ok(found.map(|(key, value)| (key.clone(), value.clone())).collect())
    }

    fn commit(&mut self, writes: &[Write]) -> Result<(), StoreError> {
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        for write in writes {
            match write {
                Write::Put { key, value } => drop(records.insert(key.clone(), value.clone())),
                Write::Delete { key } => drop(records.remove(key)),
                Write::DeletePrefix { prefix } => {
                    let found = records.range(prefix.clone()..).map(|(key, _)| key);
                    let found: Vec<String> = found.take_while(|key| key.starts_with(prefix)).cloned().collect();
                    for key in &found {
                        records.remove(key);
                    }
                }
            }
        }
        Ok(())
    }

    fn announce(&mut self, _name: &str, _value: &[u8], _lease: Duration) -> Result<(), StoreError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_what_it_is_told() {
        super::super::tests::keeps_what_it_is_told(&mut MemoryStore::default());
    }
}
