//! [`Symbols`]: what an address in a process's code is: function, module and line, as far as the files say.
//!
//! Programs of distributions are stripped: what is left are the functions that they export, which have a length, and
//! where each function begins (`.eh_frame`). An address in none of the former is named by the latter. The C library's
//! fastest string functions have no name at all then; the process has told what it has chosen for them. Where files
//! with debug information are installed they are used.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use addr2line::{Context, demangle_auto};
use gimli::{BaseAddresses, CieOrFde, Dwarf, EhFrame, EndianRcSlice, LittleEndian, SectionId, UnwindSection as _};
use object::read::elf::{ElfFile64, ElfSymbol64};
use object::{Object as _, ObjectSection as _, ObjectSegment as _, ObjectSymbol as _, SymbolKind};
use yonder_preload_protocol::Modules;

/// Where distributions put files with debug information, by the file's identity.
const DEBUG_FOLDER: &str = "/usr/lib/debug/.build-id";
/// Functions before an address that are looked at for one that reaches it.
const LOOK_BACK: usize = 16;

/// A file of one of the machines that Yonder runs on.
type Elf<'a> = ElfFile64<'a, object::LittleEndian>;
/// The lines of a file's code.
type Lines = Context<EndianRcSlice<LittleEndian>>;

/// What is known of an address.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Named {
    /// Such as `merge+0x3f (sort)`.
    pub(super) name: String,
    /// Such as `merge.c:71`; empty if it is not known.
    pub(super) line: String,
}

/// What files say of their code. Each is read once.
#[derive(Default)]
pub(super) struct Symbols {
    files: HashMap<String, Option<Code>>,
}

impl Symbols {
    /// What the code at `address` of a process is.
    pub(super) fn name(&mut self, modules: &Modules, address: u64) -> Named {
        let Some(module) = modules.find(address) else {
            return Named { name: format!("{address:#x}"), line: String::new() };
        };
        let file = Path::new(&module.path).file_name().unwrap_or(module.path.as_ref()).to_string_lossy();
        let code = self.files.entry(module.path.clone()).or_insert_with(|| Code::read(Path::new(&module.path)));
        let in_file = address - module.addresses.start + module.offset;
        let Some((code, virtual_address)) = code.as_ref().and_then(|code| Some((code, code.virtual_address(in_file)?)))
        else {
            return Named { name: format!("{in_file:#x} ({file})"), line: String::new() };
        };
        let is_at = |start: u64| start.wrapping_add(address).wrapping_sub(virtual_address);
        let (function, start) = match (code.function(virtual_address), code.frame(virtual_address)) {
            (Some(function), _) => (function.name.clone(), function.addresses.start),
            (None, Some(start)) => (chosen(modules, is_at(start)).unwrap_or_else(|| format!("{start:#x}")), start),
            (None, None) => (String::new(), 0),
        };
        let plus = if function.is_empty() { "" } else { "+" };
        let name = format!("{function}{plus}{:#x} ({file})", virtual_address - start);
        Named { name, line: code.line(virtual_address).unwrap_or_default() }
    }
}

/// The names of what the linker has chosen, if it is at `address`.
fn chosen(modules: &Modules, address: u64) -> Option<String> {
    let names: Vec<&str> =
        modules.chosen.iter().filter(|(at, _)| *at == address).map(|(_, name)| name.as_str()).collect();
    (!names.is_empty()).then(|| names.join("/"))
}

/// A function that a file names.
struct Function {
    addresses: Range<u64>,
    name: String,
}

/// The code of a file. Addresses are as the file has them.
struct Code {
    /// Parts of the file, and the address of each.
    segments: Vec<(Range<u64>, u64)>,
    /// By their beginnings; of those that begin together, the plainest name is last.
    functions: Vec<Function>,
    /// Where functions are, by their beginnings, with or without names.
    frames: Vec<Range<u64>>,
    /// Of the file, and of that with its debug information.
    lines: Vec<Lines>,
}

