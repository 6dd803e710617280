//! Programs in C whose light threads yield on page faults.
//!
//! UNSAFETY: contexts of the C library, to run a function on another stack.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use yonder::{Config, FarMemory, Region, threads};

use crate::far::{MIB, ready, with_node};
use crate::toolchain::{file, succeed};

/// Emulated memory that is slow enough for many to wait at a time.
const SLOW: &str = "emu://?latency=50us&gbps=100";

#[test]
fn light_threads_do_what_the_header_says() {
    let Some(toolchain) = ready() else { return };
    let program = toolchain.build(&file("tests/interface/threads.c"));
    let run = |url: &str| {
        for workers in ["1", "2"] {
            let said = succeed(Command::new(&program).args([url, workers])).stdout;
            assert_eq!(String::from_utf8_lossy(&said), "done\n");
        }
    };
    run(SLOW);
    with_node(&toolchain, 128 * MIB, run);
}

#[test]
fn a_stack_that_overflows_ends_the_program_with_one_line() {
    let Some(toolchain) = ready() else { return };
    let program = toolchain.build(&file("tests/interface/threads.c"));
    for how in ["overflow", "step"] {
        let output = Command::new(&program).args([SLOW, how]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.signal(), said.lines().count()), (Some(11), 1), "{how}: {said}");
        assert!(said.contains("overflowed its stack"), "{how}: {said}");
    }
}

/// Reads look at the page's entry first, and wait without a trap.
#[test]
fn reads_on_another_stack_wait_there() {
    const PAGES: u64 = 4096;
    static REGION: OnceLock<Region> = OnceLock::new();
    static SUM: AtomicU64 = AtomicU64::new(0);
    extern "C" fn add_up() {
        let region = REGION.get().unwrap();
        SUM.store((0..PAGES).map(|page| region.read_u64(page << 12).unwrap()).sum(), Ordering::Relaxed);
    }
    if ready().is_none() {
        return;
    }
    let far = FarMemory::open("emu://?latency=5us&size=64MiB", Config::with_local(4 * MIB)).unwrap();
    let region = REGION.get_or_init(|| far.region(PAGES << 12).unwrap());
    (0..PAGES).for_each(|page| region.write_u64(page << 12, page).unwrap());
    let on_another = || {
        let mut stack = vec![0u8; 256 << 10];
        // SAFETY: all zeros is a valid context; the stack and both contexts outlive the visit, which ends here.
        unsafe {
            let (mut here, mut there): (libc::ucontext_t, libc::ucontext_t) = (std::mem::zeroed(), std::mem::zeroed());
            assert_eq!(libc::getcontext(&raw mut there), 0);
            there.uc_stack.ss_sp = stack.as_mut_ptr().cast();
            there.uc_stack.ss_size = stack.len();
            there.uc_link = &raw mut here;
            libc::makecontext(&raw mut there, add_up, 0);
            assert_eq!(libc::swapcontext(&raw mut here, &raw const there), 0);
        }
    };
    threads::run(&threads::Config::default(), &far, on_another).unwrap();
    assert_eq!(SUM.load(Ordering::Relaxed), PAGES * (PAGES - 1) / 2);
}

