//! `cargo xtask bench --smoke`: runs every benchmark and every simulation for a moment, to see that it runs and what it
//! prints.
//!
//! The end-to-end tests run each of them too, with the build of the tests and other flags; here it is the release
//! build. The numbers mean nothing at this length; the form of the output does, because scripts rely on it. Where the
//! machine cannot run Yonder (`yonder doctor` says so), the chore prints SKIP and succeeds.

use std::path::Path;
use std::process::Output;

use serde_json::Value;

use crate::cargo::cargo;

/// What every object of a result has that says how fast something was.
const KEYS: &[&str] = &[
    "bench",
    "ops_per_s",
    "p50_us",
    "p99_us",
    "p999_us",
    "major_faults",
    "minor_faults",
    "fetched_bytes",
    "written_bytes",
    "errors",
];

/// The keys by which dispatch policies are compared.
const HIT_KEYS: &[&str] = &["p99_us", "hit_p99_us", "predicted_hits_right", "predicted_faults_wrong", "errors"];

/// The keys by which the steps of a fault are compared.
const BREAKDOWN_KEYS: &[&str] =
    &["far", "faults", "steps", "runtime_percent", "p50_us", "p99_us", "major_faults", "errors"];

/// What to type after `yonder bench`, and the keys that every object of the result must have.
const BENCHES: &[(&str, &[&str])] = &[
    ("array --memory 64MiB --local 20% --far emu://?latency=2.5us --workers 1 --faults yield --duration 500ms", KEYS),
    ("errors --memory 24MiB --local 4MiB --keys 10000 --swap-in-errors 50 --memory-errors 50", KEYS),
    ("array --memory 64MiB --rate 50k --dist zipf:0.99 --dispatch predicted --duration 500ms", HIT_KEYS),
    ("switch", &["bench", "mechanism", "ns_per_switch"]),
    ("notify --threads 1,4 --faults-per-thread 100 --runs 1", KEYS),
    ("fault", &["bench"]),
    ("fault-breakdown --memory 16MiB --local 4MiB --touches 500 --runs 1", BREAKDOWN_KEYS),
    ("reclaim", &["bench"]),
    ("rread --memory 4MiB --sizes 4,4KiB --clients 2 --depths 1,16 --duration 100ms", KEYS),
    ("rread --peers --memory 1MiB --sizes 64 --depths 8 --rounds 1 --duration 50ms", KEYS),
    ("rwrite --memory 4MiB --sizes 64KiB --clients 2 --depths 16 --duration 100ms --transport tcp", KEYS),
    ("ralloc --sizes page,1MiB --node-pages 1024 --table-pages 65536 --duration 50ms", KEYS),
    ("scale-clients --clients 1,4 --duration 200ms", KEYS),
    ("scale-pages --entries 1,1024 --duration 100ms", KEYS),
    // Where there is no root the kernel's ways are skipped; their objects have the keys all the same.
    ("ycsb --far emu://?latency=2.5us --memory 16MiB --workloads a,d --connections 16 --duration 100ms --runs 1", KEYS),
    (
        "ycsb --far emu://?latency=2.5us --memory 16MiB --workloads c --swap none --dispatch pf-aware,predicted --rate 5k \
         --connections 16 --duration 200ms --runs 1",
        HIT_KEYS,
    ),
    ("peers --memory 16MiB --threads 2 --rate 500 --duration 100ms --runs 1", KEYS),
    ("kv --memory 20MiB --systems busy,yield --duration 200ms", KEYS),
    ("tpcc --memory 20MiB --shrink 10 --systems busy,yield --duration 200ms", KEYS),
    ("poster --memory 8MiB --connections 8 --duration 200ms --runs 1", HIT_KEYS),
];

/// The keys of a parameter of the simulations.
const COST_KEYS: &[&str] = &["sim", "part", "of", "name", "value", "origin", "source"];

/// What a report of simulations writes.
const REPORT_FILES: [&str; 3] = ["report.html", "report.json", "RESULTS.md"];

/// Runs the simulations and the benchmarks of the release build.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    check_objects(root, "sim costs", COST_KEYS)?;
    check_report(root)?;
    let doctor = yonder(root, "doctor --json")?;
    if !doctor.status.success() {
        println!("SKIP: this machine cannot run Yonder:\n{}", String::from_utf8_lossy(&doctor.stdout));
        return Ok(());
    }
    for (arguments, keys) in BENCHES {
        check_objects(root, &format!("bench {arguments}"), keys)?;
    }
    Ok(())
}

/// Checks what a command prints with `--json`.
fn check_objects(root: &Path, arguments: &str, keys: &[&str]) -> Result<(), String> {
    let output = successful(root, &format!("{arguments} --json"))?;
    let objects = check_output(&String::from_utf8_lossy(&output.stdout), keys);
    let objects = objects.map_err(|cause| format!("'yonder {arguments} --json': {cause}"))?;
    println!("ok: {arguments}: {objects} objects");
    Ok(())
}

/// Checks that a report of all simulations is written.
fn check_report(root: &Path) -> Result<(), String> {
    let folder = root.join("target/smoke-report");
    // What an earlier run has left must not stand for this one.
    if folder.exists() {
        std::fs::remove_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    successful(root, "report --quick --sets sim --out target/smoke-report")?;
    match REPORT_FILES.iter().find(|name| !folder.join(name).is_file()) {
        Some(missing) => Err(format!("'yonder report' did not write {missing}")),
        None => {
            println!("ok: report: {}", REPORT_FILES.join(", "));
            Ok(())
        }
    }
}

/// Runs a command that is to succeed.
fn successful(root: &Path, arguments: &str) -> Result<Output, String> {
    let output = yonder(root, arguments)?;
    if output.status.success() {
        return Ok(output);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("'yonder {arguments}' ended with {}: {}", output.status, said.trim()))
}

fn yonder(root: &Path, arguments: &str) -> Result<Output, String> {
    let mut command = cargo(root, &["run", "--release", "--quiet", "--package", "yonder-cli", "--"]);
    command.args(arguments.split(' ')).output().map_err(|error| format!("yonder {arguments}: {error}"))
}

/// Checks that `output` is JSON Lines whose objects have all `keys`, and counts them.
fn check_output(output: &str, keys: &[&str]) -> Result<usize, String> {
    let mut objects = 0;
    for line in output.lines() {
        let value: Value = serde_json::from_str(line).map_err(|error| format!("'{line}' is no JSON: {error}"))?;
        let object = value.as_object().ok_or_else(|| format!("'{line}' is no object"))?;
        if let Some(missing) = keys.iter().find(|key| !object.contains_key(**key)) {
            return Err(format!("the key '{missing}' is missing in '{line}'"));
        }
        objects += 1;
    }
    if objects == 0 { Err("it printed nothing".to_owned()) } else { Ok(objects) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_checked_line_by_line() {
        let keys = ["bench", "errors"];
        assert_eq!(
            check_output("{\"bench\":\"array\",\"errors\":0}\n{\"bench\":\"array\",\"errors\":1}\n", &keys),
            Ok(2)
        );
        for bad in ["", "array 12\n", "[1]\n", "{\"bench\":\"array\"}\n", "{\"bench\":\"array\",\"errors\":0}\nx\n"] {
            assert!(check_output(bad, &keys).is_err(), "{bad:?}");
        }
    }
}
