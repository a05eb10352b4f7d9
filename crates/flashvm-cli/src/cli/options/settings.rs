//! Turns the options of a run into its settings, before program and store are checked.

use super::budget::{Budget, RAM_BYTES_MIN};
use super::choice::{Granularity, WhereHuge, WhoseMalloc};
use super::granularity;
use super::spec::{Applies, Spec};
use super::table::{RunOptions, TABLE};
use crate::cli::environment::Environment;
use crate::cli::machine;
use crate::cli::memory::of_this_machine;
use crate::cli::refusal::Refusal;
use flashvm_core::chameleon::BLOCK_BYTES;
use flashvm_core::{FirstStore, PAGE_SIZE, Preset};
use flashvm_live::Delivery;
use flashvm_live::control::{HugePages, Malloc, RunSettings, Select};

/// The settings of a run. The delivery, and without `--flash-size` the store's size, are placeholders that pass the
/// checks: `run` sets them later.
pub(crate) fn settings(options: &RunOptions) -> Result<RunSettings, Refusal> {
    TABLE.iter().try_for_each(|spec| options.check_use(spec))?;
    let chameleon = granularity::chameleon(options)?;
    let ram = match options.ram {
        Some(budget) => {
            let ram = budget.bytes(&of_this_machine, &Environment::here())?;
            granularity::check_budget(ram, chameleon.as_ref())?;
            ram
        }
        None => Budget::default_bytes(&of_this_machine)
            .map(|bytes| granularity::budget_at_most(bytes, chameleon.as_ref()))
            .filter(|bytes| *bytes >= RAM_BYTES_MIN)
            .ok_or_else(|| {
                Refusal::new(
                    "too little memory is available for a default: name a budget with --ram",
                )
            })?,
    };
    let engine = Preset::default().settings();
    let mut settings = RunSettings::new(ram, ram.saturating_mul(2), engine, Delivery::Inline);
    options.apply(&mut settings);
    settings.chameleon = chameleon;
    if chameleon.is_some() {
        settings.engine.cluster_pages = (BLOCK_BYTES / PAGE_SIZE) as u32;
    }
    settings.no_uring |= machine::io_uring().is_err();
    settings.check().map_err(Refusal::new)?;
    Ok(settings)
}

/// Chooses the program's `malloc`. `own` needs inline mode, where the guard sees the C library's system calls, and
/// excludes small pages, which have an allocator of their own.
pub(crate) fn choose_malloc(
    asked: Option<WhoseMalloc>,
    settings: &RunSettings,
) -> Result<Malloc, Refusal> {
    if settings.select == Select::Api {
        return match asked {
            Some(WhoseMalloc::Mimalloc) => Err(Refusal::new(
                "--select api leaves the program's malloc as it is: leave it or --malloc mimalloc out",
            )),
            _ => Ok(Malloc::Own),
        };
    }
    let handler = settings.delivery == Delivery::Handler;
    let small = settings.chameleon.is_some();
    match asked {
        None if handler || small => Ok(Malloc::Mimalloc),
        Some(WhoseMalloc::Mimalloc) => Ok(Malloc::Mimalloc),
        Some(WhoseMalloc::Own) if handler => Err(Refusal::new(
            "--malloc own does not work in handler mode: leave --fault handler out, or ask for --malloc mimalloc",
        )),
        Some(WhoseMalloc::Own) if small => Err(Refusal::new(
            "--malloc own keeps small objects on pages of 4 KiB: leave it or --granularity 512 out",
        )),
        None | Some(WhoseMalloc::Own) => Ok(Malloc::Own),
    }
}

/// How first stores are noticed: as asked, or as the preset has it. A trace or a report without the option has every
/// one of them.
pub(crate) fn choose_first_store(
    asked: Option<FirstStore>,
    settings: &RunSettings,
) -> Result<FirstStore, Refusal> {
    let policy = settings.engine.policy;
    match asked {
        Some(FirstStore::Compare) if !policy.ignores_stores() => Err(Refusal::new(format!(
            "--first-store compare: the policy {policy} tells clean pages from dirty ones: leave the option out, or name \
             another --policy"
        ))),
        Some(FirstStore::Compare) if settings.no_move => Err(Refusal::new(
            "--first-store compare needs moved pages: leave it or --no-move out",
        )),
        None if settings.report || settings.trace.is_some() => Ok(FirstStore::Fault),
        _ => Ok(settings.engine.first_store),
    }
}

/// Where the program gets huge pages: by default as the kernel is set. The presets of the papers have none.
pub(crate) fn choose_huge_pages(
    asked: Option<WhereHuge>,
    settings: &RunSettings,
) -> Result<HugePages, Refusal> {
    let here = machine::huge_pages();
    let moves = !settings.no_move && settings.delivery != Delivery::Protect;
    let (word, wanted) = match asked {
        None if settings.preset == Preset::Modern && moves && !settings.engine.shards => {
            return Ok(here);
        }
        None | Some(WhereHuge::Never) => return Ok(HugePages::Never),
        Some(word @ WhereHuge::Always) => (word, HugePages::Always),
        Some(word @ WhereHuge::Madvise) => (word, HugePages::Madvise),
    };
    if settings.engine.shards {
        return Err(Refusal::new(format!(
            "--huge-pages {word} hides touches of single pages: leave it or --shards out"
        )));
    }
    if !moves {
        return Err(Refusal::new(format!(
            "--huge-pages {word} needs moved pages: leave it, --no-move or --fault protect out"
        )));
    }
    // A kernel that is set to `always` gives them where the program asks, too.
    if here != HugePages::Always && here != wanted {
        return Err(Refusal::new(format!(
            "--huge-pages {word}: this kernel does not: leave it out, or, as root: echo {word} > {}",
            machine::HUGE_PAGES
        )));
    }
    Ok(wanted)
}

impl RunOptions {
    /// Whether there is a heap of small pages: a peer implies it.
    pub(super) fn small_pages(&self) -> bool {
        self.granularity.map_or(self.peer.is_some(), |granularity| {
            granularity == Granularity::Small
        })
    }

    /// Refuses an option that has no effect with the chosen page size.
    fn check_use(&self, spec: &Spec) -> Result<(), Refusal> {
        let Some(value) = (spec.kind.shown)(self) else {
            return Ok(());
        };
        let given = spec.use_of(&value);
        match spec.applies {
            Applies::SmallPages if !self.small_pages() => Err(Refusal::new(format!(
                "{given} is for small pages: add --granularity 512"
            ))),
            Applies::WholePages if self.small_pages() => Err(Refusal::new(format!(
                "{given} is for pages of 4 KiB alone: leave it or --granularity 512 out"
            ))),
            _ => Ok(()),
        }
    }
}
