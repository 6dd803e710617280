//! How the glue is made: with compilers that are missing, that fail, and that are slow; and with the machine's own.
//!
//! The compilers are scripts. Tests that write and run them go one at a time: a file that is open for writing when another test
//! starts a program cannot be run.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Barrier, Mutex, MutexGuard, PoisonError};

use yonder_faiss_sys::{FaissError, Toolchain};

fn one_at_a_time() -> MutexGuard<'static, ()> {
    static RUNNING: Mutex<()> = Mutex::new(());
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A compiler that does this when it is to compile to `$out`; the script itself is its Faiss.
fn compiler(folder: &Path, compile: &str) -> PathBuf {
    let path = folder.join("compiler");
    let script = format!(
        "#!/bin/sh\nwhile [ $# -gt 0 ]; do\n  case $1 in\n    -print-file-name=*) echo \"$0\"; exit ;;\n    -o) out=$2 ;;\n  esac\n  shift\ndone\n{compile}\n"
    );
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn names(folder: &Path) -> Vec<String> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn a_machine_without_a_compiler_or_without_faiss_hears_what_to_install() {
    let _alone = one_at_a_time();
    let folder = tempfile::tempdir().unwrap();
    let packages = "type: sudo apt-get install g++ libfaiss-dev, and then the same again";
    let compiler = folder.path().join("no-compiler");
    let error = Toolchain { compiler, folder: folder.path().join("kept") }.build().unwrap_err();
    assert!(error.is_missing());
    let error = error.to_string();
    assert!(
        error.starts_with("cannot use Faiss: ") && error.contains("no-compiler") && error.ends_with(packages),
        "{error}"
    );
    assert_eq!(error.lines().count(), 1);
    // A compiler says the name alone of a file that it does not find.
    let compiler = folder.path().join("compiler");
    fs::write(&compiler, "#!/bin/sh\necho libfaiss.a\n").unwrap();
    fs::set_permissions(&compiler, fs::Permissions::from_mode(0o755)).unwrap();
    let error = Toolchain { compiler, folder: folder.path().join("kept") }.build().unwrap_err();
    assert!(error.is_missing());
    assert_eq!(error.to_string(), format!("cannot use Faiss: there is no libfaiss.a; {packages}"));
    assert!(!folder.path().join("kept").exists());
}

#[test]
fn a_compiler_that_fails_is_quoted_and_leaves_nothing() {
    let _alone = one_at_a_time();
    let folder = tempfile::tempdir().unwrap();
    let compiler = compiler(folder.path(), "printf half >\"$out\"; echo 'ld: cannot find -lblas' >&2; exit 1");
    let kept = folder.path().join("kept");
    let error = Toolchain { compiler: compiler.clone(), folder: kept.clone() }.build().unwrap_err();
    assert!(!error.is_missing(), "what is there and fails is no reason to leave something out");
    assert!(matches!(&error, FaissError::Refused(_)));
    assert!(
        error.to_string().starts_with("cannot compile what calls Faiss: ld: cannot find -lblas; type: "),
        "{error}"
    );
    assert_eq!(names(&kept), Vec::<String>::new());
    let error = Toolchain { compiler: compiler.clone(), folder: compiler }.build().unwrap_err().to_string();
    assert!(error.contains("set XDG_CACHE_HOME"), "{error}");
}

#[test]
fn whoever_finds_the_file_finds_all_of_it() {
    let _alone = one_at_a_time();
    let folder = tempfile::tempdir().unwrap();
    let slow = "i=0; while [ $i -lt 300 ]; do printf 0123456789 >>\"$out\"; i=$((i + 1)); done; echo >>\"$0.calls\"";
    let toolchain = Toolchain { compiler: compiler(folder.path(), slow), folder: folder.path().join("a/kept") };
    let together = Barrier::new(4);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                together.wait();
                assert_eq!(fs::read(toolchain.build().unwrap()).unwrap(), b"0123456789".repeat(300));
            });
        }
    });
    assert_eq!(names(&toolchain.folder).len(), 1, "{:?}", names(&toolchain.folder));
    let calls = || fs::read(folder.path().join("compiler.calls")).unwrap().len();
    let before = calls();
    toolchain.build().unwrap();
    assert_eq!(calls(), before, "what is there is not made again");
}

#[test]
fn the_machines_own_compiler_makes_a_library_that_needs_no_openmp() {
    let _alone = one_at_a_time();
    let folder = tempfile::tempdir().unwrap();
    let glue = match (Toolchain { compiler: "c++".into(), folder: folder.path().into() }).build() {
        Err(error) if error.is_missing() => {
            println!("SKIP: {error}");
            return;
        }
        built => fs::read(built.unwrap()).unwrap(),
    };
    let has = |text: &[u8]| glue.windows(text.len()).any(|window| window == text);
    assert!(has(b"yonder_faiss_step\0"));
    // It calls no OpenMP of others and offers none to them: the names are nowhere in what a dynamic linker reads.
    assert!(!has(b"libgomp"));
}
