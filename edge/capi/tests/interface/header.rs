//! The headers: they compile everywhere, and declare what the library has.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use crate::toolchain::{Toolchain, file, has, library, succeed};

/// A program that has nothing but the header, twice, and uses what are macros.
const ALONE: &str = "#include <yonder_threads.h>\n#include <yonder_threads.h>\n#include <yonder.h>\n\
    static yonder_threads_config threads = YONDER_THREADS_CONFIG_DEFAULT;\n\
    static yonder_config config = YONDER_CONFIG_DEFAULT;\n\
    static yonder_memory_config memory = YONDER_MEMORY_CONFIG_DEFAULT;\n\
    static int guarded(volatile int *far) {\n\
      YONDER_TRY {\n\
        YONDER_TRY { *far = 1; } YONDER_CATCH(code, address) { return code; } YONDER_END\n\
      } YONDER_CATCH(code, address) { return address != NULL; } YONDER_END\n\
      return 0;\n\
    }\n\
    int main(void) { int far; return guarded(&far) == 0 && memory.size == sizeof memory && threads.size == sizeof threads && config.size == sizeof config && YONDER_TRANSFER_BYTES_MAX > 0 ? 0 : 1; }\n";

fn write(folder: &Path, name: &str) -> std::path::PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, ALONE).unwrap();
    path
}

#[test]
fn the_header_is_clean_c() {
    let Some(toolchain) = Toolchain::ready() else { return };
    let source = write(toolchain.folder(), "alone.c");
    for standard in ["c99", "c11", "c17"] {
        toolchain.check("cc", standard, &source);
        for example in ["counter", "pipeline", "far_array", "pagerank", "cache"] {
            toolchain.check("cc", standard, &file(&format!("examples/{example}.c")));
        }
    }
}

#[test]
fn the_header_is_clean_cpp() {
    let Some(toolchain) = Toolchain::ready() else { return };
    if !has("c++") {
        println!("SKIP: no C++ compiler: type apt-get install g++");
        return;
    }
    let source = write(toolchain.folder(), "alone.cpp");
    for standard in ["c++11", "c++20"] {
        toolchain.check("c++", standard, &source);
    }
    // What it adds for C++ has an example that uses all of it.
    for standard in ["c++17", "c++20"] {
        toolchain.check("c++", standard, &file("examples/far_vector.cpp"));
    }
}

#[test]
fn the_header_and_the_library_have_the_same_functions() {
    if !has("nm") {
        println!("SKIP: no nm: type apt-get install binutils");
        return;
    }
    let output = succeed(Command::new("nm").args(["--dynamic", "--defined-only"]).arg(library()));
    let symbols = String::from_utf8(output.stdout).unwrap();
    let exported: BTreeSet<&str> = symbols
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2))
        .filter(|name| name.to_lowercase().contains("yonder"))
        .collect();
    let headers = ["include/yonder.h", "include/yonder_threads.h"].map(|header| {
        let declared = declared(&std::fs::read_to_string(file(header)).unwrap());
        assert!(declared.len() > 20, "{declared:?}");
        declared
    });
    let declared: BTreeSet<String> = headers.into_iter().flatten().collect();
    assert_eq!(exported, declared.iter().map(String::as_str).collect());
}

/// Names of the functions that a header declares.
fn declared(header: &str) -> BTreeSet<String> {
    let mut code = String::new();
    for (index, part) in header.split("/*").enumerate() {
        let behind = part.split_once("*/").map_or("", |(_, behind)| behind);
        code.push_str(if index == 0 { part } else { behind });
    }
    let is_declaration = |line: &&str| !line.starts_with(['#', ' ', '\t']) && !line.starts_with("typedef");
    let declarations = code.lines().filter(is_declaration);
    let names = declarations.filter_map(|line| {
        let name = line.split_once('(')?.0;
        Some(name.rsplit([' ', '*']).next()?.to_owned())
    });
    names.collect()
}

#[test]
fn declarations_are_found() {
    let header =
        "/* a(b) */\n#define c(d)\nint e(int f,\n      g(h));\nconst char *i(void); /* j(k)\n * l(m) */\nvoid n(x);\n";
    assert_eq!(declared(header), ["e", "i", "n"].map(str::to_owned).into());
}
