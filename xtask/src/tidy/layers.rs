//! Layer rules: which crate may depend on which, and that `core` stays pure.
//!
//! A crate may use crates of lower layers and of its own; a folder outside the layers (testing, xtask, ...) may use all
//! and nobody may use it. Manifests are read as TOML; purity is checked on paths in the syntax tree of `core`.

use std::collections::BTreeMap;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use toml::{Table, Value};

use super::Findings;
use super::repository::Repository;
use super::source::RustFile;

/// The layers, lowest first.
pub(crate) const LAYERS: [&str; 9] =
    ["core", "sys", "runtime", "preload", "apps", "adapters", "tools", "research", "edge"];

/// Crates that do I/O, read a clock, start threads or draw random numbers: never a dependency of `core`.
const IMPURE: [&str; 19] = [
    "crossbeam-channel",
    "ctrlc",
    "indicatif",
    "libc",
    "log",
    "memmap2",
    "metrics",
    "mio",
    "nix",
    "polling",
    "rand",
    "rand_distr",
    "rayon",
    "rustix",
    "smol",
    "socket2",
    "tempfile",
    "tokio",
    "tracing",
];

/// Those of them that `core` may have behind a feature of its own, which is off by default: events, which go where the
/// program's subscriber says. Without the feature the code is not there.
const OPTIONAL: [&str; 1] = ["tracing"];

/// Parts of the standard library with the same effects.
const IMPURE_PATHS: [&str; 12] = [
    "std::env",
    "std::fs",
    "std::io::stdin",
    "std::io::stdout",
    "std::io::stderr",
    "std::net",
    "std::os",
    "std::process",
    "std::random",
    "std::thread",
    "std::time::Instant",
    "std::time::SystemTime",
];

/// Where a crate stands: its place in [`LAYERS`], or above all of them.
fn rank(path: &str) -> usize {
    let top = path.split('/').next().unwrap_or("");
    LAYERS.iter().position(|layer| *layer == top).unwrap_or(LAYERS.len())
}

/// Checks the dependencies of every crate.
pub(crate) fn check_manifests(repository: &Repository, findings: &mut Findings) {
    let mut manifests = Vec::new();
    let mut folders = BTreeMap::new();
    for folder in repository.crate_folders() {
        let path = format!("{folder}/Cargo.toml");
        let text = repository.text(&path).unwrap_or("");
        match text.parse::<Table>() {
            Ok(table) => {
                let name = table.get("package").and_then(|package| package.get("name")).and_then(Value::as_str);
                folders.insert(name.unwrap_or(folder).to_owned(), folder.to_owned());
                manifests.push((path, text, table));
            }
            Err(error) => {
                let cause = error.message().to_owned();
                findings.fail(&path, 1, format!("no valid TOML ({cause})"), "mend the manifest");
            }
        }
    }
    for (path, text, table) in &manifests {
        check_manifest(path, text, table, &folders, findings);
    }
}

fn check_manifest(path: &str, text: &str, table: &Table, folders: &BTreeMap<String, String>, findings: &mut Findings) {
    let is_off_by_default = table.get("features").is_none_or(|features| features.get("default").is_none());
    for Dependency { section, name, is_optional } in dependencies(table) {
        let line = text.lines().position(|line| line.trim_start().starts_with(&name)).map_or(1, |index| index + 1);
        match folders.get(&name) {
            Some(folder) if rank(folder) == LAYERS.len() && rank(path) < LAYERS.len() => findings.fail(
                path,
                line,
                format!("a layer depends on {name}, which stands outside the layers ({folder})"),
                "move what it needs into a layer",
            ),
            Some(folder) if rank(folder) > rank(path) => findings.fail(
                path,
                line,
                format!("{} depends on {name}, which is above it ({folder})", LAYERS[rank(path)]),
                "turn the dependency round, or move the code that needs it up",
            ),
            None if is_off_by_default && is_optional && OPTIONAL.contains(&name.as_str()) => {}
            None if rank(path) == 0 && section != "dev-dependencies" && IMPURE.contains(&name.as_str()) => {
                findings.fail(
                    path,
                    line,
                    format!("core depends on {name}, which is not pure"),
                    "pass values in and return actions; do the effect in runtime",
                );
            }
            _ => {}
        }
    }
}

