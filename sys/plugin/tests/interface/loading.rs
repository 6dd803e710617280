//! Guides in C: what is loaded, what is refused, and that a guide is told and can do what it should.

use std::path::Path;

use yonder_guide::{Arrived, Cause, FakeReach, Payoff, Touch, Verdict};
use yonder_plugin::{Loaded, PluginError};

use crate::toolchain::{has, library};

/// A guide that writes down what it is told by what it asks for: pages `1000 + n` are numbers.
const WITNESS: &str = r#"
#include <string.h>
#include <yonder_guide.h>
struct state { uint64_t started, touches; };
static void say(const struct yonder_reach *reach, uint64_t number) { reach->prefetch(reach->context, number, 1); }
static void start(void *memory) { struct state *state = memory; state->started += 7; }
static int touched(void *memory, const struct yonder_touch *touch, const struct yonder_reach *reach) {
    struct state *state = memory;
    state->touches++;
    say(reach, state->started); say(reach, state->touches); say(reach, touch->cause); say(reach, touch->address);
    for (uint32_t i = 0; i < touch->register_count; i++) say(reach, touch->registers[i]);
    for (uint64_t i = 0; i < touch->history_count; i++) say(reach, touch->history[i]);
    say(reach, touch->payoff.fetched_pages); say(reach, touch->payoff.hits); say(reach, touch->payoff.unused_pages);
    uint64_t word = 99;
    int reading = reach->read(reach->context, touch->address, &word, 8, touch->address + 1);
    say(reach, (uint64_t)reading); say(reach, word);
    word = 98;
    int is_here = reach->peek(reach->context, touch->address, &word, 8);
    say(reach, (uint64_t)is_here); say(reach, word);
    return touch->cause == YONDER_HIT ? YONDER_KNOWN : YONDER_UNKNOWN;
}
static void arrived(void *memory, const struct yonder_arrived *arrived, const struct yonder_reach *reach) {
    struct state *state = memory;
    uint64_t word;
    memcpy(&word, arrived->bytes, 8);
    say(reach, state->touches); say(reach, arrived->address); say(reach, word); say(reach, arrived->count); say(reach, arrived->note);
}
const struct yonder_guide yonder_guide = {
    YONDER_GUIDE_VERSION, sizeof(struct yonder_guide), "witness", sizeof(struct state), start, touched, arrived,
};
"#;

fn said(reach: &mut FakeReach) -> Vec<u64> {
    reach.prefetched.drain(..).map(|range| range.start).collect()
}

#[test]
fn a_guide_in_c_is_told_everything_and_can_do_everything() {
    if !has("cc") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let loaded = Loaded::open(&library(folder.path(), "witness", WITNESS)).unwrap();
    assert_eq!(loaded.name(), "witness");
    let make = loaded.maker();
    let (mut one, mut other) = (make(), make());
    let mut reach = FakeReach::default();
    reach.put(0x5000, &[41]);
    reach.put(0x9000, &[43]);
    reach.make_far(0x9000..0xa000);

    let payoff = Payoff { fetched_pages: 51, hits: 52, unused_pages: 53 };
    let miss = Touch { cause: Cause::Miss, address: 0x5000, registers: &[31, 32, 33], history: &[21, 22], payoff };
    assert_eq!(one.touched(&miss, &mut reach), Verdict::Unknown);
    assert_eq!(said(&mut reach), [7, 1, 0, 0x5000, 31, 32, 33, 21, 22, 51, 52, 53, 0, 41, 1, 41]);

    let hit = Touch { cause: Cause::Hit, address: 0x9000, registers: &[], history: &[], payoff };
    assert_eq!(one.touched(&hit, &mut reach), Verdict::Known);
    assert_eq!(said(&mut reach), [7, 2, 1, 0x9000, 51, 52, 53, 1, 99, 0, 98], "what is coming is not there yet");
    assert!(reach.deliver(&mut *one));
    assert_eq!(said(&mut reach), [2, 0x9000, 43, 8, 0x9001]);

    // Each has a state of its own, which is made anew.
    assert_eq!(other.touched(&miss, &mut reach), Verdict::Unknown);
    assert_eq!(said(&mut reach)[..2], [7, 1]);
}

#[test]
fn the_reach_of_c_refuses_what_cannot_be() {
    const GREEDY: &str = r#"
#include <yonder_guide.h>
static int touched(void *memory, const struct yonder_touch *touch, const struct yonder_reach *reach) {
    char room[300];
    (void)memory;
    if (reach->read(reach->context, touch->address, room, 257, 0) != YONDER_REFUSED) return 2;
    if (reach->read(reach->context, touch->address, room, 0, 0) != YONDER_REFUSED) return 2;
    if (reach->read(reach->context, touch->address, NULL, 8, 0) != YONDER_REFUSED) return 2;
    if (reach->read(reach->context, touch->address, room, UINT64_MAX, 0) != YONDER_REFUSED) return 2;
    if (reach->read(reach->context, touch->address + 4000, room, 200, 0) != YONDER_REFUSED) return 2;
    if (reach->read(reach->context, touch->address, room, 256, 0) != YONDER_DONE) return 2;
    if (reach->peek(reach->context, touch->address, room, 257) != 0) return 2;
    if (reach->peek(reach->context, touch->address, NULL, 8) != 0) return 2;
    if (reach->peek(reach->context, touch->address, room, 256) != 1) return 2;
    if (reach->prefetch(reach->context, touch->address, 0) != 0) return 2;
    if (reach->prefetch(reach->context, UINT64_MAX, 2) != 0) return 2;
    if (reach->prefetch(reach->context, touch->address, 8192) != 1) return 2;
    if (reach->prefetch(reach->context, touch->address, 4096) != 0) return 2;
    return YONDER_KNOWN;
}
const struct yonder_guide yonder_guide = { YONDER_GUIDE_VERSION, sizeof(struct yonder_guide), "greedy", 0, NULL, touched, NULL };
"#;
    if !has("cc") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut guide = Loaded::open(&library(folder.path(), "greedy", GREEDY)).unwrap().maker()();
    let mut reach = FakeReach::default();
    reach.room = Some(2);
    let touch = Touch { cause: Cause::Miss, address: 0x7000, registers: &[], history: &[], payoff: Payoff::default() };
    assert_eq!(guide.touched(&touch, &mut reach), Verdict::Known);
    assert_eq!(reach.prefetched.len(), 1);
    // Without a state, a start and an `arrived` there is nothing to call.
    guide.arrived(&Arrived { address: 0x7000, bytes: &[0; 8], note: 0 }, &mut reach);
}