impl Code {
    fn read(path: &Path) -> Option<Self> {
        let bytes = std::fs::read(path).ok()?;
        let file = Elf::parse(&*bytes).ok()?;
        let segments = file.segments().map(|segment| {
            let (start, bytes) = segment.file_range();
            (start..start + bytes, segment.address())
        });
        let mut functions = functions(&file);
        let mut lines = Vec::from_iter(lines(&file));
        if let Some(debug) = debug_file(&file).and_then(|path| std::fs::read(path).ok())
            && let Ok(debug) = Elf::parse(&*debug)
        {
            functions.extend(self::functions(&debug));
            lines.extend(self::lines(&debug));
        }
        functions.sort_by(|one, other| order(one).cmp(&order(other)));
        Some(Self { segments: segments.collect(), functions, frames: frames(&file), lines })
    }

    fn virtual_address(&self, in_file: u64) -> Option<u64> {
        let (part, address) = self.segments.iter().find(|(part, _)| part.contains(&in_file))?;
        Some(in_file - part.start + address)
    }

    /// The function that an address is in.
    fn function(&self, address: u64) -> Option<&Function> {
        let behind = self.functions.partition_point(|function| function.addresses.start <= address);
        self.functions[..behind].iter().rev().take(LOOK_BACK).find(|function| function.addresses.contains(&address))
    }

    /// Where the function begins that an address is in.
    fn frame(&self, address: u64) -> Option<u64> {
        let behind = self.frames.partition_point(|frame| frame.start <= address);
        let frame = self.frames[..behind].last()?;
        frame.contains(&address).then_some(frame.start)
    }

    fn line(&self, address: u64) -> Option<String> {
        self.lines.iter().find_map(|lines| {
            let location = lines.find_location(address).ok()??;
            let file = Path::new(location.file?).file_name()?.to_string_lossy().into_owned();
            Some(location.line.filter(|line| *line > 0).map_or_else(|| file.clone(), |line| format!("{file}:{line}")))
        })
    }
}

/// Functions in the order in which they are kept.
fn order(function: &Function) -> (u64, std::cmp::Reverse<(usize, usize, &str)>) {
    let name = function.name.as_str();
    let underscores = name.len() - name.trim_start_matches('_').len();
    (function.addresses.start, std::cmp::Reverse((underscores, name.len(), name)))
}

/// The functions of a file with a name and a length.
fn functions(file: &Elf<'_>) -> Vec<Function> {
    let symbols = file.symbols().chain(file.dynamic_symbols());
    let functions = symbols.filter(|symbol| {
        symbol.is_definition() && symbol.size() > 0 && matches!(symbol.kind(), SymbolKind::Text | SymbolKind::Unknown)
    });
    let function = |symbol: ElfSymbol64<'_, '_, object::LittleEndian>| {
        let name = demangle_auto(Cow::Borrowed(symbol.name().ok()?), None).into_owned();
        Some(Function { addresses: symbol.address()..symbol.address() + symbol.size(), name })
    };
    functions.filter_map(function).collect()
}

/// Where functions are, from what unwinding needs.
fn frames(file: &Elf<'_>) -> Vec<Range<u64>> {
    let Some(section) = file.section_by_name(".eh_frame") else { return Vec::new() };
    let Ok(bytes) = section.uncompressed_data() else { return Vec::new() };
    let eh_frame = EhFrame::new(&bytes, LittleEndian);
    let bases = BaseAddresses::default().set_eh_frame(section.address());
    let mut entries = eh_frame.entries(&bases);
    let mut frames = Vec::new();
    while let Ok(Some(entry)) = entries.next() {
        if let CieOrFde::Fde(partial) = entry
            && let Ok(frame) = partial.parse(EhFrame::cie_from_offset)
        {
            frames.push(frame.initial_address()..frame.initial_address() + frame.len());
        }
    }
    frames.sort_by_key(|frame| frame.start);
    frames
}

