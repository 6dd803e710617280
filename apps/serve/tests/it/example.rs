//! The example does what it says.

#[path = "../../examples/dictionary.rs"]
mod dictionary;

#[test]
fn the_dictionary_answers_what_was_stored() {
    dictionary::main();
}
