//! What true clients say: the target takes it, and its corpus has it.
//!
//! With `YONDER_FUZZ_WRITE` in the environment the corpus is written: needed when a message or a key has changed.

use std::fs;

use yonder_fuzz::driver::{corpus_of, execute};
use yonder_fuzz::handshake::{file_that_says, hello_of, seeds};
use yonder_fuzz::{Trail, target};
use yonder_identity::Role;

const WRITE_VARIABLE: &str = "YONDER_FUZZ_WRITE";

#[test]
fn the_corpus_has_what_true_clients_say() {
    let (target, folder) = (target("handshake").unwrap(), corpus_of("handshake"));
    let mut inputs = seeds();
    let is_written = std::env::var_os(WRITE_VARIABLE).is_some();
    if is_written {
        fs::create_dir_all(&folder).unwrap();
    } else {
        for (name, input) in &inputs {
            let known = fs::read(folder.join(name)).ok();
            assert_eq!(known.as_ref(), Some(input), "{name} is another one: run this test with {WRITE_VARIABLE}=1");
        }
    }
    // What is drawn anew each time.
    inputs.extend([0, 1].map(|server| (format!("tls-true-hello-{server}"), hello_of(server))));
    inputs.extend([Role::Node, Role::Tenant].map(|role| (format!("identity-{role}"), file_that_says(role))));
    for (name, input) in &inputs {
        assert!(input.len() <= target.bytes_max, "{name} has {} bytes", input.len());
        assert_eq!(execute(target, input, &mut Trail::default()), Ok(()), "{name}");
        if is_written {
            fs::write(folder.join(name), input).unwrap();
        }
    }
}
