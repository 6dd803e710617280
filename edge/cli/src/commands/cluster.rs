//! `yonder cluster`: makes the members of a cluster, on the machine that has its authority. Nothing here is on a
//! network, but what `roll` restarts.

mod roll;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use serde::Serialize;
use yonder_identity::{Authority, IdentityError, Issued, Role, SharedKey, check_name};

use crate::args::{
    ClusterAddArgs, ClusterArgs, ClusterFolderArgs, ClusterKeyArgs, ClusterListArgs, ClusterRevokeArgs, ClusterWhat,
};
use crate::output::{json_line, line};
use crate::table::{print, titled};

const DAY_SECS: u64 = 24 * 3600;

pub(crate) fn run(args: &ClusterArgs) -> anyhow::Result<ExitCode> {
    match &args.what {
        ClusterWhat::Init(args) => init(args)?,
        ClusterWhat::Add(args) => add(args)?,
        ClusterWhat::List(args) => list(args)?,
        ClusterWhat::Revoke(args) => revoke(args)?,
        ClusterWhat::Key(args) => make_key(args)?,
        ClusterWhat::Roll(args) => return roll::run(args),
    }
    Ok(ExitCode::SUCCESS)
}

fn init(args: &ClusterFolderArgs) -> anyhow::Result<()> {
    let authority = Authority::init(&folder(args)?)?;
    line(&format!(
        "the authority is in {}, which stays on this machine: who reads it can make members\n\
         type `yonder cluster add controller NAME`, and the same with node, tenant and operator, to make members",
        authority.folder().display()
    ))
}

/// What `--json` shows of an identity.
#[derive(Serialize)]
struct Shown<'issued> {
    role: &'issued str,
    name: &'issued str,
    state: &'static str,
    until: String,
    serial: &'issued str,
    #[serde(skip_serializing_if = "str::is_empty")]
    limits: &'issued str,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
}

impl<'issued> Shown<'issued> {
    fn of(issued: &'issued Issued, now: u64, file: Option<&Path>) -> Self {
        Self {
            role: &issued.role,
            name: &issued.name,
            state: state(issued, now),
            until: date(issued.until),
            serial: &issued.serial,
            limits: &issued.limits,
            file: file.map(|file| file.display().to_string()),
        }
    }
}

fn add(args: &ClusterAddArgs) -> anyhow::Result<()> {
    let mut authority = open(&args.authority)?;
    check_name(&args.name)?;
    let file = args.out.clone().unwrap_or_else(|| PathBuf::from(format!("{}.pem", args.name)));
    anyhow::ensure!(!file.exists(), "{} is there already: remove it, or type another --out", file.display());
    let lifetime = Duration::from_secs(u64::from(args.days) * DAY_SECS);
    let limits = args.limits.map(|limits| limits.to_string());
    anyhow::ensure!(limits.is_none() || args.role == Role::Tenant, "only a tenant has limits: leave out --limits");
    let limits = limits.as_deref();
    let added = match args.renew {
        true => authority.renew(args.role, &args.name, lifetime, limits)?,
        false => authority.add_limited(args.role, &args.name, lifetime, limits.unwrap_or(""))?,
    };
    added.write(&file)?;
    if args.json {
        return json_line(&Shown::of(&added.issued, now(), Some(&file)));
    }
    let (role, name, shown, until) = (args.role, &args.name, file.display(), date(added.issued.until));
    line(&format!("{shown} is the identity of {role} {name}, good until {until}: only you may read it"))?;
    line(&format!("move it to where {role} {name} runs, to a file of mode 0600 of its user, and type there:"))?;
    line(&format!("  {}", usage(role, &file_name(&file))))
}

/// What is typed where a member of this role runs.
fn usage(role: Role, file: &str) -> String {
    match role {
        Role::Controller => format!("yonder controller --listen tcp://0.0.0.0:7400 --identity {file}"),
        Role::Node => {
            format!("yonder node --listen tcp://0.0.0.0:7000 --memory 4GiB --controller HOST:7400 --identity {file}")
        }
        Role::Tenant => format!("YONDER_IDENTITY={file} PROGRAM"),
        Role::Operator => format!("yonder controller nodes --at HOST:7400 --identity {file}"),
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned())
}

