//! `flashvm run` and `flashvm serve`: makes all checks, then assembles a run of a nameless store, a control region, a
//! program that finds both through `/proc`, and a supervisor. For `serve` the program is one that runs already.

use super::args::RunArgs;
use super::door::{self, Door};
use super::environment::Environment;
use super::memory::of_this_machine;
use super::metrics::{Metrics, Targets};
use super::modelled::Modelled;
use super::object::Object;
use super::options::{
    FaultMode, RunOptions, budget_warning, check_delivery, choose_first_store, choose_huge_pages,
    choose_malloc, look_at_sectors, settings,
};
use super::outcome::End;
use super::progress::Progress;
use super::reference_trace::ReferenceTrace;
use super::refusal::{self, Refusal};
use super::result_file::ResultFile;
use super::run_report::{ReportFile, Watch, profile_lines};
use super::run_store::RunStore;
use super::saved_pages::{PagesToFollow, SavedPages};
use super::summary::{self, Names, Several};
use super::supervise::{Attendants, Start, supervise};
use super::sys::Ready;
use super::units::Size;
use super::{doctor, machine, sys, tls};
use flashvm_core::{Discard, DiscardKind};
use flashvm_live::control::{
    ChameleonSettings, Control, Descriptors, Malloc, RunAddress, RunSettings, Select, SidePlace,
    StorePlace, VARIABLE,
};
use flashvm_live::program::exec::LINKER;
use flashvm_live::program::{Loading, Refused, refuse_carried};
use rustix::fd::AsRawFd;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

/// Refuses a program that has to be carried where it cannot have what was asked for.
fn check_carried(path: &Path, settings: &RunSettings) -> Result<(), Refusal> {
    if !settings.delivery.is_in_thread() {
        refuse_carried(path)?;
    }
    let keeps = |option: &str| {
        Refusal::new(format!(
            "{}: statically linked or not for glibc, so it keeps its own malloc: leave out {option}",
            path.display()
        ))
    };
    if settings.chameleon.is_some() {
        return Err(keeps("--granularity 512"));
    }
    if settings.malloc == Malloc::Mimalloc {
        return Err(keeps("--malloc mimalloc"));
    }
    if settings.select == Select::Api {
        return Err(Refusal::new(format!(
            "{}: statically linked or not for glibc, so it cannot ask for memory by name: leave out --select api",
            path.display()
        )));
    }
    Ok(())
}

/// The command that starts a program under the name `name`: the program itself, or the object that carries it.
fn start_of(path: &Path, name: &OsStr, loading: Loading, object: &Object) -> Command {
    match loading {
        Loading::Preloaded => {
            let mut command = Command::new(path);
            command.arg0(name).env("LD_PRELOAD", object.preload_list());
            command
        }
        Loading::Carried => {
            let mut command = Command::new(LINKER);
            command.arg(object.path()).arg(path).arg(name);
            // The linker would load the object twice.
            command.env_remove("LD_PRELOAD");
            command
        }
    }
}

/// Runs a program; the exit code is the program's.
pub(crate) fn run(args: Box<RunArgs>) -> Result<ExitCode, Refusal> {
    begin(args.options, Subject::Program(args.program))
}

/// What a run is for.
pub(crate) enum Subject {
    /// A program to start, and its arguments.
    Program(Vec<OsString>),
    /// Processes that run already, and join; `starter` is the name of the one that has asked for the run.
    Joining { starter: OsString, ready: Ready },
}

