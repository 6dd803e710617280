//! Every flag of every subcommand, as the design fixes them.

mod app_bench;
mod apps;
mod cluster;
mod controller;
mod credential;
mod ctl;
mod governor;
mod kv_access;
mod load;
mod node;
mod open;
mod papers;
mod pictured;
mod policies;
mod privileges;
mod reference;
mod remote;
mod report;
mod roll;
mod run;
mod serve;
mod size;
mod switch;
mod top;
mod trying;
pub(crate) mod workload;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use yonder::sched::{DispatchPolicy, InstallDelegation, Order, PollingDelegation};
use yonder::units::parse_bytes;
use yonder::{FaultPolicy, Prefetch, Reads};
use yonder_bench::fault::FaultSettings;

pub(crate) use yonder_bench::flags::MemoryArgs;
use yonder_bench::flags::{BENCHMARK, positive_count, positive_duration};
use yonder_bench::policies::choice;
use yonder_bench::reclaim::ReclaimSettings;
use yonder_bench::soak::SoakSettings;
use yonder_bench::{
    del_get, errors, fault_breakdown, migrate, notify, peers, poster, programs, ralloc, redis, rread, scale_clients,
    scale_pages, seq, store, tenants, threads, victims, ycsb,
};
use yonder_kv::Listen;
use yonder_load::{Distribution, Rate};

pub(crate) use app_bench::{AppBenchArgs, KvBenchArgs, RocksdbArgs, System, TpccArgs, VectorArgs};
pub(crate) use apps::{FrameArgs, ImageArgs, ObjectsArgs, TreeArgs};
pub(crate) use cluster::{
    ClusterAddArgs, ClusterArgs, ClusterFolderArgs, ClusterKeyArgs, ClusterListArgs, ClusterRevokeArgs, ClusterWhat,
};
pub(crate) use controller::{
    AtArgs, ControllerAddresses, ControllerArgs, ControllerWhat, DrainArgs, HealthArgs, NodeNameArgs, NodesArgs,
    ServeArgs, SpacesArgs, TenantsArgs,
};
pub(crate) use credential::CredentialArgs;
pub(crate) use ctl::{CtlArgs, CtlListArgs, CtlProcessArgs, CtlWhat, CtlWordsArgs};
pub(crate) use governor::GovernorArgs;
pub(crate) use load::{LoadAppArgs, LoadArgs, LoadKvArgs, LoadRocksdbArgs, LoadVectorArgs, LoadWhat};
pub(crate) use node::NodeArgs;
pub(crate) use open::{OpenArgs, is_of_this_machine};
pub(crate) use papers::PapersArgs;
pub(crate) use pictured::{Json, Pictured};
pub(crate) use policies::ReclaimBy;
pub(crate) use privileges::{SandboxArgs, UserArgs, as_user, become_user};
pub(crate) use reference::{ReferenceArgs, ReferenceForm};
pub(crate) use remote::{GuardedArgs, RreadArgs, ScaleClientArgs};
pub(crate) use report::{ReportArgs, ReportSet};
pub(crate) use roll::RollArgs;
pub(crate) use run::RunArgs;
pub(crate) use serve::{AppServerArgs, ServeAppArgs, ServeTpccArgs, ServeVectorArgs, ServedApp};
pub(crate) use size::SizeArgs;
pub(crate) use switch::SwitchArgs;
pub(crate) use top::TopArgs;
pub(crate) use trying::TryArgs;

/// What `yonder --help` ends with.
const AFTER_HELP: &str = "\
Start here:
  yonder                        what to do next on this machine
  yonder doctor                 is this machine ready?
  yonder demo                   see what it is about, in a minute

Sizes are typed as 64KiB, 1.5GiB or, where it says so, 20%; times as 2.5us, 20ms, 5s. Results go to standard
output, progress and logs to standard error; YONDER_LOG=info (or debug) logs more.";

/// Headings of the flags that come after those of far memory.
const SERVER: &str = "Server";
/// Heading of the flags of far memory.
const FAR_MEMORY: &str = "Far memory";