/// A dependency of a manifest.
struct Dependency {
    section: &'static str,
    /// Of its package.
    name: String,
    is_optional: bool,
}

/// All dependencies of a manifest, target-specific ones too.
fn dependencies(table: &Table) -> Vec<Dependency> {
    let mut tables = vec![table];
    if let Some(targets) = table.get("target").and_then(Value::as_table) {
        tables.extend(targets.values().filter_map(Value::as_table));
    }
    let mut found = Vec::new();
    for table in tables {
        for section in ["dependencies", "dev-dependencies", "build-dependencies"] {
            for (key, value) in table.get(section).and_then(Value::as_table).into_iter().flatten() {
                let package = value.get("package").and_then(Value::as_str).unwrap_or(key);
                let is_optional = value.get("optional").and_then(Value::as_bool).unwrap_or(false);
                found.push(Dependency { section, name: package.to_owned(), is_optional });
            }
        }
    }
    found
}

/// Checks that code of `core` outside tests names nothing of the standard library that has effects.
pub(crate) fn check_purity(file: &RustFile<'_>, findings: &mut Findings) {
    if rank(file.path) != 0 {
        return;
    }
    let mut paths = Paths::default();
    paths.visit_file(&file.syntax);
    for (line, path) in paths.found {
        let banned = IMPURE_PATHS.iter().any(|banned| path == *banned || path.starts_with(&format!("{banned}::")));
        if banned && !file.is_test(line) {
            findings.fail(
                file.path,
                line,
                format!("core uses {path}, which is not pure"),
                "pass values in and return actions; do the effect in runtime",
            );
        }
    }
}

/// Collects every path that is written in a file, with `use` trees spelled out.
#[derive(Default)]
struct Paths {
    found: Vec<(usize, String)>,
}

