//! The array in memory that the kernel pages: ordinary memory, which it swaps, or a file that is mapped; read by
//! threads that make their requests themselves.
//!
//! This is what a process of `bench peers` does in its limited group. It says that it is ready, and begins when it is
//! answered, so that its group can be told by then what it takes without the array. As in `array`, a run warms up, is
//! measured and drains; a request counts by its intended start. In an open loop the threads share one queue: whoever is
//! free takes the next request, and waits for its time while the others sleep. That costs less than a dispatcher, so
//! the kernel's ways are not made slower by theirs.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufWriter, Write as _};
use std::iter::Peekable;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use clap::Args;
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use yonder::clock;
use yonder::units::{Nanos, PAGE_BYTES, pages_for, parse_bytes};
use yonder_load::{Distribution, KeyChooser, LatencyRecorder, PoissonArrivals, Rate};
use yonder_mapping::{MapError, Mapping};

use crate::array::{LINES, value_at};
use crate::children::faults;
use crate::comparison::Measured;
use crate::flags::{positive_count, positive_duration};
use crate::{BenchError, Counts};

/// What such a process says before it takes memory for the array, and what it is answered.
pub(super) const READY: &str = "ready";
/// Part of a run's time that comes before it, unmeasured.
const WARM_UP_SHARE: u32 = 4;

/// What such a process does.
#[derive(Clone, PartialEq, Debug, Args)]
pub struct ResidentTask {
    /// Size of the array in bytes
    #[arg(long, value_parser = parse_bytes)]
    pub memory: u64,
    /// The new file that it is in; ordinary memory if none is named
    #[arg(long)]
    pub file: Option<PathBuf>,
    /// Threads that read it
    #[arg(long, value_parser = positive_count)]
    pub threads: usize,
    /// How fast requests are started
    #[arg(long)]
    pub rate: Rate,
    /// Measured time; a warm-up of a quarter of it comes before, and a drain of at most as much after
    #[arg(long, value_parser = positive_duration)]
    pub duration: Duration,
}

/// Does the task, and prints what has come of it as JSON. The process says `READY` first, and waits for a line.
pub fn run_resident(task: &ResidentTask) -> Result<(), BenchError> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{READY}").and_then(|()| out.flush())?;
    if std::io::stdin().lock().read_line(&mut String::new())? == 0 {
        return Err(BenchError::Child("nobody answers".to_owned()));
    }
    let measured = measure(task)?;
    let text = serde_json::to_string(&measured).map_err(std::io::Error::from)?;
    Ok(writeln!(out, "{text}")?)
}

fn measure(task: &ResidentTask) -> Result<Measured, BenchError> {
    let pages = pages_for(task.memory).max(1);
    let array = match &task.file {
        Some(path) => in_file(path, pages)?,
        None => in_memory(pages)?,
    };
    let started = clock::now();
    let (duration, warm_up) = (nanos(task.duration), nanos(task.duration / WARM_UP_SHARE));
    let end = started + warm_up + duration;
    let in_order = |rate| Mutex::new(PoissonArrivals::new(rate, started, 7).peekable());
    let arrivals = task.rate.per_second().map(in_order);
    let reading =
        Reading { array: &array, pages, arrivals, measure_from: started + warm_up, end, give_up: end + warm_up };
    let (mut reads, counted) = std::thread::scope(|scope| {
        let shared = &reading;
        let readers = (0..task.threads as u64).map(|number| scope.spawn(move || shared.read(number)));
        let readers: Vec<_> = readers.collect();
        sleep_until(reading.measure_from);
        let before = counted(task.file.is_some());
        sleep_until(reading.end);
        let counted = counted(task.file.is_some()).since(before);
        let all = readers.into_iter().map(|reader| reader.join().expect("a reader does not panic"));
        (all.fold(Reads::default(), Reads::with), counted)
    });
    reading.give_up_the_rest(clock::now(), &mut reads);
    let latency = reads.latency.summary();
    Ok(Measured {
        ops_per_s: reads.in_time as f64 / task.duration.as_secs_f64(),
        p50_us: latency.p50_us,
        p99_us: latency.p99_us,
        p999_us: latency.p999_us,
        counts: Counts { errors: reads.wrong, ..counted },
        dropped: reads.dropped,
        group_bytes: None,
    })
}

