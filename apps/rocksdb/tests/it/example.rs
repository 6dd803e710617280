//! The example does what it says.

#[path = "../../examples/gets.rs"]
mod gets;

use yonder_rocksdb::{FillError, RocksError};

#[test]
fn every_row_is_got() {
    if let Err(why) = yonder::abilities().userfaultfd {
        println!("SKIP: no userfaultfd: {why}");
        return;
    }
    match gets::main() {
        Err(error) if matches!(error.downcast_ref(), Some(FillError::Rocks(RocksError::Library(_)))) => {
            println!("SKIP: {error}");
        }
        done => done.unwrap(),
    }
}
