//! The header: it compiles everywhere, and has the structures and numbers of the Rust side.

use std::fmt::Write as _;
use std::mem::offset_of;

use yonder_guide::{HISTORY_MAX, READ_BYTES_MAX, READS_MAX};
use yonder_plugin::{
    RawArrived, RawGuide, RawPayoff, RawReach, RawTouch, STATE_BYTES_MAX, VERSION, cause, reading, verdict,
};

use crate::toolchain::{compile, has};

/// A library that has nothing but the header, twice, and a guide.
const ALONE: &str = "#include <yonder_guide.h>\n#include <yonder_guide.h>\n\
    static int touched(void *state, const struct yonder_touch *touch, const struct yonder_reach *reach) {\n\
    (void)state; return reach->prefetch(reach->context, touch->address, 1); }\n\
    const struct yonder_guide yonder_guide = { YONDER_GUIDE_VERSION, sizeof(struct yonder_guide), \"alone\", 0, NULL, touched, NULL };\n";

/// Claims about a structure that a C compiler checks: its size, alignment and the offset of each field.
macro_rules! claims {
    ($text:ident, $($name:literal $raw:ident { $($field:ident),* })*) => {$(
        writeln!($text, "CLAIM(sizeof(struct {}) == {});", $name, size_of::<$raw>()).unwrap();
        writeln!($text, "CLAIM(ALIGN(struct {}) == {});", $name, align_of::<$raw>()).unwrap();
        $(
            writeln!($text, "CLAIM(offsetof(struct {}, {}) == {});", $name, stringify!($field), offset_of!($raw, $field)).unwrap();
        )*
    )*};
}

/// Everything that both sides say, as a file in C and C++.
fn claims() -> String {
    let mut text = String::from(
        "#include <yonder_guide.h>\n\
         #ifdef __cplusplus\n#define CLAIM(x) static_assert(x, #x)\n#define ALIGN(x) alignof(x)\n\
         #else\n#define CLAIM(x) _Static_assert(x, #x)\n#define ALIGN(x) _Alignof(x)\n#endif\n",
    );
    claims!(text,
        "yonder_payoff" RawPayoff { fetched_pages, hits, unused_pages }
        "yonder_touch" RawTouch { cause, register_count, address, registers, history, history_count, payoff }
        "yonder_arrived" RawArrived { address, bytes, count, note }
        "yonder_reach" RawReach { context, prefetch, peek, read }
        "yonder_guide" RawGuide { version, bytes, name, state_bytes, start, touched, arrived }
    );
    let numbers = [
        ("YONDER_GUIDE_VERSION", VERSION as usize),
        ("YONDER_READ_BYTES_MAX", READ_BYTES_MAX),
        ("YONDER_READS_MAX", READS_MAX),
        ("YONDER_HISTORY_MAX", HISTORY_MAX),
        ("YONDER_STATE_BYTES_MAX", STATE_BYTES_MAX),
        ("YONDER_MISS", cause::MISS as usize),
        ("YONDER_HIT", cause::HIT as usize),
        ("YONDER_UNKNOWN", verdict::UNKNOWN as usize),
        ("YONDER_KNOWN", verdict::KNOWN as usize),
        ("YONDER_DONE", reading::DONE as usize),
        ("YONDER_COMING", reading::COMING as usize),
        ("YONDER_REFUSED", reading::REFUSED as usize),
    ];
    for (name, number) in numbers {
        writeln!(text, "CLAIM({name} == {number});").unwrap();
    }
    text
}

fn check(compiler: &str, standards: &[&str], ending: &str, text: &str) {
    if !has(compiler) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("header").with_extension(ending);
    std::fs::write(&file, text).unwrap();
    for standard in standards {
        compile(compiler, standard, &["-fsyntax-only"], &file);
    }
}

#[test]
fn the_header_is_clean_c_and_cpp() {
    check("cc", &["c99", "c11", "c17"], "c", ALONE);
    check("c++", &["c++11", "c++20"], "cpp", ALONE);
}

#[test]
fn the_header_stands_beside_the_other_one() {
    let other = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../edge/capi/include/yonder.h");
    check("cc", &["c11"], "c", &format!("#include \"{}\"\n{ALONE}", other.display()));
}

#[test]
fn structures_and_numbers_are_the_same_on_both_sides() {
    let text = claims();
    check("cc", &["c11"], "c", &text);
    check("c++", &["c++11"], "cpp", &text);
    let header = include_str!("../../include/yonder_guide.h");
    let numbers = header.lines().filter(|line| line.starts_with("#define YONDER_") && line.split(' ').count() == 3);
    for name in numbers.filter_map(|line| line.split(' ').nth(1)) {
        assert!(text.contains(&format!("CLAIM({name} ==")), "nobody checks {name}");
    }
    let fields = header.lines().filter(|line| line.starts_with('\t') && line.ends_with(';')).count();
    assert_eq!(text.matches("offsetof").count(), fields, "nobody checks some field");
}