/// What `yonder kv --help` ends with.
const KV_AFTER_HELP: &str = "\
Without --far, far memory is emulated in this process, to try things out. With a node that keeps the pages:
  yonder node --listen tcp://127.0.0.1:7000 --memory 1GiB
  yonder kv --far tcp://127.0.0.1:7000 --memory 1GiB --local 20% --metrics 127.0.0.1:9185
  yonder load kv --rate 20k
  yonder top
Where strangers are, nodes ask who connects; with --identity or --key metrics ask who looks as well:
  yonder kv --far udp://HOST:7000 --key cluster.key --metrics 127.0.0.1:9185
  yonder top --key cluster.key";

/// What `yonder bench array --help` ends with.
const ARRAY_AFTER_HELP: &str = "\
Busy-waiting against yielding, each at three loads:
  yonder bench array --faults busy  --rate 100k,150k,200k
  yonder bench array --faults yield --rate 100k,150k,200k
What requests gain that do not fault, when those that will fault queue apart:
  yonder bench array --dist zipf:0.99 --rate 200k --dispatch pf-aware
  yonder bench array --dist zipf:0.99 --rate 200k --dispatch predicted";

/// Memory that lives on other machines, at microsecond cost: a page fault parks only the request that touched the page
#[derive(Debug, Parser)]
#[command(name = "yonder", version, max_term_width = 110, after_help = AFTER_HELP)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// What this machine can do, what is missing, and the command that mends it
    Doctor(DoctorArgs),
    /// Compare page faults that wait with faults that yield, on emulated far memory, and write report.html
    Demo(DemoArgs),
    /// Run a memory node that keeps pages for other processes and machines
    Node(NodeArgs),
    /// Run the controller of several memory nodes, or ask one: which nodes there are, to empty a node
    Controller(ControllerArgs),
    /// Say who belongs to a cluster: identities of nodes, programs and people, or one key for all
    Cluster(ClusterArgs),
    /// Run a program alone, with less and less local memory, and with swap on zram, and say what becomes of it
    Try(TryArgs),
    /// Run a program that knows nothing of it with its memory far
    Run(RunArgs),
    /// Run a program once, and say how much local memory it needs
    Size(SizeArgs),
    /// Serve memcached's protocol, with the items in far memory
    Kv(KvArgs),
    /// Serve an application over UDP, with its data in far memory
    Serve(ServeAppArgs),
    /// Put load on a server and measure what its clients see
    Load(LoadArgs),
    /// Run a benchmark
    Bench(BenchArgs),
    /// Simulate the papers' experiments, and compare with what they report
    #[command(alias = "sim")]
    Papers(PapersArgs),
    /// Simulate and measure the papers' experiments, and write it all as one page
    Report(ReportArgs),
    /// Watch a running server that was started with --metrics
    Top(TopArgs),
    /// Give each of the machine's programs with far memory as much local memory as it needs, of what there is
    Governor(GovernorArgs),
    /// Show and change settings of running processes: kv servers and programs under run
    Ctl(CtlArgs),
    Workload(workload::WorkloadArgs),
    Reference(ReferenceArgs),
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Folder that far memory could be in, with file://
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    pub(crate) store: PathBuf,
    /// One JSON object for each check on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Folder that report.html and array.svg are written to, made if it is not there
    #[arg(long, value_name = "DIR", default_value = "demo-report")]
    pub(crate) out: PathBuf,
    /// One JSON object for each run on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

/// What was typed, each once, in the order in which it was typed first.
pub(crate) fn each_once<T: PartialEq + Clone>(typed: &[T]) -> Vec<T> {
    let mut once = typed.to_vec();
    yonder_bench::flags::each_once(&mut once);
    once
}