#[test]
fn ranks_are_the_same_however_many_compute_them() {
    let Some(toolchain) = ready() else { return };
    let program = toolchain.build(&file("examples/pagerank.c"));
    let run = |url: &str, more: &[&str]| {
        let said = succeed(Command::new(&program).args([url, "15"]).args(more)).stdout;
        String::from_utf8(said).unwrap().lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let alone = run(SLOW, &["100", "0"]);
    assert!(alone[1].contains(" 0 pages were waited for"), "{alone:?}");
    for more in [&["50", "0"][..], &["50", "64"], &["50", "64", "2"]] {
        let said = run(SLOW, more);
        assert_eq!(said[0], alone[0], "{more:?}");
        assert!(!said[1].contains(" 0 pages were waited for"), "{said:?}");
    }
    with_node(&toolchain, 64 * MIB, |url| assert_eq!(run(url, &["50"])[0], alone[0]));
}

/// A cache that ends with the test.
struct Cache {
    process: Child,
    port: u16,
}

impl Cache {
    fn start(program: &std::path::Path, workers: &str) -> Self {
        let mut command = Command::new(program);
        command.args(["127.0.0.1:0", SLOW, "64", "4", workers]).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.trim().strip_prefix("listening on port ").and_then(|port| port.parse().ok());
        Self { process, port: port.unwrap_or_else(|| panic!("'{line}'")) }
    }

    fn client(&self) -> BufReader<TcpStream> {
        BufReader::new(TcpStream::connect(("127.0.0.1", self.port)).unwrap())
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Sends a request, and returns as many bytes of answers as are wanted.
fn ask(client: &mut BufReader<TcpStream>, request: &[u8], answer: &[u8]) {
    client.get_mut().write_all(request).unwrap();
    let mut got = vec![0; answer.len()];
    client.read_exact(&mut got).unwrap();
    let (got, wanted) = (String::from_utf8_lossy(&got), String::from_utf8_lossy(answer));
    assert!(got == wanted, "'{}' was answered with '{got:.200}', not '{wanted:.200}'", request.escape_ascii());
}

#[test]
fn a_cache_of_light_threads_keeps_what_it_is_given() {
    const KEYS: usize = 400;
    let Some(toolchain) = ready() else { return };
    let program = toolchain.build(&file("examples/cache.c"));
    let value =
        |client: usize, key: usize| vec![b'a' + (client * 7 + key) as u8 % 26; (client * 977 + key * 61) % 12_000];
    for workers in ["1", "2"] {
        let cache = Cache::start(&program, workers);
        std::thread::scope(|scope| {
            for client in 0..8 {
                let cache = &cache;
                scope.spawn(move || {
                    let mut stream = cache.client();
                    for key in 0..KEYS {
                        let value = value(client, key);
                        let head = format!("set {client}:{key} {key} 0 {}\r\n", value.len());
                        ask(&mut stream, &[head.as_bytes(), &value, b"\r\n"].concat(), b"STORED\r\n");
                    }
                    for key in (0..KEYS).rev() {
                        let value = value(client, key);
                        let head = format!("VALUE {client}:{key} {key} {}\r\n", value.len());
                        let answer = [head.as_bytes(), &value, b"\r\nEND\r\n"].concat();
                        ask(&mut stream, format!("get {client}:{key} none\r\n").as_bytes(), &answer);
                    }
                });
            }
        });
        let mut stream = cache.client();
        stream.get_mut().write_all(b"stats\r\n").unwrap();
        let lines: Vec<String> = stream.by_ref().lines().map(Result::unwrap).take_while(|line| line != "END").collect();
        let stat = |name: &str| {
            let value = lines.iter().find_map(|line| line.strip_prefix(&format!("STAT {name} "))).unwrap();
            value.parse::<u64>().unwrap()
        };
        assert_eq!(stat("curr_items"), 8 * KEYS as u64);
        assert_eq!((stat("cmd_get"), stat("get_hits")), (16 * KEYS as u64, 8 * KEYS as u64));
        assert!(stat("pages_waited_for") > 100 && stat("local_bytes") <= 4 << 20, "{lines:?}");
    }
}

#[test]
fn a_cache_answers_as_memcached_does() {
    let Some(toolchain) = ready() else { return };
    let cache = Cache::start(&toolchain.build(&file("examples/cache.c")), "1");
    let mut stream = cache.client();
    for (request, answer) in [
        ("add a 1 0 1\r\nx\r\nadd a 1 0 1\r\ny\r\n", "STORED\r\nNOT_STORED\r\n"),
        ("replace b 0 0 1\r\nx\r\nreplace a 2 0 2\r\nyz\r\n", "NOT_STORED\r\nSTORED\r\n"),
        ("get a\r\ngets a\r\n", "VALUE a 2 2\r\nyz\r\nEND\r\nVALUE a 2 2 0\r\nyz\r\nEND\r\n"),
        ("set a 0 0 0 noreply\r\n\r\nget a\r\n", "VALUE a 0 0\r\n\r\nEND\r\n"),
        ("delete a\r\ndelete a\r\ndelete a noreply\r\nget a\r\n", "DELETED\r\nNOT_FOUND\r\nEND\r\n"),
        ("set a 0 0 x\r\n", "CLIENT_ERROR bad command line format\r\n"),
        ("set a 0 0 18446744073709551615\r\n", "CLIENT_ERROR bad command line format\r\n"),
        ("set a 0 -1 1\r\nset a 0 0 +1\r\n", &"CLIENT_ERROR bad command line format\r\n".repeat(2)),
        ("set a 0 0 1\r\nlong\r\n", "CLIENT_ERROR bad data chunk\r\nERROR\r\n"),
        ("nonsense\r\n\r\n", "ERROR\r\nERROR\r\n"),
        ("version\r\n", "VERSION yonder-cache\r\n"),
    ] {
        ask(&mut stream, request.as_bytes(), answer.as_bytes());
    }
    let long = "k".repeat(251);
    ask(&mut stream, format!("get {long}\r\n").as_bytes(), b"END\r\n");
    let large = [&b"set a 0 0 2000000\r\n"[..], &vec![b'x'; 2_000_000], b"\r\n"].concat();
    ask(&mut stream, &large, b"SERVER_ERROR object too large for cache\r\n");
    // It is far larger than what is read at once, and nothing comes after it.
    let value = vec![b'y'; 1 << 20];
    let head = format!("set a 0 0 {}\r\n", value.len());
    ask(&mut stream, &[head.as_bytes(), &value, b"\r\n"].concat(), b"STORED\r\n");
    let head = format!("VALUE a 0 {}\r\n", value.len());
    ask(&mut stream, b"get a\r\nquit\r\n", &[head.as_bytes(), &value, b"\r\nEND\r\n"].concat());
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
}
