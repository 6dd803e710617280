//! [`Ticket`]: the right to use an address space, to be handed from one program to another.

use std::fmt;
use std::str::FromStr;

/// Digits of a controller's key in a ticket's text, and most of a node's capability.
const PROOF_DIGITS: usize = 32;

/// What names an address space and proves a right to it. Whoever has it can use the address space: keep it as you would
/// keep a password. Its text form is `PID-PROOF`, both in hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ticket {
    pid: u32,
    proof: Proof,
}

/// What proves a right.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Proof {
    /// To a node.
    Capability(u128),
    /// To a controller.
    Key(u128),
}

/// A text that is no ticket.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("'{0}' is not a ticket: give the text that the owner of the address space got, such as 1f3a-c000123456789abc")]
pub struct TicketError(String);

impl Ticket {
    /// The ticket for address space `pid` of a node that `capability` proves the right to.
    #[must_use]
    pub const fn new(pid: u32, capability: u128) -> Self {
        Self { pid, proof: Proof::Capability(capability) }
    }

    /// The ticket for address space `pid` of a controller that `key` proves the right to.
    #[must_use]
    pub const fn of_controller(pid: u32, key: u128) -> Self {
        Self { pid, proof: Proof::Key(key) }
    }

    /// Number of the address space.
    #[must_use]
    pub const fn pid(&self) -> u32 {
        self.pid
    }

    pub(super) const fn proof(&self) -> Proof {
        self.proof
    }
}

impl fmt::Display for Ticket {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.proof {
            Proof::Capability(capability) => write!(formatter, "{:x}-{capability:x}", self.pid),
            Proof::Key(key) => write!(formatter, "{:x}-{key:0width$x}", self.pid, width = PROOF_DIGITS),
        }
    }
}

impl fmt::Debug for Ticket {
    /// Without the proof, which does not belong into logs.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Ticket({:x})", self.pid)
    }
}

impl FromStr for Ticket {
    type Err = TicketError;

    fn from_str(text: &str) -> Result<Self, TicketError> {
        let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let parsed = text.split_once('-').filter(|(pid, proof)| is_digits(pid) && is_digits(proof));
        let parsed = parsed.and_then(|(pid, proof)| {
            let pid = u32::from_str_radix(pid, 16).ok()?;
            let number = u128::from_str_radix(proof, 16).ok()?;
            let proof = match (yonder_placement::Pid(pid).is_of_controller(), proof.len()) {
                (true, PROOF_DIGITS) => Proof::Key(number),
                (false, 1..=PROOF_DIGITS) => Proof::Capability(number),
                _ => return None,
            };
            Some(Self { pid, proof })
        });
        parsed.ok_or_else(|| TicketError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickets_are_text() {
        let of_node = Ticket::new(0x1f3a, 0xc000_1234_5678_9abc);
        assert_eq!(of_node.to_string(), "1f3a-c000123456789abc");
        let of_controller = Ticket::of_controller(0x8000_0001, 0xabc);
        assert_eq!(of_controller.to_string(), "80000001-00000000000000000000000000000abc");
        for ticket in [of_node, of_controller] {
            assert_eq!(ticket.to_string().parse(), Ok(ticket));
        }
        assert_eq!(format!("{of_node:?}"), "Ticket(1f3a)");
        for bad in
            ["", "1f3a", "1f3a-", "x-1", "100000000-1", "1-123456781234567812345678123456781", "1-+1", "80000001-1"]
        {
            assert!(bad.parse::<Ticket>().unwrap_err().to_string().starts_with(&format!("'{bad}' is not a ticket")));
        }
    }
}