#[derive(Debug, Args)]
#[command(after_help = KV_AFTER_HELP)]
pub(crate) struct KvArgs {
    #[command(flatten)]
    pub(crate) paging: PagingArgs,
    /// Where clients connect: an address, whose port 0 takes a free one, or a socket, such as unix:///run/yonder.sock
    #[arg(long, help_heading = SERVER, value_name = "ADDR", default_value = "127.0.0.1:11211")]
    pub(crate) listen: Listen,
    /// Where UDP requests arrive, such as 127.0.0.1:11211; UDP is off if not given
    #[arg(long, help_heading = SERVER, value_name = "ADDR")]
    pub(crate) udp: Option<SocketAddr>,
    #[command(flatten)]
    pub(crate) open: OpenArgs,
    #[command(flatten)]
    pub(crate) access: kv_access::KvAccessArgs,
    #[command(flatten)]
    pub(crate) user: UserArgs,
    /// Clients at a time; more are turned away, unless one is silent in the middle of a command, or has never sent one,
    /// and gives way
    #[arg(long, help_heading = SERVER, value_name = "N", default_value_t = 1024, value_parser = positive_count)]
    pub(crate) connections: usize,
    /// Largest value that clients may store; memcached's -I, also as --item-size
    #[arg(long, alias = "item-size", help_heading = SERVER, value_name = "SIZE", default_value = "1MiB",
          value_parser = parse_bytes)]
    pub(crate) value_max: u64,
    /// Let clients end the server with the command shutdown, not those of UDP
    #[arg(long, help_heading = SERVER)]
    pub(crate) shutdown_command: bool,
    /// Remember when each item was accessed, for clients that ask (l of mg, la of me): four bytes of local memory each
    #[arg(long, help_heading = SERVER)]
    pub(crate) access_times: bool,
    /// Memory for what clients have sent and not been sent yet, and for requests under way, of all together; a request
    /// that needs more is refused, unless a client that is silent gives way [default: 64MiB, more for large values]
    #[arg(long, help_heading = SERVER, value_name = "SIZE", value_parser = parse_bytes)]
    pub(crate) buffers: Option<u64>,
    /// How long a client may be silent, or get on with hardly anything; for ever if not given
    #[arg(long, help_heading = SERVER, value_name = "TIME", value_parser = positive_duration)]
    pub(crate) idle_timeout: Option<Duration>,
    /// Serve Prometheus metrics here, such as 127.0.0.1:9185, where yonder top looks; not served if not given. With
    /// --identity or --key over TLS, to operators and those who have the same
    #[arg(long, help_heading = SERVER, value_name = "ADDR")]
    pub(crate) metrics: Option<String>,
    /// Keep idle threads spinning: lower latency, but one CPU for each thread at all times
    #[arg(long, help_heading = SERVER)]
    pub(crate) busy_poll: bool,
}

/// Far memory and the threads that page from it.
#[derive(Clone, Debug, Args)]
pub(crate) struct PagingArgs {
    #[command(flatten)]
    pub(crate) memory: MemoryArgs,
    #[command(flatten, next_help_heading = FAR_MEMORY)]
    pub(crate) credential: CredentialArgs,
    #[command(flatten)]
    pub(crate) threads: ThreadArgs,
}

