//! [`Datagrams`]: how GETs, SCANs and what they have found are spelt. Numbers are little-endian.
//!
//! ```text
//!   GET    0: u8 | key
//!   SCAN   1: u8 | rows: u32 | key
//!   found  for each row, key bytes: u32 | value bytes: u32 | key | value
//! ```

use yonder_serve::Protocol;

use crate::rows::KEY_BYTES;
use crate::{Found, Request};

/// Most rows of a SCAN.
pub const SCAN_ROWS_MAX: u32 = 10_000;

const GET: u8 = 0;
const SCAN: u8 = 1;

/// RocksDB over datagrams.
pub struct Datagrams;

impl Protocol for Datagrams {
    type Request = Request;
    type Answer = Found;

    fn put_request(request: &Request, to: &mut Vec<u8>) {
        let key = match request {
            Request::Get(key) => {
                to.push(GET);
                key
            }
            Request::Scan(key, rows) => {
                to.push(SCAN);
                to.extend_from_slice(&rows.to_le_bytes());
                key
            }
        };
        to.extend_from_slice(key);
    }

    fn request(bytes: &[u8]) -> Result<Request, String> {
        let (operation, rest) = bytes.split_first().ok_or("an empty request")?;
        let request = match *operation {
            GET => Request::Get(key(rest)?),
            SCAN => {
                let (rows, rest) = rest.split_first_chunk().ok_or("a SCAN without a number of rows")?;
                let rows = u32::from_le_bytes(*rows);
                if !(1..=SCAN_ROWS_MAX).contains(&rows) {
                    return Err(format!("a SCAN of {rows} rows: ask for 1 to {SCAN_ROWS_MAX}"));
                }
                Request::Scan(key(rest)?, rows)
            }
            other => return Err(format!("no operation {other}: 0 is GET, 1 is SCAN")),
        };
        Ok(request)
    }

    fn put_answer(found: &Found, to: &mut Vec<u8>) {
        to.reserve(found.iter().map(|(key, value)| 8 + key.len() + value.len()).sum());
        for (key, value) in found {
            to.extend_from_slice(&(key.len() as u32).to_le_bytes());
            to.extend_from_slice(&(value.len() as u32).to_le_bytes());
            to.extend_from_slice(key);
            to.extend_from_slice(value);
        }
    }

    fn answer(mut bytes: &[u8]) -> Option<Found> {
        let mut found = Found::new();
        while !bytes.is_empty() {
            let (key_bytes, rest) = bytes.split_first_chunk()?;
            let (value_bytes, rest) = rest.split_first_chunk()?;
            let (key, rest) = rest.split_at_checked(u32::from_le_bytes(*key_bytes) as usize)?;
            let (value, rest) = rest.split_at_checked(u32::from_le_bytes(*value_bytes) as usize)?;
            found.push((key.to_vec(), value.to_vec()));
            bytes = rest;
        }
        Some(found)
    }
}

/// Tables have keys of one length, and RocksDB must not be asked for another.
fn key(bytes: &[u8]) -> Result<Box<[u8]>, String> {
    if bytes.len() == KEY_BYTES {
        Ok(bytes.into())
    } else {
        Err(format!("a key of {} bytes: all have {KEY_BYTES}", bytes.len()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn spelt(request: &Request) -> Vec<u8> {
        let mut bytes = Vec::new();
        Datagrams::put_request(request, &mut bytes);
        bytes
    }

    #[test]
    fn requests_come_back() {
        let key: Box<[u8]> = Box::new([7; KEY_BYTES]);
        for request in [Request::Get(key.clone()), Request::Scan(key.clone(), 1), Request::Scan(key, SCAN_ROWS_MAX)] {
            assert_eq!(Datagrams::request(&spelt(&request)), Ok(request));
        }
    }

    #[test]
    fn what_rocksdb_must_not_be_asked_is_refused() {
        let get = spelt(&Request::Get(Box::new([7; KEY_BYTES])));
        let scan = |rows| spelt(&Request::Scan(Box::new([7; KEY_BYTES]), rows));
        for (bytes, reason) in [
            (&get[..KEY_BYTES], "a key of 49 bytes: all have 50"),
            (&[&get[..], b"0"].concat(), "a key of 51 bytes: all have 50"),
            (&scan(0), "a SCAN of 0 rows: ask for 1 to 10000"),
            (&scan(10_001), "a SCAN of 10001 rows: ask for 1 to 10000"),
            (&[SCAN, 1, 0, 0], "a SCAN without a number of rows"),
            (&[2], "no operation 2: 0 is GET, 1 is SCAN"),
        ] {
            assert_eq!(Datagrams::request(bytes), Err(reason.to_owned()));
        }
    }

    proptest! {
        #[test]
        fn what_was_found_comes_back(found: Found, cut in 1_usize..200) {
            let mut bytes = Vec::new();
            Datagrams::put_answer(&found, &mut bytes);
            prop_assert_eq!(Datagrams::answer(&bytes), Some(found.clone()));
            // Cut short, it is no answer, or has fewer rows.
            let shorter = Datagrams::answer(&bytes[..bytes.len().saturating_sub(cut)]);
            prop_assert!(found.is_empty() || shorter.is_none_or(|shorter| shorter.len() < found.len()));
        }

        #[test]
        fn noise_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Datagrams::request(&bytes);
            let _ = Datagrams::answer(&bytes);
        }
    }
}