#[test]
fn a_state_is_zeros_at_a_multiple_of_sixteen() {
    const PICKY: &str = r#"
#include <yonder_guide.h>
struct state { unsigned char bytes[1000]; };
static int touched(void *memory, const struct yonder_touch *touch, const struct yonder_reach *reach) {
    struct state *state = memory;
    (void)touch, (void)reach;
    for (int i = 0; i < 1000; i++) if (state->bytes[i] != 0) return YONDER_UNKNOWN;
    for (int i = 0; i < 1000; i++) state->bytes[i] = 0xff;
    return (uintptr_t)memory % 16 == 0 ? YONDER_KNOWN : YONDER_UNKNOWN;
}
const struct yonder_guide yonder_guide = {
    YONDER_GUIDE_VERSION, sizeof(struct yonder_guide), "picky", sizeof(struct state), NULL, touched, NULL };
"#;
    if !has("cc") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let make = Loaded::open(&library(folder.path(), "picky", PICKY)).unwrap().maker();
    let touch = Touch { cause: Cause::Miss, address: 0x7000, registers: &[], history: &[], payoff: Payoff::default() };
    for _ in 0..20 {
        assert_eq!(make().touched(&touch, &mut FakeReach::default()), Verdict::Known);
    }
}

/// A guide whose description has these fields.
fn described(fields: &str) -> String {
    format!(
        "#include <yonder_guide.h>\n\
         int touched(void *, const struct yonder_touch *, const struct yonder_reach *);\n\
         int touched(void *a, const struct yonder_touch *b, const struct yonder_reach *c) {{ (void)a, (void)b, (void)c; return 0; }}\n\
         const struct yonder_guide yonder_guide = {{ {fields} }};\n"
    )
}

#[test]
fn what_is_no_guide_is_refused_and_said_in_one_line() {
    if !has("cc") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let refused = |path: &Path, why: &str| {
        let error = Loaded::open(path).expect_err(why);
        let line = error.to_string();
        assert!(line.contains(why) && !line.contains('\n'), "{line}");
        assert!(line.contains(path.to_str().unwrap()), "{line}");
        error
    };
    let missing = folder.join("gone.so");
    assert_eq!(refused(&missing, "there is no guide at"), PluginError::Missing(missing.clone()));
    refused(folder, "there is no guide at");
    let text = folder.join("text.so");
    std::fs::write(&text, "no library\n").unwrap();
    assert!(matches!(refused(&text, "cannot be loaded"), PluginError::NotLoadable { .. }));
    let other = library(folder, "other", "extern int other;\nint other = 1;\n");
    assert!(matches!(refused(&other, "no symbol yonder_guide"), PluginError::NoGuide(_)));
    let unbound = library(
        folder,
        "unbound",
        "int gone(void);\n__attribute__((visibility(\"default\"))) int f(void);\nint f(void) { return gone(); }\n",
    );
    assert!(matches!(refused(&unbound, "undefined symbol"), PluginError::NotLoadable { .. }));

    const SIZE: &str = "sizeof(struct yonder_guide)";
    let wrong = [
        ("v2", format!("2, {SIZE}, \"x\", 0, NULL, touched, NULL"), "version 2 of the interface"),
        ("v0", format!("0, {SIZE}, \"x\", 0, NULL, touched, NULL"), "version 0 of the interface"),
        ("small", format!("1, {SIZE} - 1, \"x\", 0, NULL, touched, NULL"), "47 bytes instead of 48"),
        ("huge", "1, 4097, \"x\", 0, NULL, touched, NULL".to_owned(), "4097 bytes instead of 48"),
        ("state", format!("1, {SIZE}, \"x\", 1048577, NULL, touched, NULL"), "a state of 1048577 bytes"),
        ("idle", format!("1, {SIZE}, \"x\", 0, NULL, NULL, NULL"), "no function touched"),
        ("unnamed", format!("1, {SIZE}, NULL, 0, NULL, touched, NULL"), "no name"),
        ("nameless", format!("1, {SIZE}, \"\", 0, NULL, touched, NULL"), "no name"),
    ];
    for (name, fields, why) in wrong {
        refused(&library(folder, name, &described(&fields)), why);
    }
    let grown = described(&format!("1, {SIZE} + 8, \"x\", 1048576, NULL, touched, NULL"));
    assert_eq!(Loaded::open(&library(folder, "grown", &grown)).unwrap().name(), "x");
}
