//! The C library as its users get it: installed under a prefix, found by pkg-config, and run against a `yonder node`.
//!
//! What is installed is what cargo has built with this test; `edge/capi` tests the functions one by one.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use yonder_e2e::Yonder;

/// The repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Runs a command that must succeed, and returns what it printed.
fn succeed(command: &mut Command) -> String {
    let Output { status, stdout, stderr } =
        command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (out, errors) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command:?} ended with {status}:\n{out}{errors}");
    out.into_owned()
}

fn has(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// Installs what lies in this test's profile under `prefix`.
fn install(prefix: &Path) {
    // Where cargo puts tests: TARGET/PROFILE/deps.
    let test = std::env::current_exe().expect("a running test knows its executable");
    let profile = test.ancestors().nth(2).expect("cargo puts tests into TARGET/PROFILE/deps");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["run", "--quiet", "--package", "xtask", "--target-dir"]).arg(profile.parent().expect("as above"));
    command.args(["--", "install", "--prefix"]).arg(prefix).arg("--from").arg(profile).current_dir(root());
    let said = succeed(&mut command);
    for place in [
        "bin/yonder",
        "lib/libyonder.so",
        "include/yonder.h",
        "include/yonder_threads.h",
        "include/yonder.hpp",
        "lib/pkgconfig/yonder.pc",
        "include/yonder_guide.h",
        "lib/yonder/libyonder_guide_linked_list.so",
    ] {
        assert!(said.contains(&format!("installed {}\n", prefix.join(place).display())), "{said}");
    }
}

/// What pkg-config says of the library under `prefix`.
fn pkg_config(prefix: &Path, asked: &[&str]) -> Vec<String> {
    let mut command = Command::new("pkg-config");
    command.args(asked).arg("yonder").env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
    succeed(&mut command).split_whitespace().map(str::to_owned).collect()
}

/// Builds an example with `flags`, and returns where it is.
fn build(example: &str, folder: &Path, flags: &[String]) -> PathBuf {
    let (program, source) = (folder.join(example), root().join("edge/capi/examples").join(example));
    let mut command = match source.extension() {
        Some(_) => Command::new("c++"),
        None => Command::new("cc"),
    };
    let source = if source.extension().is_some() { source } else { source.with_extension("c") };
    succeed(command.arg(source).arg("-o").arg(&program).args(flags));
    program
}

#[test]
fn examples_are_built_from_an_installed_library_and_run_against_a_node() {
    let yonder = Yonder::found().with_library().with_guides();
    for (program, package) in [("cc", "gcc"), ("pkg-config", "pkg-config")] {
        if !has(program) {
            println!("SKIP: no {program}: type apt-get install {package}");
            return;
        }
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let prefix = folder.path().join("prefix");
    install(&prefix);
    let version = succeed(Command::new(prefix.join("bin/yonder")).arg("--version"));
    assert!(version.trim().ends_with(&pkg_config(&prefix, &["--modversion"])[0]), "{version}");

    let dynamic = pkg_config(&prefix, &["--cflags", "--libs"]);
    // Without the shared library beside it, the linker takes the archive.
    let mut fixed = pkg_config(&prefix, &["--cflags"]);
    fixed.push(prefix.join("lib/libyonder.a").display().to_string());
    fixed.extend(pkg_config(&prefix, &["--static", "--libs"]).into_iter().filter(|flag| flag != "-lyonder"));

    let node = yonder.serve(&["node", "--listen", "udp://127.0.0.1:0", "--memory", "128MiB"]);
    for (kind, flags) in [("dynamic", &dynamic), ("static", &fixed)] {
        let place = folder.path().join(kind);
        std::fs::create_dir(&place).expect("the folder is new");
        let examples = [
            ("counter", "the counter is 200\n"),
            ("pipeline", "256 blocks written and read, 0 of them"),
            ("far_array", "32 MiB were used, and at most "),
            ("pagerank", "16384 vertices, "),
            ("far_vector.cpp", "0 things were wrong\n"),
        ];
        let has_cpp = has("c++");
        if !has_cpp {
            println!("SKIP: no C++ compiler: type apt-get install g++");
        }
        for (example, says) in examples.into_iter().filter(|(name, _)| has_cpp || !name.ends_with(".cpp")) {
            let mut command = Command::new(build(example, &place, flags));
            command.arg(node.url("udp")).env_remove("LD_LIBRARY_PATH");
            if kind == "dynamic" {
                command.env("LD_LIBRARY_PATH", prefix.join("lib"));
            }
            let said = succeed(&mut command);
            assert!(said.contains(says), "{kind} {example}: {said}");
        }
    }
    assert_eq!(node.stop().code, Some(0));
}

#[test]
fn an_example_without_a_node_says_what_to_do() {
    if !has("cc") {
        println!("SKIP: no cc: type apt-get install gcc");
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let deps = std::env::current_exe().expect("a running test knows its executable");
    let archive = deps.parent().expect("tests are in a folder").join("libyonder_capi.a");
    let mut flags = vec![format!("-I{}", root().join("edge/capi/include").display()), archive.display().to_string()];
    flags.extend(["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl"].map(str::to_owned));
    let program = build("counter", folder.path(), &flags);
    let nowhere = format!("shm://{}/none.sock", folder.path().display());
    let output = Command::new(program).arg(&nowhere).output().expect("the example can be started");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    assert!(said.contains(&nowhere) && said.contains("yonder node --listen"), "{said}");
}
