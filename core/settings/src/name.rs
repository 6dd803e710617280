//! [`Name`]: what settings are called.

use std::fmt;
use std::str::FromStr;

use crate::value::Kind;

/// A setting of a process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Name {
    /// `standby-age`: how long a dirty page stands on standby before it is written back without need.
    StandbyAge,
    /// `standby-pages`: how many dirty pages stand on standby before they are written back in a batch.
    StandbyPages,
    /// `local`: how much may be local.
    Local,
    /// `soft-limit`: how much reclaim keeps local at most, while more may be.
    SoftLimit,
    /// `quota`: how much of all regions together should be mapped.
    Quota,
    /// `region.ID.quota`: how much of one region should be mapped.
    RegionQuota(u32),
}

/// The settings that a process has once: what they are called, and what values they take.
const SINGLE: [(Name, &str, Kind); 5] = [
    (Name::StandbyAge, "standby-age", Kind::Time),
    (Name::StandbyPages, "standby-pages", Kind::Count),
    (Name::Local, "local", Kind::Size),
    (Name::SoftLimit, "soft-limit", Kind::Size),
    (Name::Quota, "quota", Kind::Size),
];

/// What settings of a region begin and end with.
const REGION: (&str, &str) = ("region.", ".quota");

/// The names of all settings, as one text for messages.
#[must_use]
pub fn names() -> String {
    let single = SINGLE.iter().map(|(_, name, _)| *name);
    let region = format!("{}ID{}", REGION.0, REGION.1);
    single.chain([region.as_str()]).collect::<Vec<_>>().join(", ")
}

impl Name {
    /// What values it takes.
    #[must_use]
    pub fn kind(self) -> Kind {
        SINGLE.iter().find(|(name, ..)| *name == self).map_or(Kind::Size, |(.., kind)| *kind)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, SINGLE.iter().find(|(name, ..)| name == self)) {
            (Self::RegionQuota(id), _) => write!(f, "{}{id}{}", REGION.0, REGION.1),
            (_, Some((_, name, _))) => f.write_str(name),
            (_, None) => unreachable!("{self:?} has no name"),
        }
    }
}

impl FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some((name, ..)) = SINGLE.iter().find(|(_, name, _)| *name == text) {
            return Ok(*name);
        }
        let id = text.strip_prefix(REGION.0).and_then(|rest| rest.strip_suffix(REGION.1));
        // Only as it is printed: `region.01.quota` and `region.+1.quota` are other texts.
        let id =
            id.filter(|id| id.bytes().all(|byte| byte.is_ascii_digit()) && (id.len() == 1 || !id.starts_with('0')));
        match id.and_then(|id| id.parse().ok()) {
            Some(id) => Ok(Self::RegionQuota(id)),
            None => Err(format!("'{}' is no setting: type one of {}", text.escape_debug(), names())),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_setting_has_a_name_of_its_own() {
        for (name, text, kind) in SINGLE {
            assert_eq!((name.to_string().as_str(), text.parse(), name.kind()), (text, Ok(name), kind));
        }
        assert_eq!(names(), "standby-age, standby-pages, local, soft-limit, quota, region.ID.quota");
        assert_eq!(Name::RegionQuota(12).kind(), Kind::Size);
    }

    #[test]
    fn what_is_no_setting_is_told_what_is() {
        for wrong in [
            "",
            "quotas",
            "Quota",
            "region",
            "region..quota",
            "region.01.quota",
            "region.+1.quota",
            "region.4294967296.quota",
        ] {
            let said = wrong.parse::<Name>().unwrap_err();
            assert!(said.contains("is no setting: type one of standby-age, "), "{said}");
        }
        assert!(!"a\nb".parse::<Name>().unwrap_err().contains('\n'));
    }

    proptest! {
        #[test]
        fn names_parse_as_they_print(id in any::<u32>()) {
            let name = Name::RegionQuota(id);
            prop_assert_eq!(name.to_string().parse(), Ok(name));
        }

        #[test]
        fn what_parses_prints_as_it_was(text in "(region\\.)?[a-z0-9+.-]{0,12}(\\.quota)?") {
            if let Ok(name) = text.parse::<Name>() {
                prop_assert_eq!(name.to_string(), text);
            }
        }
    }
}