/// The array in ordinary memory.
fn in_memory(pages: u64) -> Result<Mapping, BenchError> {
    let array = Mapping::anonymous(pages as usize * PAGE_BYTES).map_err(unmapped)?;
    for page in 0..pages {
        array.write(page * PAGE_BYTES as u64, &content(page));
    }
    Ok(array)
}

/// The array in a new file, mapped and in no order.
fn in_file(path: &Path, pages: u64) -> Result<Mapping, BenchError> {
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
    fill(&file, pages)?;
    let array = Mapping::shared(file.as_fd(), pages as usize * PAGE_BYTES).map_err(unmapped)?;
    array.expect_random_order().map_err(unmapped)?;
    Ok(array)
}

fn fill(file: &File, pages: u64) -> std::io::Result<()> {
    let mut writer = BufWriter::with_capacity(1 << 20, file);
    for page in 0..pages {
        writer.write_all(&content(page))?;
    }
    writer.flush()?;
    // Pages that the disk has can be dropped.
    file.sync_all()
}

/// What a page of the array is filled with.
fn content(page: u64) -> [u8; PAGE_BYTES] {
    let mut content = [0; PAGE_BYTES];
    for line in 0..LINES {
        let place = (line * 64) as usize;
        content[place..place + 8].copy_from_slice(&value_at(page * PAGE_BYTES as u64 + line * 64).to_ne_bytes());
    }
    content
}

/// What the readers share.
struct Reading<'a> {
    array: &'a Mapping,
    pages: u64,
    /// Intended starts of an open loop that nobody has taken.
    arrivals: Option<Mutex<Peekable<PoissonArrivals>>>,
    measure_from: Nanos,
    end: Nanos,
    /// What has not been taken by then is not read any more.
    give_up: Nanos,
}

/// What a reader has seen.
#[derive(Default)]
struct Reads {
    latency: LatencyRecorder,
    in_time: u64,
    dropped: u64,
    wrong: u64,
}

impl Reading<'_> {
    fn read(&self, seed: u64) -> Reads {
        let mut pages = KeyChooser::new(self.pages, Distribution::Uniform, seed);
        let (mut random, mut reads) = (SmallRng::seed_from_u64(!seed), Reads::default());
        while let Some(intended) = self.next() {
            let offset = pages.next_key() * PAGE_BYTES as u64 + random.random_range(0..LINES) * 64;
            let is_right = self.array.load_u64(offset) == value_at(offset);
            let now = clock::now();
            reads.wrong += u64::from(!is_right);
            reads.in_time += u64::from((self.measure_from..self.end).contains(&now));
            if self.measures(intended) {
                reads.latency.record(now - intended);
            }
        }
        reads
    }

    /// The intended start of the next request, when it has come.
    fn next(&self) -> Option<Nanos> {
        let now = clock::now();
        let Some(arrivals) = &self.arrivals else { return (now < self.end).then_some(now) };
        let mut arrivals = arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        if clock::now() >= self.give_up {
            return None;
        }
        let intended = arrivals.next_if(|intended| *intended < self.end)?;
        while clock::now() < intended {
            std::hint::spin_loop();
        }
        Some(intended)
    }

    fn measures(&self, intended: Nanos) -> bool {
        (self.measure_from..self.end).contains(&intended)
    }

    /// Counts what nobody has taken until `now` as dropped, and the time that it has waited as its latency, which is at
    /// least that.
    fn give_up_the_rest(self, now: Nanos, reads: &mut Reads) {
        let end = self.end;
        let Some(arrivals) = self.arrivals else { return };
        let arrivals = arrivals.into_inner().unwrap_or_else(PoisonError::into_inner);
        for intended in arrivals.take_while(|intended| *intended < end).filter(|at| *at >= self.measure_from) {
            reads.dropped += 1;
            reads.latency.record(now.saturating_sub(intended));
        }
    }
}

impl Reads {
    fn with(mut self, other: Self) -> Self {
        self.latency.merge(&other.latency);
        Self {
            latency: self.latency,
            in_time: self.in_time + other.in_time,
            dropped: self.dropped + other.dropped,
            wrong: self.wrong + other.wrong,
        }
    }
}

/// What the kernel has done for this process until now: bytes are from the file's disk, or from and to swap, which is
/// counted for the whole machine.
fn counted(is_in_file: bool) -> Counts {
    let text = |file| std::fs::read_to_string(file).unwrap_or_default();
    let (major_faults, minor_faults) = faults(&text("/proc/self/stat")).unwrap_or((0, 0));
    let moved = if is_in_file {
        Counts { fetched_bytes: read_from_disks(&text("/proc/self/io")), ..Counts::default() }
    } else {
        Counts::swapped()
    };
    Counts { major_faults, minor_faults, ..moved }
}

