//! Capabilities that were good once: revoked ones, and those of address spaces that have ended. They open nothing, also
//! where the number of the address space has been given to another one.
//!
//! A node may say of one whose rights would not have sufficed that they do not, before it looks at whether it is void.

use std::collections::{BTreeMap, HashMap};

use yonder_wire::{ErrorCode, Header, Rights};

use super::{Oracle, Space};

impl Oracle {
    /// The address space has ended.
    pub(super) fn remove_space(&mut self, pid: u32) -> Option<Space> {
        let space = self.spaces.remove(&pid)?;
        self.void(pid, &space.capabilities);
        Some(space)
    }

    /// All capabilities of an address space are void, and `owner` is the only one that is good.
    pub(super) fn revoke(&mut self, pid: u32, owner: u128) -> Result<(), String> {
        let space = self.spaces.get_mut(&pid).ok_or("a revocation in no address space")?;
        let before = std::mem::replace(&mut space.capabilities, vec![(owner, Rights::Owner)]);
        space.owner = owner;
        self.void(pid, &before);
        if self.voided.iter().any(|(of, capability, _)| (*of, *capability) == (pid, owner)) {
            return Err("a capability that was void is given again".to_owned());
        }
        Ok(())
    }

    /// Another address space has got this number.
    pub(crate) fn set_space(&mut self, pid: u32, owner: u128) {
        let space = Space {
            owner,
            capabilities: vec![(owner, Rights::Owner)],
            allocations: BTreeMap::new(),
            pages: HashMap::new(),
            lease: None,
            is_ending: false,
            leaving: Vec::new(),
            elsewhere: Vec::new(),
        };
        let before = self.spaces.insert(pid, space);
        assert!(before.is_none(), "the number {pid:x} was given to two address spaces");
    }

    /// The owner's capability of an address space of which this one is void.
    pub(crate) fn owner_after(&self, pid: u32, capability: u128) -> Option<u128> {
        let is_void = |(of, voided, _): &(u32, u128, Rights)| (*of, *voided) == (pid, capability);
        self.voided.iter().any(is_void).then(|| self.spaces.get(&pid).map(|space| space.owner)).flatten()
    }

    /// Why a request without a capability that is good may not be executed.
    pub(super) fn obstacles_without_right(&self, asked: &Header, needed: Rights) -> Vec<ErrorCode> {
        let mut obstacles = vec![ErrorCode::BadCapability];
        let known = self.voided.iter().find(|(of, voided, _)| (*of, *voided) == (asked.pid, asked.capability));
        obstacles.extend(known.filter(|(.., rights)| *rights < needed).map(|_| ErrorCode::NotAllowed));
        obstacles
    }

    fn void(&mut self, pid: u32, capabilities: &[(u128, Rights)]) {
        self.voided.extend(capabilities.iter().map(|(capability, rights)| (pid, *capability, *rights)));
    }
}
