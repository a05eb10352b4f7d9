//! `flashvm run`: checks everything that can be checked, then wires a run together: a store and
//! a control region without names, a program that finds both through `/proc`, a supervisor.

use super::args::{RunArgs, RunOptions};
use super::modelled::Modelled;
use super::progress::Progress;
use super::reference_trace::ReferenceTrace;
use super::refusal::Refusal;
use super::store::Store;
use super::summary::{self, Names, StatsFile};
use super::supervise::{End, supervise};
use super::units::{PerDay, Size};
use super::{config, doctor, granularity, machine, store, sys};
use flashvm::control::{ChameleonSettings, Control, Inject, RunSettings, VARIABLE};
use flashvm::program::Refused;
use flashvm_core::chameleon::BLOCK_BYTES;
use flashvm_core::{DiscardKind, WriteLimit};
use rustix::fd::AsRawFd;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// The preloaded object.
const PRELOAD_NAME: &str = "libflashvm_preload.so";
/// The least budget.
const RAM_BYTES_MIN: u64 = 4 << 20;

/// Runs a program.
pub(crate) fn run(args: Box<RunArgs>) -> Result<ExitCode, Refusal> {
    let file = args
        .config
        .as_deref()
        .map(config::read)
        .transpose()?
        .unwrap_or_default();
    let options = args.options.or(file);
    let mut settings = settings(&options)?;
    // Wrong names and numbers come before anything that depends on the machine.
    let engine = settings.engine_settings().map_err(Refusal::new)?;
    let model = options
        .device_model
        .as_deref()
        .map(Modelled::named)
        .transpose()?;
    if let Some(model) = &model {
        settings.device_model = Some(model.settings);
        settings.no_uring = true;
    }
    let stats = options.stats.as_deref().map(StatsFile::check).transpose()?;
    let trace = options.trace.as_deref();
    let trace = trace.map(|path| ReferenceTrace::create(path, &args.program, &settings));
    let trace = trace.transpose()?;
    settings.trace = trace.as_ref().map(ReferenceTrace::open_path);
    let (name, program_args) = args
        .program
        .split_first()
        .ok_or_else(|| Refusal::new("no program"))?;
    let path = flashvm::program::find(name)?;
    let preload = preload_object()?;
    settings.fault = doctor::choose_fault_mode(&settings.fault, settings.no_move)?.to_owned();
    granularity::check_fault_mode(&settings)?;
    let flash = match &options.flash {
        Some(path) => path.clone(),
        None => machine::temporary_folder()?,
    };
    if !options.test.flash_in_ram {
        store::refuse_ram(&flash)?;
    }
    let store = store::open(&flash, settings.ram_bytes, options.flash_size)?;
    settings.flash_bytes = store.bytes;
    if let Some(small) = &settings.chameleon {
        granularity::look_at_sectors(small, &flash, &store.fd)?;
    }
    if engine.discard.kind != DiscardKind::Off
        && let Err(why) = discards_work(&store, model.as_ref())
    {
        eprintln!(
            "flashvm: {}: discards are refused there ({why}): the run goes on without",
            flash.display()
        );
        settings.discard = Some("off".to_owned());
    }
    let (control, control_fd) =
        Control::create(&settings).map_err(|e| Refusal::new(e.to_string()))?;
    control.set_backed(store.backed);

    let mut command = Command::new(&path);
    command
        .arg0(name)
        .args(program_args)
        .env("LD_PRELOAD", preload_list(&preload))
        .env(
            VARIABLE,
            format!(
                "{}:{}:{}",
                std::process::id(),
                control_fd.as_raw_fd(),
                store.fd.as_raw_fd()
            ),
        );
    let device_name = model.as_ref().map(Modelled::name);
    let device = model.map(|model| model.attend(control)).transpose()?;
    let progress = options.progress.then(|| Progress::new(control));
    let outcome = supervise(command, control, device, progress).map_err(|e| {
        Refusal::from(Refused::NotExecutable(format!(
            "{}: cannot be started: {e}",
            path.display()
        )))
    })?;

    let names = Names {
        program: name.display().to_string(),
        preset: settings.preset,
        policy: engine.policy.to_string(),
        device: device_name,
        organization: match settings.chameleon {
            Some(ChameleonSettings {
                log_structuring: false,
                ..
            }) => "in place",
            _ => "log",
        },
    };
    if !options.quiet {
        eprint!("{}", summary::lines(&outcome, control, &names));
    } else if outcome.end != End::Exited(0) {
        eprint!("{}", summary::complaints(&outcome, control, &names));
    }
    if let Some(stats) = stats
        && let Err(e) = stats.write(&outcome, control, &names)
    {
        eprintln!("flashvm: --stats: {e}");
    }
    if let Some(trace) = trace
        && let Err(refusal) = trace.finish(options.quiet)
    {
        eprintln!("flashvm: --trace: {refusal}");
    }
    Ok(match outcome.end {
        End::Exited(code) => ExitCode::from(code),
        End::Signalled(signal) => {
            sys::end_by(signal);
            ExitCode::from(128 + signal as u8)
        }
    })
}

