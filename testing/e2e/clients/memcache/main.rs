//! What Rust's crate `memcache` has calls for in the text protocol, against the server at HOST PORT.
//!
//! Prints the number of checks. `suites.py` makes a package of it, because it is of no workspace.

use std::collections::HashMap;
use std::fmt::Debug;

use memcache::{Client, MemcacheError};

#[derive(Default)]
struct Checks(usize);

impl Checks {
    fn same<T: PartialEq + Debug>(&mut self, found: T, wanted: T, what: &str) {
        self.0 += 1;
        assert!(found == wanted, "{what}: {found:?} instead of {wanted:?}");
    }
}

fn writes(client: &Client, checks: &mut Checks) -> Result<(), MemcacheError> {
    client.set("w", "1", 0)?;
    checks.same(client.get("w")?, Some("1".to_owned()), "get after set");
    // The crate does not say whether these have stored anything.
    client.add("w", "2", 0)?;
    checks.same(client.get("w")?, Some("1".to_owned()), "get after add of what is there");
    client.add("fresh", "2", 0)?;
    checks.same(client.get("fresh")?, Some("2".to_owned()), "get after add");
    client.replace("absent", "3", 0)?;
    checks.same(client.get::<String>("absent")?, None, "get after replace of what is not there");
    client.replace("w", "3", 0)?;
    client.append("w", "4")?;
    client.prepend("w", "2")?;
    checks.same(client.get("w")?, Some("234".to_owned()), "get after append and prepend");
    let large: Vec<u8> = (0..1 << 20).map(|index: usize| (index % 251) as u8).collect();
    client.set("large", &large[..], 0)?;
    checks.same(client.get("large")?, Some(large), "get of the largest value");
    let too_large = vec![0_u8; (1 << 20) + 1];
    checks.same(client.set("large", &too_large[..], 0).is_err(), true, "set of one byte too many");
    checks.same(client.get::<String>("absent")?, None, "get of what is not there");
    Ok(())
}

fn numbers(client: &Client, checks: &mut Checks) -> Result<(), MemcacheError> {
    client.set("n", 98, 0)?;
    checks.same(client.increment("n", 3)?, 101, "increment");
    checks.same(client.decrement("n", 1)?, 100, "decrement");
    checks.same(client.get("n")?, Some(100), "get of a number");
    checks.same(client.increment("absent", 1).is_err(), true, "increment of what is not there");
    Ok(())
}

fn many(client: &Client, checks: &mut Checks) -> Result<(), MemcacheError> {
    let keys: Vec<String> = (0..2000).map(|index| format!("many-{index}")).collect();
    for (index, key) in keys.iter().enumerate() {
        client.set(key, index.to_string().repeat(index % 60), 0)?;
    }
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let found: HashMap<String, String> = client.gets(&keys)?;
    checks.same(found.len(), keys.len(), "gets");
    checks.same(found.get("many-59").map(String::len), Some(2 * 59), "one of many");
    Ok(())
}

fn the_rest(client: &Client, checks: &mut Checks) -> Result<(), MemcacheError> {
    let found: HashMap<String, (Vec<u8>, u32, Option<u64>)> = client.gets(&["w"])?;
    let unique = found["w"].2.expect("gets tells it");
    checks.same(client.cas("w", "swapped", 0, unique)?, true, "cas");
    checks.same(client.cas("w", "again", 0, unique)?, false, "cas of what has changed");
    checks.same(client.touch("w", 1000)?, true, "touch");
    checks.same(client.touch("absent", 1000)?, false, "touch of what is not there");
    checks.same(client.delete("w")?, true, "delete");
    checks.same(client.delete("w")?, false, "delete of what is not there");
    checks.same(client.version()?[0].1.starts_with("1."), true, "version");
    // Not `stats`: the crate reads its first line only, and takes the others for later answers.
    client.flush()?;
    checks.same(client.get::<String>("n")?, None, "get after flush");
    Ok(())
}

fn main() -> Result<(), MemcacheError> {
    let server: Vec<String> = std::env::args().skip(1).collect();
    let client = memcache::connect(format!("memcache://{}?protocol=ascii&timeout=60", server.join(":")))?;
    let mut checks = Checks::default();
    for part in [writes, numbers, many, the_rest] {
        part(&client, &mut checks)?;
    }
    println!("{} checks", checks.0);
    Ok(())
}