fn list(args: &ClusterListArgs) -> anyhow::Result<()> {
    let authority = open(&args.authority)?;
    let now = now();
    if args.json {
        return authority.issued().iter().try_for_each(|issued| json_line(&Shown::of(issued, now, None)));
    }
    if authority.issued().is_empty() {
        eprintln!("yonder cluster: no member yet; type `yonder cluster add node NAME`");
        return Ok(());
    }
    print(&members_table(authority.issued(), now))
}

/// A line of titles and one for each identity.
fn members_table(issued: &[Issued], now: u64) -> Vec<Vec<String>> {
    let rows = issued.iter().map(|issued| {
        let state = state(issued, now).to_owned();
        vec![issued.role.clone(), issued.name.clone(), state, date(issued.until), issued.limits.clone()]
    });
    titled(&["ROLE", "NAME", "STATE", "UNTIL", "LIMITS"], rows)
}

fn state(issued: &Issued, now: u64) -> &'static str {
    match issued.revoked {
        Some(_) => "revoked",
        None if issued.is_good_at(now) => "good",
        None => "over",
    }
}

fn revoke(args: &ClusterRevokeArgs) -> anyhow::Result<()> {
    let mut authority = open(&args.authority)?;
    let count = authority.revoke(&args.name)?;
    let (name, many) = (&args.name, if count == 1 { "identity" } else { "identities" });
    line(&format!("{count} {many} of {name} revoked"))?;
    line(&format!(
        "copy {} into the folder of each identity that is in use, of nodes and controllers first: it counts from the \
         next connection on",
        authority.revoked_file().display()
    ))
}

fn make_key(args: &ClusterKeyArgs) -> anyhow::Result<()> {
    SharedKey::generate()?.write(&args.file).map_err(|error| match error {
        IdentityError::FileExists { path } => {
            anyhow::anyhow!("{} is there already: remove it, or type another file", path.display())
        }
        other => other.into(),
    })?;
    let (shown, name) = (args.file.display(), file_name(&args.file));
    line(&format!(
        "{shown} is a shared key: only you may read it, and all who have it may do everything\n\
         copy it to each machine of the cluster, to a file of mode 0600, and type there:\n  \
         yonder controller --listen tcp://0.0.0.0:7400 --key {name}\n  \
         yonder node --listen tcp://0.0.0.0:7000 --memory 4GiB --controller HOST:7400 --key {name}\n  \
         YONDER_KEY={name} PROGRAM"
    ))
}

fn open(args: &ClusterFolderArgs) -> anyhow::Result<Authority> {
    Ok(Authority::open(&folder(args)?)?)
}

/// The folder that was typed, or the user's own.
fn folder(args: &ClusterFolderArgs) -> anyhow::Result<PathBuf> {
    if let Some(folder) = &args.folder {
        return Ok(folder.clone());
    }
    let variable = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let config = variable("XDG_CONFIG_HOME").or_else(|| variable("HOME").map(|home| home.join(".config")));
    let config = config.context("neither XDG_CONFIG_HOME nor HOME names a folder: type --folder FOLDER")?;
    Ok(config.join("yonder/cluster"))
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The day of a time in seconds since 1970, in UTC (the days of the civil calendar, after Howard Hinnant).
fn date(secs: u64) -> String {
    let days = secs / DAY_SECS + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::aligned;

    #[test]
    fn days_are_those_of_the_calendar() {
        for (secs, day) in [
            (0, "1970-01-01"),
            (951_782_399, "2000-02-28"),
            (951_782_400, "2000-02-29"),
            (951_868_800, "2000-03-01"),
            (1_798_761_599, "2026-12-31"),
            (1_798_761_600, "2027-01-01"),
            (4_107_542_400, "2100-03-01"),
        ] {
            assert_eq!(date(secs), day);
        }
    }

    #[test]
    fn members_are_a_table() {
        let issued = |name: &str, until, revoked| Issued {
            role: "node".to_owned(),
            name: name.to_owned(),
            from: 0,
            until,
            revoked,
            serial: "40".to_owned(),
            limits: String::new(),
        };
        let all = [issued("n1", 100, None), issued("n2", 40, None), issued("n3", 100, Some(10))];
        let table = aligned(&members_table(&all, 50));
        let words = |row: usize| table[row].split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(words(0), "ROLE NAME STATE UNTIL LIMITS");
        assert_eq!(
            [1, 2, 3].map(words),
            ["node n1 good 1970-01-01", "node n2 over 1970-01-01", "node n3 revoked 1970-01-01"]
        );
    }
}
