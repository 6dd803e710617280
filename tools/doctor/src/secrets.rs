//! How secrets fare on this machine: [`encryption`], of what is on its way, and [`memlock`], of keys in memory.
//!
//! Pure, as `checks` is. Which cipher a node takes is decided in `core/session` by the same ability of the processor.

use yonder_units::format_bytes;

use crate::checks::{ok, warn};
use crate::machine::{Machine, MemlockLimit};
use crate::report::Check;

/// What a node locks: a page for the key of its capabilities, one for the secret of its sessions, 32 KiB for the keys
/// of lanes of each thread, and a page for each stream; a program, a page for each `seal+`, session and lane. This is
/// enough for 64 threads and 1,500 streams.
const LOCKED_WANTED_BYTES: u64 = 8 << 20;

/// What is encrypted on its way and how, and what is not.
pub(crate) fn encryption(machine: &Machine) -> Check {
    let cipher = if machine.cpu_flags.contains("aes") {
        "AEGIS-128L, by AES instructions"
    } else {
        "ChaCha20-Poly1305, slower: no AES instructions"
    };
    ok(
        "encryption",
        format!(
            "{cipher}; not encrypted without seal+ before it: shm:// (shared memory of one user), emu://, file://, and \
             tcp:// and udp:// of nodes without --identity or --key"
        ),
    )
}

/// How much memory may be kept off swap, compared with what a node needs for its keys.
pub(crate) fn memlock(machine: &Machine) -> Check {
    const NAME: &str = "memlock";
    let needed = format_bytes(LOCKED_WANTED_BYTES);
    match machine.memlock {
        None => {
            ok(NAME, format!("the limit cannot be read; keys of a node and of seal+ need {needed} to stay off swap"))
        }
        Some(MemlockLimit::Unlimited) => {
            ok(NAME, "any amount may be locked: keys of a node and of seal+ stay off swap")
        }
        Some(MemlockLimit::Bytes(bytes)) if bytes >= LOCKED_WANTED_BYTES => {
            let limit = format_bytes(bytes);
            ok(
                NAME,
                format!("{limit} may be locked: keys of a node and of seal+, which need up to {needed}, stay off swap"),
            )
        }
        Some(MemlockLimit::Bytes(bytes)) => warn(
            NAME,
            format!(
                "{} may be locked: keys of a node and of seal+, which need up to {needed}, may be swapped out",
                format_bytes(bytes)
            ),
            format!("raise 'ulimit -l' to {} (KiB), or LimitMEMLOCK= of a service to 8M", LOCKED_WANTED_BYTES / 1024),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Status;

    #[test]
    fn the_cipher_is_named_and_what_is_not_encrypted() {
        let with = |flag: &str| encryption(&Machine { cpu_flags: [flag.to_owned()].into(), ..Machine::default() });
        for (flag, cipher) in [("aes", "AEGIS-128L"), ("avx2", "ChaCha20-Poly1305, slower")] {
            let check = with(flag);
            assert_eq!((check.check, check.status, &check.mend), ("encryption", Status::Ok, &None));
            assert!(check.detail.starts_with(cipher) && !check.detail.contains('\n'), "{check:?}");
            for plain in ["shm://", "emu://", "file://", "tcp://", "udp://", "seal+", "--identity or --key"] {
                assert!(check.detail.contains(plain), "{plain}: {check:?}");
            }
        }
    }

    #[test]
    fn a_limit_below_what_keys_need_is_a_warning() {
        let with = |memlock| memlock_of(memlock).status;
        assert_eq!(with(None), Status::Ok);
        assert_eq!(with(Some(MemlockLimit::Unlimited)), Status::Ok);
        assert_eq!(with(Some(MemlockLimit::Bytes(LOCKED_WANTED_BYTES))), Status::Ok);
        let few = memlock_of(Some(MemlockLimit::Bytes(LOCKED_WANTED_BYTES - 1)));
        assert_eq!(few.status, Status::Warn);
        assert!(few.mend.is_some_and(|mend| mend.contains("ulimit -l")) && few.detail.contains("swapped out"));
    }

    fn memlock_of(memlock: Option<MemlockLimit>) -> Check {
        super::memlock(&Machine { memlock, ..Machine::default() })
    }
}