/// Makes a run, and stays until its end.
pub(crate) fn begin(options: RunOptions, subject: Subject) -> Result<ExitCode, Refusal> {
    let place = Environment::here();
    machine::check_page_bytes()?;
    machine::check_proc(&place)?;
    let mut options = options.with_file()?;
    let (words, ready) = match subject {
        Subject::Program(words) => (words, None),
        Subject::Joining { starter, ready } => {
            options = door::options_of(options)?;
            (vec![starter], Some(ready))
        }
    };
    // Check names and numbers before anything that depends on the machine.
    let mut settings = settings(&options)?;
    let quiet = options.quiet.is_some_and(|flag| flag.0);
    let model = options
        .device_model
        .as_ref()
        .map(Modelled::named)
        .transpose()?;
    if let Some(model) = &model {
        settings.device_model = Some(model.settings);
        settings.no_uring = true;
    }
    let stats = options.stats.as_deref();
    let stats = stats.map(|path| ResultFile::check("--stats", path));
    let stats = stats.transpose()?;
    let report = options
        .report
        .as_deref()
        .map(ReportFile::check)
        .transpose()?;
    let profile = options.profile.is_some_and(|flag| flag.0);
    let saved = options.save_pages.as_deref();
    let saved = saved.map(SavedPages::check).transpose()?;
    let to_follow = options.prefetch_pages.as_deref();
    let to_follow = to_follow.map(PagesToFollow::read).transpose()?;
    settings.follow = to_follow.as_ref().map(PagesToFollow::followed);
    settings.report = report.is_some() || profile || saved.is_some();
    let metrics = Targets::check(
        options.metrics.as_ref(),
        options.metrics_insecure.is_some_and(|flag| flag.0),
        options.metrics_file.as_deref(),
    )?;
    let (name, program_args) = words
        .split_first()
        .ok_or_else(|| Refusal::new("no program"))?;
    let mut names = Names {
        store: None,
        several: None,
        program: name.display().to_string(),
        preset: settings.preset,
        policy: settings.engine.policy,
        device: model.as_ref().map(Modelled::name),
        organization: match settings.chameleon {
            Some(ChameleonSettings {
                log_structuring: false,
                ..
            }) => "in place",
            _ => "log",
        },
    };
    let trace = options.trace.as_deref();
    let trace = trace.map(|path| ReferenceTrace::create(path, &words, &settings, &names));
    let trace = trace.transpose()?;
    settings.trace = trace.as_ref().map(ReferenceTrace::open_path);
    if settings.engine.shards && settings.trace.is_none() {
        return Err(Refusal::new(
            "--shards goes with --trace FILE: name the file",
        ));
    }
    if settings.engine.shards && settings.no_move {
        let line = "--shards needs moved pages, to see loads: leave it or --no-move out";
        return Err(Refusal::new(line));
    }
    settings.engine.first_store = choose_first_store(options.first_store, &settings)?;
    options.record.as_deref().map(check_record).transpose()?;
    if settings.follow.is_some() && options.record.is_some() {
        let line =
            "--record does not record what --prefetch-pages brings in: leave one of them out";
        return Err(Refusal::new(line));
    }
    let found = match &ready {
        None => Some(flashvm_live::program::find(name)?),
        Some(_) => None,
    };
    let fault = options.fault.unwrap_or(FaultMode::Auto);
    settings.delivery =
        doctor::choose_delivery(fault, settings.no_move).map_err(|why| match found {
            Some(_) => why,
            None => door::forbidden(why),
        })?;
    check_delivery(&settings)?;
    settings.malloc = choose_malloc(options.malloc, &settings)?;
    settings.huge_pages = choose_huge_pages(options.huge_pages, &settings)?;
    if let Some((path, Loading::Carried)) = &found {
        check_carried(path, &settings)?;
    }
    let flash = match &options.flash {
        Some(path) => path.clone(),
        None => machine::temporary_folder()?,
    };
    let store = RunStore::open(&flash, settings.ram_bytes, &options)?;
    settings.flash_bytes = store.bytes();
    settings.store = store.place();
    settings.encrypt |= must_encrypt(&settings)?;
    names.store = place_in_words(&settings);
    names.several = Several::of(&settings.store);
    if settings.chameleon.is_some() && matches!(store, RunStore::Mirror(_)) {
        return Err(Refusal::new(format!(
            "--flash {}: small pages cannot be mirrored, as their checksums do not tell which side is wrong: leave \
             --granularity 512 out, or name one side",
            flash.display()
        )));
    }
    if let Some(small) = &settings.chameleon {
        look_at_sectors(small, &flash, store.reads_sectors())?;
    }
    if settings.engine.discard.kind != DiscardKind::Off
        && let Err(why) = discards_work(&store, model.as_ref())
    {
        eprintln!(
            "flashvm: {}: the device refuses discards ({why}): the run sends none",
            flash.display()
        );
        settings.engine.discard = Discard::new(DiscardKind::Off);
    }
    check_own_rights()?;
    let object = Object::provide()?;
    if let Some(line) = budget_warning(settings.ram_bytes, &of_this_machine, &place) {
        eprintln!("flashvm: {line}");
    }
    let (control, control_fd) =
        Control::create(&settings).map_err(|e| Refusal::new(e.to_string()))?;
    control.set_backed(store.backed());
    tls::allow(control);

    let address = RunAddress {
        supervisor: std::process::id() as i32,
        supervisors: Descriptors {
            region: control_fd.as_raw_fd(),
            stores: store.descriptors(),
            object: object.descriptor(),
        },
        inherited: None,
    };
    let start = if let Some((path, loading)) = &found {
        let mut command = start_of(path, name, *loading, &object);
        command
            .args(program_args)
            .env_remove(refusal::FILE_VARIABLE)
            .env(VARIABLE, address.to_string());
        Start::Program(command)
    } else {
        let ready = ready.expect("a subject is a program or joins");
        Start::Joining(Door::new(object.path(), &address, ready))
    };
    if let Some(place) = metrics
        .as_ref()
        .and_then(Targets::served_at)
        .filter(|_| !quiet)
    {
        eprintln!("flashvm: metrics at {place}");
    }
    let device = model.map(|model| model.attend(control)).transpose()?;
    let mirror = match &store {
        RunStore::Mirror(mirror) => Some(mirror.attend(control)?),
        _ => None,
    };
    let tier = match &store {
        RunStore::Tier(tier) => Some(tier.attend(control)?),
        _ => None,
    };
    let attendants = Attendants {
        device,
        mirror,
        tier,
    };
    let progress = options.progress.is_some_and(|flag| flag.0);
    let progress = progress.then(|| Progress::new(control));
    let mut watch = settings
        .report
        .then(|| Watch::new(control, saved.is_some()));
    let metrics = metrics.map(|targets| Metrics::new(control, targets, &names));
    let outcome = supervise(
        start,
        control,
        attendants,
        progress,
        watch.as_mut(),
        metrics,
    )
    .map_err(|e| {
        Refusal::from(Refused::NotExecutable(format!(
            "{}: cannot be started: {e}",
            name.display()
        )))
    })?;

    if !quiet {
        eprint!("{}", summary::lines(&outcome, control, &names));
    } else if outcome.end != End::Exited(0) {
        eprint!("{}", summary::complaints(&outcome, control, &names));
    }
    eprint!(
        "{}",
        summary::decision_lines(&outcome, options.decisions.is_some())
    );
    if let Some(stats) = stats
        && let Err(e) = summary::stats_json(&outcome, control, &names)
            .map_err(Into::into)
            .and_then(|json| stats.write(&json))
    {
        eprintln!("flashvm: --stats: {e}");
    }
    if let Some(trace) = trace
        && let Err(refusal) = trace.finish(quiet)
    {
        eprintln!("flashvm: --trace: {refusal}");
    }
    let mut is_reported = true;
    if let Some(mut watch) = watch {
        watch.finish(&outcome);
        if let Some(saved) = saved {
            let how = names.settings(settings.ram_bytes);
            if let Err(refusal) = saved.write(watch.order(&outcome), &how, quiet) {
                eprintln!("flashvm: --save-pages: {refusal}");
                is_reported = false;
            }
        }
        if profile || report.is_some() {
            let record = watch.record(&outcome, &names, &words);
            if profile {
                eprint!("{}", profile_lines(&record));
            }
            if let Some(Err(e)) = report.map(|report| report.write(&record)) {
                eprintln!("flashvm: --report: {e}: the report is not written");
                is_reported = false;
            }
        }
    }
    Ok(match outcome.end {
        End::Exited(0) if !is_reported => ExitCode::from(refusal::BAD_INPUT),
        End::Exited(code) => ExitCode::from(code),
        End::Signalled(signal) => {
            sys::end_by(signal);
            ExitCode::from(128 + signal as u8)
        }
    })
}

