//! [`EtcdStore`] of a build without the feature `etcd`: opening one says what to type. No value of the type exists.

use std::time::Duration;

use super::{EtcdAccess, Leadership, Store, StoreError, Write};

/// Records in etcd, which this build has no client of.
#[derive(Debug)]
pub enum EtcdStore {}

impl EtcdStore {
    /// Fails with [`StoreError::NotBuilt`].
    pub fn open(at: &EtcdAccess, _prefix: &str, _name: &str, _leadership: Leadership) -> Result<Self, StoreError> {
        Err(StoreError::NotBuilt { place: format!("etcd {}", at.endpoints.join(",")) })
    }
}

impl Store for EtcdStore {
    fn scan(&mut self, _prefix: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        match *self {}
    }

    fn commit(&mut self, _writes: &[Write]) -> Result<(), StoreError> {
        match *self {}
    }

    fn announce(&mut self, _name: &str, _value: &[u8], _lease: Duration) -> Result<(), StoreError> {
        match *self {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_without_etcd_says_what_to_type() {
        let at = EtcdAccess { endpoints: vec!["http://127.0.0.1:2379".to_owned()], tls: None };
        let refused = EtcdStore::open(&at, "yonder/", "first", Leadership::Refuse).unwrap_err().to_string();
        assert!(refused.contains("http://127.0.0.1:2379") && refused.contains("--features etcd"), "{refused}");
    }
}