/// The lines of a file's code, as far as it has them.
fn lines(file: &Elf<'_>) -> Option<Lines> {
    let section = |id: SectionId| {
        // What lines are found with; the others, with types and variables, may be large.
        let is_needed = matches!(
            id,
            SectionId::DebugAbbrev
                | SectionId::DebugAddr
                | SectionId::DebugAranges
                | SectionId::DebugInfo
                | SectionId::DebugLine
                | SectionId::DebugLineStr
                | SectionId::DebugRanges
                | SectionId::DebugRngLists
                | SectionId::DebugStr
                | SectionId::DebugStrOffsets
        );
        let found = file.section_by_name(id.name()).filter(|_| is_needed);
        let bytes = found.and_then(|section| section.uncompressed_data().ok()).unwrap_or_default();
        Ok::<_, gimli::Error>(EndianRcSlice::new(Rc::from(&*bytes), LittleEndian))
    };
    Context::from_dwarf(Dwarf::load(section).ok()?).ok()
}

/// The file that has the debug information of another.
fn debug_file(file: &Elf<'_>) -> Option<PathBuf> {
    let id = file.build_id().ok()??;
    let (first, rest) = id.split_first()?;
    let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
    Some(Path::new(DEBUG_FOLDER).join(format!("{first:02x}")).join(rest + ".debug"))
}

/// The name of a module's file.
pub(super) fn program_name(modules: &Modules) -> String {
    let path = Path::new(&modules.program);
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use yonder_preload_protocol::Module;

    use super::*;

    /// This process's code.
    fn here(chosen: Vec<(u64, String)>) -> Modules {
        let mut modules = Modules::of_this_process(chosen);
        modules.look().unwrap();
        modules
    }

    #[inline(never)]
    fn a_function_of_this_name() -> u32 {
        std::hint::black_box(line!())
    }

    #[test]
    fn functions_have_their_names_and_lines() {
        let address = a_function_of_this_name as *const () as u64;
        let named = Symbols::default().name(&here(Vec::new()), address);
        let program = program_name(&here(Vec::new()));
        assert!(
            named.name.ends_with(&format!("::symbols::tests::a_function_of_this_name+0x0 ({program})")),
            "{named:?}"
        );
        // Its first instruction may be of something that was inlined.
        let line = named.line.split_once(".rs:").and_then(|(_, line)| line.parse::<u32>().ok());
        assert!(line.is_some() && a_function_of_this_name() > 0, "{named:?}");
    }

    #[test]
    fn a_function_that_was_chosen_has_its_name() {
        let libc = here(Vec::new()).modules.into_iter().find(|module| module.path.contains("libc.so")).unwrap();
        let code = Code::read(Path::new(&libc.path)).unwrap();
        let nameless = code.frames.iter().find(|frame| code.function(frame.start).is_none());
        let Some(frame) = nameless else { return println!("SKIP: every function of the C library has a name here") };
        let is_of =
            |(part, address): &&(Range<u64>, u64)| (*address..address + (part.end - part.start)).contains(&frame.start);
        let (part, address) = code.segments.iter().find(is_of).unwrap();
        let modules = Modules {
            chosen: vec![(0x1000 + frame.start, "memcpy".into()), (0x1000 + frame.start, "memmove".into())],
            modules: vec![Module {
                addresses: 0x1000 + address..0x1000 + address + (part.end - part.start),
                offset: part.start,
                path: libc.path.clone(),
            }],
            ..Modules::default()
        };
        let named = Symbols::default().name(&modules, 0x1000 + frame.start + 1);
        assert!(named.name.starts_with("memcpy/memmove+0x1 (libc.so"), "{named:?}");
        let unknown = Modules { chosen: Vec::new(), ..modules };
        let named = Symbols::default().name(&unknown, 0x1000 + frame.start + 1);
        assert!(named.name.starts_with(&format!("{:#x}+0x1 (libc.so", frame.start)), "{named:?}");
    }

    #[test]
    fn what_has_no_file_has_its_address() {
        let modules = Modules {
            modules: vec![
                Module { addresses: 0x1000..0x2000, offset: 0, path: "[made at run time]".into() },
                Module { addresses: 0x3000..0x4000, offset: 0x500, path: "/tmp/gone.so (deleted)".into() },
            ],
            ..Modules::default()
        };
        let names = [0x1234, 0x3010, 0x9999].map(|address| Symbols::default().name(&modules, address).name);
        assert_eq!(names, ["0x234 ([made at run time])", "0x510 (gone.so (deleted))", "0x9999"]);
    }
}
