//! The example does what it says.

#[path = "../../examples/bank.rs"]
mod bank;

#[test]
fn the_bank_neither_makes_nor_loses_money() {
    if let Err(why) = yonder::abilities().userfaultfd {
        println!("SKIP: no userfaultfd: {why}");
        return;
    }
    bank::main().unwrap();
}