/// Threads, and what they do about faults, requests and reclaim.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Threads and policies")]
pub(crate) struct ThreadArgs {
    /// Worker threads, beside the dispatcher
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = positive_count)]
    pub(crate) workers: usize,
    /// What a worker does while a page is on its way
    #[arg(long, value_name = "MODE", default_value = "yield", value_parser = choice::<FaultPolicy>())]
    pub(crate) faults: FaultPolicy,
    /// Which request is next, and which worker gets it
    #[arg(long, value_name = "POLICY", default_value = "pf-aware", value_parser = choice::<DispatchPolicy>())]
    pub(crate) dispatch: DispatchPolicy,
    /// What a worker runs first
    #[arg(long, value_name = "ORDER", default_value = "classes", value_parser = choice::<Order>())]
    pub(crate) order: Order,
    /// Requests that one worker may have started and not finished
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = positive_count)]
    pub(crate) max_inflight: usize,
    /// Let requests that have run for this long give way, such as 5us, as preempting baselines do; never if not given
    #[arg(long, value_name = "TIME", value_parser = positive_duration)]
    pub(crate) preempt: Option<Duration>,
    /// Who waits until a reply has left: the dispatcher (on) or the worker (off)
    #[arg(long, value_name = "on|off", default_value = "on", value_parser = choice::<PollingDelegation>())]
    pub(crate) delegation: PollingDelegation,
    /// Who maps a page for a worker that has other requests to run: the dispatcher when it has time (on) or the worker
    /// (off)
    #[arg(long, value_name = "on|off", default_value = "on", value_parser = choice::<InstallDelegation>())]
    pub(crate) install_delegation: InstallDelegation,
    /// Who reclaims local memory
    #[arg(long, value_name = "WHO", default_value = "auto")]
    pub(crate) reclaim: ReclaimBy,
    /// How long a page that cannot be had is tried for before the request that touched it fails [default: 5s, and 120s
    /// if it is in a file]
    #[arg(long, value_name = "TIME", value_parser = positive_duration)]
    pub(crate) deadline: Option<Duration>,
    /// What is fetched before it is touched
    #[arg(long, value_name = "HOW", default_value = "readahead", value_parser = choice::<Prefetch>())]
    pub(crate) prefetch: Prefetch,
    /// Where a page stays that was fetched for a read of bytes, not by pointer (kv; the array with --probe)
    #[arg(long, value_name = "WHERE", default_value = "frames", value_parser = choice::<Reads>())]
    pub(crate) reads: Reads,
    /// Reclaim of local memory starts when less than this percentage of it is free at the latest, and later while
    /// faults need less
    #[arg(long, value_name = "PCT", default_value_t = 15.0)]
    pub(crate) reclaim_start: f64,
    /// Reclaim stops when this percentage of local memory is free, or as much less as it started later
    #[arg(long, value_name = "PCT", default_value_t = 17.0)]
    pub(crate) reclaim_end: f64,
}

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    pub(crate) what: BenchWhat,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BenchWhat {
    /// Random reads of an array larger than local memory, requested within the process
    Array(ArrayArgs),
    /// GETs of the store of `yonder kv`, requested within the process
    Kv(KvBenchArgs),
    /// GETs and SCANs of RocksDB with its tables in far memory, requested within the process
    Rocksdb(RocksdbArgs),
    /// TPC-C on tables in far memory, after Silo, requested within the process
    Tpcc(TpccArgs),
    /// Searches of a Faiss index with its inverted lists in far memory, requested within the process
    Vector(VectorArgs),
    /// Cost of a switch between user-level threads, against ucontext and a library
    Switch(Json<SwitchArgs>),
    /// Time from a page fault to its handler in user space, against a monitor thread and a plain signal
    Notify(Json<notify::Settings>),
    /// Latency of a page fault, by kind and by stage
    Fault(Json<FaultSettings>),
    /// Where the time of a major fault goes, step by step, when faults yield and when they busy-wait
    FaultBreakdown(Pictured<fault_breakdown::Settings>),
    /// Pages reclaimed per second, and the CPU each costs
    Reclaim(Json<ReclaimSettings>),
    /// Check that nothing is lost under load, changing limits and injected failures
    Soak(Json<SoakSettings>),
    /// Pages read and written one after the other, with each prefetcher
    Seq(Json<seq::Settings>),
    /// Pages read at random by threads, whose faults wait, and by light threads, whose faults yield
    Threads(Json<threads::Settings>),
    /// What recorded programs would have missed under each policy of what leaves local memory
    Victims(Json<victims::Settings>),
    /// Programs that find out by themselves how much local memory they need, beside all of it local
    Auto(Json<programs::auto::Settings>),
    /// Two programs that trade phases, with fixed halves of memory and under yonder governor
    Governor(Json<programs::trade::Settings>),
    /// What yonder size predicts of programs, and what they take
    Size(Json<programs::size::Settings>),
    /// Pages of each store read and written at random, without paging; beside fio
    Store(Json<store::Settings>),
    /// Reads of a memory node without paging: latency by size, throughput by clients and by depth
    Rread(Pictured<RreadArgs>),
    /// Writes to a memory node without paging, as rread
    Rwrite(Pictured<rread::Settings>),
    /// Allocation on a memory node, by size and by how full it is
    Ralloc(Pictured<ralloc::Settings>),
    /// Latency and the node's memory with up to a thousand client processes
    ScaleClients(Pictured<scale_clients::Settings>),
    /// Latency with up to a million page table entries
    ScalePages(Pictured<scale_pages::Settings>),
    /// Move all regions off a node while clients use them, and see that nothing is lost
    Migrate(Pictured<migrate::Settings>),
    /// What a tenant of a memory node gets beside one that is in its way as much as it can
    Tenants(Json<tenants::Settings>),
    /// Compress and decompress photos that are kept on a memory node
    Image(ImageArgs),
    /// Search a radix tree on a memory node by reads and by pointer chase
    Tree(TreeArgs),
    /// A key-value store and a multi-version store on a memory node
    Objects(ObjectsArgs),
    /// Queries on a data frame, at a memory node and at the client
    Frame(FrameArgs),
    /// Programs that know nothing of far memory: alone, under yonder run, and with the kernel's swap
    Programs(Json<programs::Settings>),
    /// What guided paging saves of a Redis server most of whose values were deleted
    DelGet(Json<del_get::Settings>),
    /// What becomes of a key-value server when pages of its memory are lost under load
    Errors(Json<errors::Settings>),
    /// A Redis server under yonder run, by query, by local memory and by what is fetched ahead
    Redis(Json<redis::Settings>),
    /// YCSB on yonder kv with far memory on a disk, beside the same server with the kernel's swap on that disk
    Ycsb(Json<ycsb::Settings>),
    /// GETs of a key-value server without page faults, with synchronous, asynchronous and predicted ones
    Poster(Pictured<poster::Settings>),
    /// Yonder beside the kernel's swap and a mapped file: an array in the process, and stock memcached and Redis
    Peers(Pictured<peers::Settings>),
    /// A process of peers whose memory the kernel pages
    #[command(hide = true)]
    Resident(peers::ResidentTask),
    /// The process whose memory is swapped of yonder size --zram
    #[command(hide = true)]
    KernelCosts,
    /// A client process of scale-clients
    #[command(hide = true)]
    ScaleClient(ScaleClientArgs),
    /// A program that ends when its parent ends
    #[command(hide = true)]
    Guarded(GuardedArgs),
}