/// What `/proc/PID/io` says of bytes that came from disks; 0 where the kernel does not tell.
fn read_from_disks(io: &str) -> u64 {
    io.lines().find_map(|line| line.strip_prefix("read_bytes: ")?.parse().ok()).unwrap_or(0)
}

fn sleep_until(time: Nanos) {
    std::thread::sleep(Duration::from_nanos(time.saturating_sub(clock::now())));
}

fn nanos(time: Duration) -> Nanos {
    time.as_nanos() as Nanos
}

fn unmapped(error: MapError) -> BenchError {
    BenchError::Child(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(file: Option<PathBuf>, threads: usize, rate: Rate) -> ResidentTask {
        ResidentTask { memory: 1 << 20, file, threads, rate, duration: Duration::from_millis(250) }
    }

    #[test]
    fn values_are_read_in_memory_and_in_a_file() {
        let folder = tempfile::tempdir().unwrap();
        for (file, threads, rate) in [
            (None, 1, Rate::Max),
            (None, 3, Rate::PerSecond(20_000.0)),
            (Some(folder.path().join("one")), 2, Rate::Max),
            (Some(folder.path().join("two")), 1, Rate::PerSecond(5_000.0)),
        ] {
            // On a busy machine a short run may not get its turn.
            let mut runs = [250, 2_000, 10_000].into_iter().map(|duration_ms| {
                if let Some(path) = file.as_ref().filter(|path| path.exists()) {
                    std::fs::remove_file(path).unwrap();
                }
                let duration = Duration::from_millis(duration_ms);
                measure(&ResidentTask { duration, ..task(file.clone(), threads, rate) }).unwrap()
            });
            let measured = runs.find(|measured| measured.ops_per_s > 0.0).expect("10 s are enough");
            assert_eq!(measured.counts.errors, 0, "{measured:?}");
            assert!(measured.ops_per_s > 0.0 && measured.p50_us <= measured.p999_us, "{measured:?}");
            if let Rate::PerSecond(rate) = rate {
                assert!(measured.ops_per_s < 1.5 * rate, "{measured:?}");
            }
            if let Some(path) = file {
                assert_eq!(path.metadata().unwrap().len(), 1 << 20);
            }
        }
        let taken = measure(&task(Some(folder.path().join("one")), 1, Rate::Max)).unwrap_err();
        assert!(taken.to_string().contains("exists"), "{taken}");
    }

    #[test]
    fn a_wrong_value_is_counted() {
        let array = in_memory(2).unwrap();
        (0..LINES).for_each(|line| array.write(PAGE_BYTES as u64 + line * 64, &[0; 8]));
        let end = clock::now() + 20_000_000;
        let reading = Reading { array: &array, pages: 2, arrivals: None, measure_from: 0, end, give_up: end };
        let reads = reading.read(1);
        assert!(reads.wrong > 0 && reads.wrong < reads.latency.len(), "half of the words are wrong");
    }

    #[test]
    fn what_nobody_takes_is_dropped_with_the_time_that_it_has_waited() {
        let array = in_memory(1).unwrap();
        let started = clock::now();
        let (measure_from, end) = (started + 50_000_000, started + 100_000_000);
        let arrivals = Some(Mutex::new(PoissonArrivals::new(10_000.0, started, 7).peekable()));
        // The time for taking them is over before it has begun.
        let reading = Reading { array: &array, pages: 1, arrivals, measure_from, end, give_up: started };
        let mut reads = reading.read(1);
        assert_eq!((reads.latency.len(), reads.in_time), (0, 0));
        reading.give_up_the_rest(end, &mut reads);
        // Half of the arrivals are of the measured time.
        assert!((350..650).contains(&reads.dropped), "{} of about 500", reads.dropped);
        assert_eq!(reads.latency.len(), reads.dropped);
        assert!((20_000.0..50_000.0).contains(&reads.latency.percentile_us(50.0)));
    }

    #[test]
    fn the_kernels_figures_are_read() {
        assert_eq!(read_from_disks("rchar: 5\nread_bytes: 4096\nwrite_bytes: 1\n"), 4096);
        assert_eq!(read_from_disks(""), 0);
        assert_eq!(nanos(Duration::from_micros(2)), 2_000);
    }
}
