//! [`EmbeddedStore`]: records in one file, which one controller has open at a time. redb keeps it whole through
//! crashes.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use redb::{Database, DatabaseError, ReadableDatabase, TableDefinition, TableError};

use super::{Store, StoreError, Write};

const RECORDS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("records");
/// The file has keys of address spaces: its owner's alone.
const FILE_MODE: u32 = 0o600;

/// Records in a file.
#[derive(Debug)]
pub struct EmbeddedStore {
    place: String,
    database: Database,
}

impl EmbeddedStore {
    /// Opens the file, or makes it.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let place = path.display().to_string();
        let failed = |cause: String| StoreError::Failed { place: place.clone(), cause };
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(FILE_MODE).open(path);
        let file = file.map_err(|error| failed(format!("{error}: name a file that this user may write")))?;
        let database = Database::builder().create_file(file).map_err(|error| match error {
            DatabaseError::DatabaseAlreadyOpen => {
                StoreError::Taken { place: place.clone(), holder: "of another process".to_owned() }
            }
            other => failed(other.to_string()),
        })?;
        Ok(Self { place, database })
    }

    fn failed(&self, error: impl Into<redb::Error>) -> StoreError {
        StoreError::Failed { place: self.place.clone(), cause: error.into().to_string() }
    }

    fn try_commit(&self, writes: &[Write]) -> Result<(), redb::Error> {
        let transaction = self.database.begin_write()?;
        {
            let mut table = transaction.open_table(RECORDS)?;
            for write in writes {
                match write {
                    Write::Put { key, value } => drop(table.insert(key.as_str(), value.as_slice())?),
                    Write::Delete { key } => drop(table.remove(key.as_str())?),
                    Write::DeletePrefix { prefix } => {
                        // Keys are ASCII, so all that begin so are before this.
                        let end = format!("{prefix}{}", char::MAX);
                        table.retain_in(prefix.as_str()..end.as_str(), |_, _| false)?;
                    }
                }
            }
        }
        Ok(transaction.commit()?)
    }

    fn try_scan(&self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, redb::Error> {
        let transaction = self.database.begin_read()?;
        let table = match transaction.open_table(RECORDS) {
            Ok(table) => table,
            Err(TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        };
        let mut found = Vec::new();
        for record in table.range(prefix..)? {
            let (key, value) = record?;
            if !key.value().starts_with(prefix) {
                break;
            }
            found.push((key.value().to_owned(), value.value().to_vec()));
        }
        Ok(found)
    }
}

impl Store for EmbeddedStore {
    fn scan(&mut self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        self.try_scan(prefix).map_err(|error| self.failed(error))
    }

    fn commit(&mut self, writes: &[Write]) -> Result<(), StoreError> {
        self.try_commit(writes).map_err(|error| self.failed(error))
    }

    fn announce(&mut self, _name: &str, _value: &[u8], _lease: Duration) -> Result<(), StoreError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn keeps_what_it_is_told_and_has_it_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let mut store = EmbeddedStore::open(&path).unwrap();
        super::super::tests::keeps_what_it_is_told(&mut store);
        drop(store);
        assert_eq!(EmbeddedStore::open(&path).unwrap().scan("").unwrap().len(), 1);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, FILE_MODE);
    }

    #[test]
    fn one_controller_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let _store = EmbeddedStore::open(&path).unwrap();
        assert!(matches!(EmbeddedStore::open(&path), Err(StoreError::Taken { .. })));
    }

    #[test]
    fn other_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        std::fs::write(&path, [7; 8192]).unwrap();
        assert!(matches!(EmbeddedStore::open(&path), Err(StoreError::Failed { .. })));
        let said = EmbeddedStore::open(folder.path()).unwrap_err().to_string();
        assert!(said.contains("name a file"), "{said}");
    }
}
