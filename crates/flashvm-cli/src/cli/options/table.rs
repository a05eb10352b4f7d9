//! The options of `flashvm run`. Add one here.

use super::budget::Budget;
use super::choice::{
    FaultMode, Granularity, LivePolicy, Peer, WhereHuge, WhichDecisions, WhichMemory, WhoseMalloc,
};
use super::spec::{Applies, Fallback, Group, Kind, Spec, options};
use super::value::{Flag, Value};
use crate::cli::device::ModelName;
use crate::cli::metrics::MetricsAddress;
use crate::cli::units::{Micros, PerDay, Size, Switch, WholePages};
use flashvm_core::{
    Compression, Discard, FirstStore, Nanos, PrefetcherKind, Preset, Sampling, Settings,
};
use flashvm_live::control::{Inject, RunSettings};
use std::path::PathBuf;

options! {
    /// Budget of the process tree, in bytes.
    ram: Budget = "ram" {
        value: "SIZE|N%|auto",
        group: Group::Run,
        help: "RAM for the program and all its children: at least 4M, with --granularity 512 at most 64G; N% of the \
               memory limit (the smallest of the cgroups', else all RAM); or auto: the limit or the available RAM, less \
               1/8 of it (at least 64M, at most half) for what is not heap",
        default: Fallback::Words("half of the available RAM"),
        example: "512M",
        refused: "12X",
        applies: Applies::Always,
    } sets |budget, settings| if let Budget::Bytes(size) = budget {
        settings.ram_bytes = size.0;
    };

    /// Path or URI of the store.
    flash: PathBuf = "flash" {
        value: "PATH|URI|mirror:A,B|...",
        group: Group::Run,
        help: "The flash store: a folder, an empty file (unlinked at once), or a block device (overwritten; \
               refused while it holds a file system, swap or partitions); or an export of an NBD server (overwritten \
               and refused likewise), as nbd://HOST[:PORT]/EXPORT (encrypted unless HOST is this machine) or \
               nbd+unix:///EXPORT?socket=PATH, with TLS as nbds:// or nbds+unix://; or several of these: \
               mirror:A,B[,spare=C] (both are written, the faster one is read, and the program outlives the loss of one), \
               stripe:A,B[,C...] (a part on each, all used at once), tier:LOCAL,REMOTE (what is in use on LOCAL, the \
               rest on REMOTE)",
        default: Fallback::Words("$TMPDIR, else /var/tmp, else /tmp: the first that is on a disk"),
        example: "/mnt/nvme",
        refused: "/nowhere/at/all",
        applies: Applies::Always,
    } supervisor;

    /// Largest size of the store.
    flash_size: Size = "flash-size" {
        value: "SIZE",
        group: Group::Run,
        help: "Largest size of the store on flash; of a tier's first side. A given size is allocated at once, the default \
               on use",
        default: Fallback::Words(
            "all of a device or export; in a file system max(80 % of free, min(8 x ram, 95 % of free))",
        ),
        example: "16G",
        refused: "lots",
        applies: Applies::Always,
    } sets |size, settings| settings.flash_bytes = size.0;

    /// Encryption of the store.
    encrypt: Flag = "encrypt" {
        value: "",
        group: Group::Run,
        help: "Encrypt pages on flash (AES-256-GCM) with a key that only the process has, in locked RAM. A page that \
               was changed, moved or replaced by an older one counts as lost",
        default: Fallback::None,
        example: "",
        refused: "",
        applies: Applies::WholePages,
    } sets |flag, settings| settings.encrypt = flag.0;

    /// Defaults of the other options.
    preset: Preset = "preset" {
        value: "modern|flashvm|native",
        group: Group::Run,
        help: "Settings to start from: best for today's flash, the paper's, or those of Linux 2.6.28",
        default: Fallback::Words("modern"),
        example: "flashvm",
        refused: "fast",
        applies: Applies::Always,
    } sets |preset, settings| {
        settings.preset = *preset;
        settings.engine = preset.settings();
    };

    /// Size of the smallest pages.
    granularity: Granularity = "granularity" {
        value: "4096|512",
        group: Group::Run,
        help: "Size of the smallest pages. With 512, objects up to 4 KiB lie on pages of 512 bytes to 4 KiB, \
               packed in RAM and read singly: for programs with many small objects",
        default: Fallback::Words("4096"),
        example: "512",
        refused: "100",
        applies: Applies::Always,
    } small_pages;

    /// The thread that resolves faults.
    fault: FaultMode = "fault" {
        value: "auto|inline|handler|protect",
        group: Group::Run,
        help: "Which thread resolves page faults: the faulting one (inline: fast, needs no privilege, intercepts \
               system calls; protect: the same where containers forbid userfaultfd), a pager thread (handler: \
               needs privilege, intercepts nothing), or the first of inline, protect and handler that works here \
               (auto)",
        default: Fallback::Words("auto"),
        example: "inline",
        refused: "magic",
        applies: Applies::Always,
    } supervisor;

    /// Which memory is managed.
    select: WhichMemory = "select" {
        value: "all|api",
        group: Group::Run,
        help: "Which of the program's memory is paged, within --ram: all; or only what it asks for by name (api): arrays of the \
               Python package, flashvm_map. The rest then is the kernel's, as without flashvm",
        default: Fallback::Words("all"),
        example: "api",
        refused: "arrays",
        applies: Applies::WholePages,
    } sets |which, settings| settings.select = which.select();

    /// The program's `malloc`.
    malloc: WhoseMalloc = "malloc" {
        value: "own|mimalloc",
        group: Group::Run,
        help: "The program's malloc: its own (the C library's or the program's: as compact as without flashvm; \
               inline mode sees its brk and mmap), or mimalloc",
        default: Fallback::Words("own; mimalloc with --fault handler and with --granularity 512"),
        example: "mimalloc",
        refused: "jemalloc",
        applies: Applies::Always,
    } supervisor;

    /// Huge pages.
    huge_pages: WhereHuge = "huge-pages" {
        value: "always|madvise|never",
        group: Group::Run,
        help: "Where a program gets huge pages (2 MiB) while RAM is plentiful: in every mapping, where it \
               asks for them, or nowhere",
        default: Fallback::Words("the kernel's setting; never with the presets native and flashvm, and where pages cannot be moved"),
        example: "never",
        refused: "often",
        applies: Applies::WholePages,
    } supervisor;

    /// The configuration file.
    config: PathBuf = "config" {
        value: "FILE.toml",
        group: Group::Run,
        help: "Read options from a TOML file, with these names as keys; the command line wins",
        default: Fallback::None,
        example: "flashvm.toml",
        refused: "/nowhere/flashvm.toml",
        applies: Applies::CommandLine,
    } supervisor;

    /// The file of counters.
    stats: PathBuf = "stats" {
        value: "FILE",
        group: Group::Report,
        help: "Write counters and latencies to a file at the end, as JSON",
        default: Fallback::None,
        example: "run.json",
        refused: "/nowhere/run.json",
        applies: Applies::Always,
    } supervisor;

    /// The report of the run.
    report: PathBuf = "report" {
        value: "FILE.html|FILE.json",
        group: Group::Report,
        help: "Write a page about the run at its end: faults, memory and code over time; or, as .json, the record of which \
               flashvm report makes the page",
        default: Fallback::None,
        example: "run.html",
        refused: "/nowhere/run.html",
        applies: Applies::Always,
    } supervisor;

    /// Where metrics are served.
    metrics: MetricsAddress = "metrics" {
        value: "ADDRESS",
        group: Group::Report,
        help: "Serve the run's counters to Prometheus (OpenMetrics) at http://ADDRESS/metrics: a port of this machine (9464, \
               127.0.0.1:9464), or unix:PATH",
        default: Fallback::None,
        example: "127.0.0.1:0",
        refused: "example.org",
        applies: Applies::Always,
    } supervisor;

    /// Metrics for other machines.
    metrics_insecure: Flag = "metrics-insecure" {
        value: "",
        group: Group::Studies,
        help: "Let --metrics listen where other machines can reach it: nothing protects it",
        default: Fallback::None,
        example: "",
        refused: "",
        applies: Applies::Always,
    } supervisor;

    /// The file of metrics.
    metrics_file: PathBuf = "metrics-file" {
        value: "FILE",
        group: Group::Report,
        help: "Write the run's counters once a second to a file, as node_exporter's textfile collector reads them",
        default: Fallback::None,
        example: "flashvm.prom",
        refused: "/nowhere/flashvm.prom",
        applies: Applies::Always,
    } supervisor;

    /// Advice at the end.
    profile: Flag = "profile" {
        value: "",
        group: Group::Report,
        help: "Say at the end in a few sentences where the time went, which code waited for flash, and what would help",
        default: Fallback::None,
        example: "",
        refused: "",
        applies: Applies::Always,
    } supervisor;

    /// The decisions that are kept.
    decisions: WhichDecisions = "decisions" {
        value: "off|error|warn|info|debug|trace",
        group: Group::Report,
        help: "Which of the pager's decisions each process keeps, the last 64 of them. They are in --stats, and are shown if \
               the pager ends the process; if this option is given, also if the program fails",
        default: Fallback::Words("info"),
        example: "debug",
        refused: "all",
        applies: Applies::Always,
    } sets |which, settings| settings.decisions = which.level();

    /// The file of references.
    trace: PathBuf = "trace" {
        value: "FILE",
        group: Group::Report,
        help: "Record the page references that the pager sees (faults and first stores) as a trace",
        default: Fallback::None,
        example: "run.fvt",
        refused: "/nowhere/run.fvt",
        applies: Applies::Always,
    } supervisor;

    /// The file of the order of pages.
    save_pages: PathBuf = "save-pages" {
        value: "FILE.fvt",
        group: Group::Report,
        help: "Write the order in which the program waited for pages, for --prefetch-pages",
        default: Fallback::None,
        example: "train.fvt",
        refused: "/nowhere/train.fvt",
        applies: Applies::Always,
    } supervisor;

    /// The order of pages to follow.
    prefetch_pages: PathBuf = "prefetch-pages" {
        value: "FILE.fvt",
        group: Group::Paging,
        help: "Bring pages in ahead in the order that --save-pages has saved, for programs that run alike every time; both \
               together renew the file",
        default: Fallback::None,
        example: "train.fvt",
        refused: "/nowhere/train.fvt",
        applies: Applies::Always,
    } supervisor;

    /// The live line.
    progress: Flag = "progress" {
        value: "",
        group: Group::Report,
        help: "Show a live line on standard error",
        default: Fallback::None,
        example: "",
        refused: "",
        applies: Applies::Always,
    } supervisor;

    /// No summary.
    quiet: Flag = "quiet" {
        value: "",
        group: Group::Report,
        help: "Print no summary; a run that fails still shows what the pager did to it",
        default: Fallback::None,
        example: "",
        refused: "",
        applies: Applies::Always,
    } supervisor;

    /// The replacement policy.
    policy: LivePolicy = "policy" {
        value: "NAME",
        group: Group::Paging,
        help: "Page replacement, with parameters in parentheses",
        default: Fallback::Preset(|s: &Settings| s.policy.to_string()),
        example: "clock(insert=clear)",
        refused: "lru2",
        applies: Applies::Always,
    } sets |policy, settings| settings.engine.policy = policy.0;

    /// Most pages that one prefetch reads ahead.
    readahead: u32 = "readahead" {
        value: "N",
        group: Group::Paging,
        help: "Most pages to read ahead at once",
        default: Fallback::Preset(|s| s.readahead.to_string()),
        example: "32",
        refused: "5000",
        applies: Applies::Always,
    } sets |pages, settings| settings.engine.readahead = *pages;

    /// Most pages that a prefetch by stride reads ahead.
    stride: u32 = "stride" {
        value: "N",
        group: Group::Paging,
        help: "Most pages to read ahead by stride",
        default: Fallback::Preset(|s| s.stride.to_string()),
        example: "4",
        refused: "many",
        applies: Applies::Always,
    } sets |pages, settings| settings.engine.stride = *pages;

    /// Pages in a batch of the cleaner.
    preclean: u32 = "preclean" {
        value: "N",
        group: Group::Paging,
        help: "Pages to clean in one batch",
        default: Fallback::Preset(|s| s.preclean.to_string()),
        example: "16",
        refused: "0",
        applies: Applies::Always,
    } sets |pages, settings| settings.engine.preclean = *pages;

    /// Pages in a run of the cleaner's writes.
    write_run: u32 = "write-run" {
        value: "N",
        group: Group::Paging,
        help: "Pages to collect before the cleaner writes them, batch after batch, so that reads and writes take turns less \
               often; up to --preclean: each batch is written at once",
        default: Fallback::Preset(|s| s.write_run.to_string()),
        example: "256",
        refused: "9000",
        applies: Applies::Always,
    } sets |pages, settings| settings.engine.write_run = *pages;

    /// Size of a cluster.
    cluster: WholePages = "cluster" {
        value: "SIZE",
        group: Group::Paging,
        help: "Size of a cluster: a power of two from 8K to 4M",
        default: Fallback::Preset(|s| WholePages(s.cluster_pages).to_string()),
        example: "64K",
        refused: "12K",
        applies: Applies::Always,
    } sets |pages, settings| settings.engine.cluster_pages = pages.0;

    /// Detection of zero pages.
    zero_sharing: Switch = "zero-sharing" {
        value: "on|off",
        group: Group::Paging,
        help: "Keep pages that hold only zeros off the flash",
        default: Fallback::Preset(|s| Switch(s.zero_sharing).to_string()),
        example: "off",
        refused: "maybe",
        applies: Applies::Always,
    } sets |switch, settings| settings.engine.zero_sharing = switch.0;

    /// How first stores are noticed.
    first_store: FirstStore = "first-store" {
        value: "fault|compare|auto",
        group: Group::Paging,
        help: "Notice a store to a clean page by a fault, or by comparing the page with a checksum when it leaves; auto: \
               by what costs less for this program. Policies that tell clean pages from dirty ones, reports and traces have faults",
        default: Fallback::Preset(|s| s.first_store.to_string()),
        example: "compare",
        refused: "store",
        applies: Applies::WholePages,
    } sets |way, settings| settings.engine.first_store = *way;

    /// Compression of pages.
    compress: Compression = "compress" {
        value: "off|auto|lz4|zstd[:LEVEL]",
        group: Group::Paging,
        help: "Compress pages in RAM before they go to flash; their share of --ram grows with the saving. Pages that do not shrink go as they are. auto: zstd. LEVEL: -7 (fast) to 19 (small)",
        default: Fallback::Preset(|s| s.compress.to_string()),
        example: "lz4",
        refused: "gzip",
        applies: Applies::Always,
    } sets |compress, settings| settings.engine.compress = *compress;

    /// Sampling of dirty pages.
    sampling: Sampling = "sampling" {
        value: "off|uniform:N|adaptive:N",
        group: Group::Paging,
        help: "Skip dirty pages in the search for victims: one in N; or one in N on average, more while little \
               is written, none while frames are short",
        default: Fallback::Preset(|s| s.sampling.to_string()),
        example: "uniform:8",
        refused: "uniform:1",
        applies: Applies::Always,
    } sets |sampling, settings| settings.engine.sampling = *sampling;

    /// Discards of free clusters.
    discard: Discard = "discard" {
        value: "off|native|merged:SIZE|dummy|auto",
        group: Group::Paging,
        help: "Tell the device which clusters are free: each at once (native), many in one command (merged), not \
               if they are soon overwritten (dummy), or the last two (auto)",
        default: Fallback::Preset(|s| s.discard.to_string()),
        example: "merged:16M",
        refused: "trim",
        applies: Applies::Always,
    } sets |discard, settings| settings.engine.discard = *discard;

    /// Longest waits for a congested device.
    congestion_timeout: Micros = "congestion-timeout" {
        value: "DURATION",
        group: Group::Paging,
        help: "Time that a fault without free RAM waits for a write to end before it reclaims RAM itself; the cleaner's \
               time too, without --cleaner-timeout",
        default: Fallback::Preset(|s| Micros(s.congestion_allocator.0 / 1000).to_string()),
        example: "500us",
        refused: "1",
        applies: Applies::Always,
    } sets |timeout, settings| {
        let timeout = Nanos(timeout.0.saturating_mul(1000));
        settings.engine.congestion_allocator = timeout;
        settings.engine.congestion_cleaner = timeout;
    };

    /// Longest wait of the cleaner for a congested device.
    cleaner_timeout: Micros = "cleaner-timeout" {
        value: "DURATION",
        group: Group::Paging,
        help: "Time that the cleaner, with its most writes in flight, waits for one to end before it adds another",
        default: Fallback::Preset(|s| Micros(s.congestion_cleaner.0 / 1000).to_string()),
        example: "2ms",
        refused: "1",
        applies: Applies::Always,
    } sets |timeout, settings| {
        settings.engine.congestion_cleaner = Nanos(timeout.0.saturating_mul(1000));
    };

    /// Size of an erase block.
    erase_block: WholePages = "erase-block" {
        value: "SIZE",
        group: Group::Device,
        help: "Size of the device's erase blocks, to which clusters are aligned",
        default: Fallback::Preset(|s| WholePages(s.erase_block_pages).to_string()),
        example: "512K",
        refused: "100000",
        applies: Applies::Always,
    } sets |pages, settings| settings.engine.erase_block_pages = pages.0;

    /// The limit on writes.
    write_limit: PerDay = "write-limit" {
        value: "SIZE/day",
        group: Group::Device,
        help: "Write at most this in any 24 hours, in bursts of at most a 24th. Beyond half a burst the pager \
               skips ever more dirty pages and writes whole erase blocks; at a full burst it delays writes, and \
               the summary shows for how long",
        default: Fallback::Words("no limit"),
        example: "20G/day",
        refused: "1M/day",
        applies: Applies::WholePages,
    } sets |limit, settings| settings.write_limit_bytes = Some(limit.0);

    /// The modelled device.
    device_model: ModelName = "device-model" {
        value: "NAME|FILE",
        group: Group::Device,
        help: "Let the store behave like another device: a name of flashvm device models, or a file with the \
               parts of a NAND device. Each request ends when both model and real device are done",
        default: Fallback::None,
        example: "slc-nand",
        refused: "tape",
        applies: Applies::Always,
    } supervisor;

    /// How long to wait for a server.
    flash_timeout: Micros = "flash-timeout" {
        value: "DURATION",
        group: Group::Device,
        help: "With a store at a server: a process ends if a request has no answer for so long. Until then lost \
               connections are made again, and what was not answered is repeated. A mirror's side without an answer for so \
               long is lost; the process ends if it is the last",
        default: Fallback::Words("30s"),
        example: "10s",
        refused: "soon",
        applies: Applies::Always,
    } supervisor;

    /// Padding of requests.
    padding: u32 = "padding" {
        value: "BYTES",
        group: Group::SmallPages,
        help: "Bytes to add to every request for a small object, for programs that overrun their objects: 0 to 1024",
        default: Fallback::Words("0"),
        example: "16",
        refused: "4000",
        applies: Applies::SmallPages,
    } small_pages;

    /// Where changed small pages are written: to the log, or in place.
    log_structuring: Switch = "log-structuring" {
        value: "on|off",
        group: Group::SmallPages,
        help: "Write changed pages to a log; off: in place, for devices that remap sectors of 512 bytes: without \
               cleaning, but the store must hold all pages",
        default: Fallback::Words("on"),
        example: "off",
        refused: "maybe",
        applies: Applies::SmallPages,
    } small_pages;

    /// Most mappings of the heap of small pages.
    overlays: u32 = "overlays" {
        value: "N",
        group: Group::Studies,
        help: "Most mappings that small pages may take",
        default: Fallback::Words("what the kernel allows"),
        example: "600",
        refused: "many",
        applies: Applies::SmallPages,
    } small_pages;

    /// Log-Swap or SSDAlloc.
    peer: Peer = "peer" {
        value: "log-swap|ssdalloc:N",
        group: Group::Studies,
        help: "A peer of Chameleon, as a mode of its heap: N percent of RAM is SSDAlloc's page buffer",
        default: Fallback::None,
        example: "ssdalloc:25",
        refused: "ssdalloc:99",
        applies: Applies::Always,
    } small_pages;

    /// The prefetcher, if not the preset's.
    prefetcher: PrefetcherKind = "prefetcher" {
        value: "NAME",
        group: Group::Studies,
        help: "Prefetcher",
        default: Fallback::Preset(|s| s.prefetcher.to_string()),
        example: "off",
        refused: "crystal-ball",
        applies: Applies::Always,
    } sets |prefetcher, settings| settings.engine.prefetcher = *prefetcher;

    /// Injected faults of the store.
    inject: Inject = "inject" {
        value: "read=PPM,write=PPM,flip=PPM,seed=N",
        group: Group::Studies,
        help: "Faults to inject into the store, in parts per million of all requests: failed reads, failed \
               writes, flipped bits",
        default: Fallback::None,
        example: "write=2000,seed=7",
        refused: "flip=1000001",
        applies: Applies::Always,
    } sets |inject, settings| settings.inject = Some(*inject);

    /// The recording of events.
    record: PathBuf = "record" {
        value: "PREFIX",
        group: Group::Studies,
        help: "Record the engine's events, for replay: into PREFIX.PID for each process",
        default: Fallback::None,
        example: "events",
        refused: "/nowhere/events",
        applies: Applies::Always,
    } sets |prefix, settings| settings.record = Some(prefix.clone());

    /// The sample of pages that is observed.
    shards: Flag = "shards" {
        value: "",
        group: Group::Studies,
        help: "With --trace: record every touch of a hashed sample of the pages (SHARDS) in place of faults, without \
               huge pages; flashvm size does this",
        default: Fallback::None,
        example: "",
        refused: "",
        applies: Applies::WholePages,
    } sets |flag, settings| settings.engine.shards = flag.0;

    /// Without UFFDIO_MOVE.
    no_move: Flag = "no-move" {
        value: "",
        group: Group::Studies,
        help: "Do not use UFFDIO_MOVE, as on an older kernel",
        default: Fallback::None,
        example: "",
        refused: "",
        applies: Applies::Always,
    } sets |flag, settings| settings.no_move = flag.0;

    /// Without guard regions.
    no_markers: Flag = "no-markers" {
        value: "",
        group: Group::Studies,
        help: "With --fault protect, hide pages by access rights, as before Linux 6.15",
        default: Fallback::None,
        example: "",
        refused: "",
        applies: Applies::Always,
    } sets |flag, settings| settings.no_markers = flag.0;

    /// A store in RAM.
    flash_in_ram: Flag = "flash-in-ram" {
        value: "",
        group: Group::Studies,
        help: "Accept a store in RAM, to measure the software alone",
        default: Fallback::None,
        example: "",
        refused: "",
        applies: Applies::Always,
    } supervisor;

    /// Without io_uring.
    no_uring: Flag = "no-uring" {
        value: "",
        group: Group::Studies,
        help: "Do not use io_uring, as in a container that blocks it",
        default: Fallback::None,
        example: "",
        refused: "",
        applies: Applies::Always,
    } sets |flag, settings| settings.no_uring = flag.0;

    /// Checks of the invariants.
    check: Flag = "check" {
        value: "",
        group: Group::Studies,
        help: "Check all invariants often: slow",
        default: Fallback::None,
        example: "",
        refused: "",
        applies: Applies::Always,
    } sets |flag, settings| settings.check = flag.0;
}