impl Paths {
    fn use_tree(&mut self, prefix: &str, tree: &syn::UseTree) {
        let joined = |name: &str| if prefix.is_empty() { name.to_owned() } else { format!("{prefix}::{name}") };
        match tree {
            syn::UseTree::Path(path) => self.use_tree(&joined(&path.ident.to_string()), &path.tree),
            syn::UseTree::Group(group) => group.items.iter().for_each(|item| self.use_tree(prefix, item)),
            syn::UseTree::Name(name) => self.found.push((tree.span().start().line, joined(&name.ident.to_string()))),
            syn::UseTree::Rename(name) => self.found.push((tree.span().start().line, joined(&name.ident.to_string()))),
            _ => self.found.push((tree.span().start().line, prefix.to_owned())),
        }
    }
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.use_tree("", &item.tree);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.found.push((path.span().start().line, names.join("::")));
        visit::visit_path(self, path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(name: &str, rest: &str) -> String {
        format!("[package]\nname = \"{name}\"\n{rest}")
    }

    fn problems(files: &[(&str, &str)]) -> Vec<String> {
        let mut findings = Findings::default();
        check_manifests(&Repository::of(files), &mut findings);
        findings.failures.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_dependency_may_point_down_or_sideways_but_not_up() {
        let units = manifest("yonder-units", "");
        let trap = manifest("yonder-trap", "[dependencies]\nlibc = \"0.2\"\nyonder-units.workspace = true\n");
        let uffd = manifest("yonder-uffd", "[dependencies]\nyonder-trap.workspace = true\n");
        let good =
            [("core/units/Cargo.toml", units.as_str()), ("sys/trap/Cargo.toml", &trap), ("sys/uffd/Cargo.toml", &uffd)];
        assert_eq!(problems(&good), Vec::<String>::new());

        for section in ["dependencies", "dev-dependencies", "build-dependencies", "target.'cfg(unix)'.dependencies"] {
            let upward = manifest("yonder-units", &format!("[{section}]\nyonder-trap.workspace = true\n"));
            let found = problems(&[("core/units/Cargo.toml", &upward), ("sys/trap/Cargo.toml", &trap)]);
            assert_eq!(found.len(), 1, "{section}");
            assert!(found[0].starts_with("core/units/Cargo.toml:4: core depends on yonder-trap, which is above it"));
        }
    }

    #[test]
    fn a_renamed_dependency_is_seen() {
        let kv = manifest("yonder-kv", "");
        let paging = manifest(
            "yonder-paging",
            "[dependencies]\nstore = { path = \"../../apps/kv\", package = \"yonder-kv\" }\n",
        );
        let found = problems(&[("apps/kv/Cargo.toml", &kv), ("runtime/paging/Cargo.toml", &paging)]);
        assert_eq!(found.len(), 1);
    }

    #[test]
    fn testing_and_xtask_may_use_all_and_are_used_by_none() {
        let cli = manifest("yonder-cli", "");
        let e2e = manifest("yonder-e2e", "[dependencies]\nyonder-cli.workspace = true\n");
        assert_eq!(problems(&[("edge/cli/Cargo.toml", &cli), ("testing/e2e/Cargo.toml", &e2e)]), Vec::<String>::new());
        let cli = manifest("yonder-cli", "[dev-dependencies]\nyonder-e2e.workspace = true\n");
        assert_eq!(problems(&[("edge/cli/Cargo.toml", &cli), ("testing/e2e/Cargo.toml", &e2e)]).len(), 1);
    }

    #[test]
    fn core_depends_on_nothing_with_effects() {
        let impure = manifest("yonder-units", "[dependencies]\nthiserror = \"2\"\nlibc = \"0.2\"\n");
        let found = problems(&[("core/units/Cargo.toml", &impure)]);
        assert_eq!(found.len(), 1);
        assert!(found[0].contains(":5: core depends on libc"));
        let tested = manifest("yonder-units", "[dev-dependencies]\nrand = \"0.9\"\n");
        assert_eq!(problems(&[("core/units/Cargo.toml", &tested)]), Vec::<String>::new());
    }

    #[test]
    fn core_has_events_behind_a_feature_that_is_off() {
        let of = |rest: &str| problems(&[("core/units/Cargo.toml", &manifest("yonder-units", rest))]);
        let optional = "tracing = { workspace = true, optional = true }\n";
        assert_eq!(of(&format!("[dependencies]\n{optional}")), Vec::<String>::new());
        let on = of(&format!("[features]\ndefault = [\"tracing\"]\n[dependencies]\n{optional}"));
        assert!(on.len() == 1 && on[0].contains("core depends on tracing"), "{on:?}");
        let always = of("[dependencies]\ntracing.workspace = true\n");
        assert!(always.len() == 1 && always[0].contains("core depends on tracing"), "{always:?}");
        let other = of("[dependencies]\nlog = { workspace = true, optional = true }\n");
        assert!(other.len() == 1 && other[0].contains("core depends on log"), "{other:?}");
    }

    #[test]
    fn core_code_names_nothing_with_effects() {
        let text = "//! x\nuse std::{fmt, thread, time::{Duration, Instant}};\nuse std::fs::*;\nfn f() { std::process::exit(1) }\n\
                    #[cfg(test)]\nmod tests { use std::thread; }\n";
        let lines_in = |path| {
            let mut findings = Findings::default();
            check_purity(&RustFile::parse(path, text).unwrap(), &mut findings);
            findings.failures.iter().map(|finding| finding.line).collect::<Vec<_>>()
        };
        assert_eq!(lines_in("core/units/src/lib.rs"), [2, 2, 3, 4]);
        assert_eq!(lines_in("runtime/sched/src/lib.rs"), Vec::<usize>::new());
    }
}