/// Refuses to run with rights of the command's file: the kernel hides the descriptors of such a process from its own
/// children, which would load nothing and run unpaged.
fn check_own_rights() -> Result<(), Refusal> {
    if !sys::has_rights_of_its_file() {
        return Ok(());
    }
    let own = std::env::current_exe().unwrap_or_else(|_| Path::new("flashvm").to_owned());
    let own = own.display();
    Err(Refusal::new(format!(
        "{own} is setuid or setgid, or has file capabilities, so no program can be paged: take them away with chmod \
         ug-s and setcap -r"
    )))
}

/// Whether pages must be encrypted because they leave this machine.
fn must_encrypt(settings: &RunSettings) -> Result<bool, Refusal> {
    let mut servers = settings.store.servers();
    let leaves = servers.find(|server| !server.address.is_local());
    if let Some(server) = leaves
        && settings.chameleon.is_some()
    {
        return Err(Refusal::new(format!(
            "--flash {server}: pages that leave this machine are encrypted, and small pages cannot be: leave \
             --granularity 512 out, or name the near end of a tunnel"
        )));
    }
    Ok(leaves.is_some())
}

/// The names of sides, with words between them.
fn names_of(sides: &[SidePlace]) -> String {
    let (last, others) = sides.split_last().expect("sides");
    let others: Vec<_> = others.iter().map(|side| side.name.as_str()).collect();
    format!("{} and {}", others.join(", "), last.name)
}

