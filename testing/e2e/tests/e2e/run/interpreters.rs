//! Interpreters that are installed here, in what was wrong with them once.

use std::process::Command;

use yonder_e2e::Yonder;

use super::{EMULATED, PROGRAM_TIME};

const PYTHON: &str = "/usr/bin/python3";
/// Local and far memory of small interpreters.
const SMALL: [&str; 2] = ["8MiB", "128MiB"];

/// Prints the same with local and far memory of these sizes, if the interpreter is here and can run `needs`.
fn prints_the_same([local, memory]: [&str; 2], interpreter: &str, needs: &str, flag: &str, script: &str) {
    let Some(yonder) = Yonder::ready_to_run() else { return };
    let run = |script: &str| Command::new(interpreter).args([flag, script]).output();
    if !run(needs).is_ok_and(|output| output.status.success()) {
        println!("SKIP: {interpreter} is not installed, or cannot run: {needs}");
        return;
    }
    let expected = run(script).expect("it is installed");
    assert!(expected.status.success(), "{expected:?}");
    let flags = ["run", "--far", EMULATED, "--local", local, "--memory", memory, "--"];
    let ended = yonder.spawn(&[&flags[..], &[interpreter, flag, script]].concat()).end_within(PROGRAM_TIME);
    assert_eq!(
        (ended.code, ended.stdout.as_str()),
        (Some(0), &*String::from_utf8_lossy(&expected.stdout)),
        "{}",
        ended.stderr
    );
    assert!(!ended.stderr.contains("too little memory"), "{}", ended.stderr);
}

/// Its handlers of fatal errors have a stack in far memory, and memory beside that is cleared.
#[test]
fn python_with_a_fault_handler() {
    let script = "import test.libregrtest, faulthandler, signal\n\
        faulthandler.enable()\n\
        faulthandler.register(signal.SIGALRM, chain=True)\n\
        print(sum(bytearray(30 << 20)), [len(bytearray(n << 10)) for n in range(200)][-1])\n";
    prints_the_same(SMALL, PYTHON, "import test.libregrtest", "-c", script);
}

#[test]
fn python_gives_up_its_rights() {
    let script = "import os\n\
        x = bytearray(30 << 20)\n\
        os.setgroups([0]) if os.getuid() == 0 else os.setgid(os.getgid())\n\
        print(len(x), sum(x))\n";
    prints_the_same(SMALL, PYTHON, "import os", "-c", script);
}

#[test]
fn ruby_has_threads_with_stacks_for_handlers() {
    let script = "puts (1..8).map { |n| Thread.new { ('x' * 1_000_000 * n).size } }.map(&:value).sum\n\
        puts `echo from a child`";
    prints_the_same(SMALL, "ruby", "1", "-e", script);
}

/// Its heap is reserved, made usable in pieces by many threads, and full of code that is made and run there.
#[test]
fn node_collects_its_garbage() {
    let script = "const all = new Map(); let sum = 0;\n\
        for (let n = 0; n < 150000; n++) all.set(n, { n, text: String(n) });\n\
        for (let n = 0; n < 150000; n++) sum += all.get((n * 7919) % 150000).text.length;\n\
        console.log(sum, process.version);";
    prints_the_same(["16MiB", "2GiB"], "node", "1", "-e", script);
}

/// Its heap is reserved, and mapped in its place.
#[test]
fn java_collects_its_garbage() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let source = folder.path().join("Garbage.java");
    let program = "import java.util.*;\n\
        public class Garbage { public static void main(String[] words) {\n\
            Map<Integer, String> all = new HashMap<>(); long sum = 0;\n\
            for (int n = 0; n < 300000; n++) all.put(n, \"value\" + n);\n\
            for (long n = 0; n < 300000; n++) sum += all.get((int) (n * 7919 % 300000)).length();\n\
            System.out.println(sum);\n\
        } }\n";
    std::fs::write(&source, program).expect("the folder can be written");
    let path = source.to_str().expect("temporary folders have names that can be printed");
    prints_the_same(["32MiB", "2GiB"], "java", path, "-Xmx256m", path);
}

/// It opens its extensions so that they look for their functions in themselves first.
#[test]
fn php_with_its_extensions() {
    prints_the_same(
        SMALL,
        "php",
        "echo 1;",
        "-r",
        "echo array_sum(range(1, 1000000)), json_encode(['a' => 1]), PHP_EOL;",
    );
}

/// It has an allocator of its own, which maps its memory while it has its locks.
#[test]
fn a_compiler_that_allocates_by_itself() {
    let Some(yonder) = Yonder::ready_to_run() else { return };
    let Ok(sysroot) = Command::new("rustc").args(["--print", "sysroot"]).output() else {
        println!("SKIP: rustc is not installed");
        return;
    };
    let compiler = format!("{}/bin/rustc", String::from_utf8_lossy(&sysroot.stdout).trim());
    let folder = tempfile::tempdir().expect("a temporary folder");
    let source = folder.path().join("program.rs");
    std::fs::write(
        &source,
        "fn main() { let words: Vec<String> = std::env::args().collect(); println!(\"{words:?}\"); }",
    )
    .expect("the folder can be written");
    let compile = |prefix: &[&str]| {
        let program = folder.path().join("program");
        let output = ["--edition", "2021", "-o"].map(str::to_owned);
        let words: Vec<String> = prefix
            .iter()
            .map(|word| (*word).to_owned())
            .chain([compiler.clone()])
            .chain(output)
            .chain([program.to_string_lossy().into_owned(), source.to_string_lossy().into_owned()])
            .collect();
        (words, program)
    };
    let flags = ["run", "--far", EMULATED, "--local", "16MiB", "--memory", "1GiB", "--"];
    let (words, program) = compile(&flags);
    let ended = yonder.spawn(&words.iter().map(String::as_str).collect::<Vec<_>>()).end_within(PROGRAM_TIME);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(!ended.stderr.contains("too little memory"), "its memory became far: {}", ended.stderr);
    let said = Command::new(&program).arg("x").output().expect("it was compiled");
    assert!(String::from_utf8_lossy(&said.stdout).ends_with("\"x\"]\n"), "{said:?}");
}