#[derive(Debug, Args)]
#[command(after_help = ARRAY_AFTER_HELP)]
pub(crate) struct ArrayArgs {
    #[command(flatten)]
    pub(crate) paging: PagingArgs,
    /// How popular pages are: uniform, or zipf:THETA such as zipf:0.99
    #[arg(long, help_heading = BENCHMARK, value_name = "DIST", default_value = "uniform")]
    pub(crate) dist: Distribution,
    /// Look at the page table before each read, so that a missing page costs no trap
    #[arg(long, help_heading = BENCHMARK)]
    pub(crate) probe: bool,
    /// Requests per second with Poisson arrivals, such as 200k, or several with commas between; or max for a closed
    /// loop
    #[arg(long, help_heading = BENCHMARK, value_name = "RPS|max", default_value = "max", value_delimiter = ',')]
    pub(crate) rate: Vec<Rate>,
    /// Measured time of each run; a warm-up of a quarter of it comes before
    #[arg(long, help_heading = BENCHMARK, value_name = "TIME", default_value = "5s", value_parser = positive_duration)]
    pub(crate) duration: Duration,
    /// Serve Prometheus metrics of far memory here meanwhile, such as 127.0.0.1:9185: an address of this machine
    #[arg(long, help_heading = BENCHMARK, value_name = "ADDR")]
    pub(crate) metrics: Option<String>,
    /// One JSON object for each run on standard output
    #[arg(long, help_heading = BENCHMARK)]
    pub(crate) json: bool,
}