/// A server, or sides, for the summary.
fn place_in_words(settings: &RunSettings) -> Option<String> {
    let how = if settings.encrypt { ", encrypted" } else { "" };
    match &settings.store {
        StorePlace::Here => None,
        StorePlace::Server(server) => Some(format!("{server}{how}")),
        StorePlace::Mirror(sides) => Some(match &sides[..] {
            [_, _] => format!("mirror of {}{how}", names_of(sides)),
            [both @ .., spare] => {
                format!("mirror of {}, spare {}{how}", names_of(both), spare.name)
            }
            [] => unreachable!("a mirror has sides"),
        }),
        StorePlace::Stripe(sides) => Some(format!("stripe over {}{how}", names_of(sides))),
        StorePlace::Tier { sides, first_bytes } => Some(format!(
            "tier of {} on {}, the rest on {}{how}",
            Size(*first_bytes),
            sides[0].name,
            sides[1].name
        )),
    }
}

/// Checks that store and device model accept discards; the error says why not.
fn discards_work(store: &RunStore, model: Option<&Modelled>) -> Result<(), String> {
    match model {
        Some(model) if !model.discards => Err(format!("the model {} has none", model.name())),
        _ => store.try_discard(),
    }
}

/// Refuses `prefix` if no file can be created there.
fn check_record(prefix: &Path) -> Result<(), Refusal> {
    let folder = prefix.parent().filter(|path| !path.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    rustix::fs::access(folder, rustix::fs::Access::WRITE_OK).map_err(|e| {
        Refusal::new(format!(
            "--record {}: {}: {e}: name a folder that can be written to",
            prefix.display(),
            folder.display()
        ))
    })
}
