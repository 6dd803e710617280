//! The example does what it says.

#[path = "../../examples/nearest.rs"]
mod nearest;

use yonder_vector::FaissError;

#[test]
fn the_nearest_are_found() {
    if let Err(why) = yonder::abilities().userfaultfd {
        println!("SKIP: no userfaultfd: {why}");
        return;
    }
    match nearest::main() {
        Err(error) if error.downcast_ref().is_some_and(FaissError::is_missing) => println!("SKIP: {error}"),
        done => done.unwrap(),
    }
}