/// The settings of a run, all but the size of its store.
fn settings(options: &RunOptions) -> Result<RunSettings, Refusal> {
    let chameleon = granularity::chameleon(options)?;
    let ram = match options.ram {
        Some(Size(ram)) if ram < RAM_BYTES_MIN => {
            return Err(Refusal::new(format!(
                "--ram {}: less than 4 MiB: ask for 4M or more",
                Size(ram)
            )));
        }
        Some(Size(ram)) => {
            granularity::check_budget(ram, chameleon.as_ref())?;
            ram
        }
        None => machine::available_bytes()
            .map(|bytes| granularity::budget_at_most(bytes / 2, chameleon.as_ref()))
            .filter(|bytes| *bytes >= RAM_BYTES_MIN)
            .ok_or_else(|| {
                Refusal::new(
                    "too little memory is available for a default: name a budget with --ram",
                )
            })?,
    };
    if let Some(PerDay(bytes)) = options.write_limit
        && WriteLimit::new(bytes).is_none()
    {
        return Err(Refusal::new(format!(
            "--write-limit {}/day: less than {}/day: allow more",
            Size(bytes),
            Size(WriteLimit::BYTES_PER_DAY_MIN)
        )));
    }
    let fault = match options.fault.as_deref() {
        None | Some("auto") => "auto",
        Some("inline") => "inline",
        Some("handler") => "handler",
        Some(other) => {
            return Err(Refusal::new(format!(
                "unknown fault mode '{other}': known are auto, inline, handler"
            )));
        }
    };
    let inject = options.test.inject.as_deref().map(inject).transpose();
    Ok(RunSettings {
        ram_bytes: ram,
        // Until the store is open: what lets all other values be checked.
        flash_bytes: options
            .flash_size
            .map_or(ram.saturating_mul(2), |size| size.0),
        preset: options
            .preset
            .clone()
            .unwrap_or_else(|| "modern".to_owned()),
        policy: options.policy.clone(),
        prefetcher: options.test.prefetcher.clone(),
        readahead: options.readahead,
        stride: options.stride,
        preclean: options.preclean,
        cluster_bytes: match chameleon {
            Some(_) => Some(BLOCK_BYTES as u64),
            None => options.cluster.map(|size| size.0),
        },
        erase_block_bytes: options.erase_block.map(|size| size.0),
        zero_sharing: options.zero_sharing.map(|switch| switch.0),
        sampling: options.sampling.clone(),
        discard: options.discard.clone(),
        congestion_timeout_us: options.congestion_timeout.map(|timeout| timeout.0),
        fault: fault.to_owned(),
        write_limit_bytes: options.write_limit.map(|limit| limit.0),
        device_model: None,
        inject: inject?,
        record: options.test.record.clone(),
        trace: None,
        no_move: options.test.no_move,
        no_uring: options.test.no_uring || machine::io_uring().is_err(),
        check: options.test.check,
        chameleon,
    })
}

/// Whether discards can be sent, or why not.
fn discards_work(store: &Store, model: Option<&Modelled>) -> Result<(), String> {
    match model {
        Some(model) if !model.discards => Err(format!("the model {} knows none", model.name())),
        _ => store.try_discard().map_err(|e| e.to_string()),
    }
}

/// `read=PPM,write=PPM,flip=PPM,seed=N`, any of them.
fn inject(text: &str) -> Result<Inject, Refusal> {
    const ALL: u32 = 1_000_000;
    let mut inject = Inject::default();
    for part in text.split(',') {
        let wrong = || {
            Refusal::new(format!(
                "--inject: '{part}' is none of read=PPM, write=PPM, flip=PPM (up to {ALL}), seed=N"
            ))
        };
        let (name, value) = part.split_once('=').ok_or_else(wrong)?;
        let number: u64 = value.parse().map_err(|_| wrong())?;
        let ppm = u32::try_from(number).ok().filter(|&ppm| ppm <= ALL);
        match name {
            "read" => inject.read_error_ppm = ppm.ok_or_else(wrong)?,
            "write" => inject.write_error_ppm = ppm.ok_or_else(wrong)?,
            "flip" => inject.flip_ppm = ppm.ok_or_else(wrong)?,
            "seed" => inject.seed = number,
            _ => return Err(wrong()),
        }
    }
    Ok(inject)
}

/// Finds the object to preload: where a build or an installation puts it.
fn preload_object() -> Result<PathBuf, Refusal> {
    let own = std::env::current_exe()
        .map_err(|e| Refusal::new(format!("/proc/self/exe: {e}: mount /proc")))?;
    let folder = own.parent().unwrap_or(Path::new("/"));
    let places = [
        folder.to_owned(),
        folder.join("deps"),
        folder.join("../lib/flashvm"),
    ];
    let found = places
        .iter()
        .map(|place| place.join(PRELOAD_NAME))
        .filter(|path| path.is_file())
        // After a build for tests an older one may still lie beside the command.
        .max_by_key(|path| path.metadata().and_then(|m| m.modified()).ok())
        .and_then(|path| path.canonicalize().ok())
        .ok_or_else(|| {
            Refusal::new(format!(
                "{PRELOAD_NAME} is neither beside {} nor in ../lib/flashvm: build or install it again",
                own.display()
            ))
        })?;
    if found
        .as_os_str()
        .as_bytes()
        .iter()
        .any(|b| matches!(b, b':' | b' '))
    {
        return Err(Refusal::new(format!(
            "{}: the dynamic linker takes no path with a space or a colon: install elsewhere",
            found.display()
        )));
    }
    Ok(found)
}

/// `LD_PRELOAD` with the object in front of what is there already.
fn preload_list(object: &Path) -> OsString {
    let mut list = object.as_os_str().to_owned();
    let before = std::env::var_os("LD_PRELOAD").unwrap_or_default();
    for other in before.as_bytes().split(|b| matches!(b, b':' | b' ')) {
        if !other.is_empty() && other != object.as_os_str().as_bytes() {
            list.push(":");
            list.push(std::ffi::OsStr::from_bytes(other));
        }
    }
    list
}
