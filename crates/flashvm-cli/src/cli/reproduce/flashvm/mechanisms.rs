//! The mechanisms of the paper, each alone: switched on over Linux's settings, or off in FlashVM's.

use crate::cli::units::{Micros, Switch, WholePages};
use flashvm_core::{Preset, Settings};
use flashvm_sim::ModelKind;

/// A mechanism.
pub(super) struct Mechanism {
    pub(super) name: &'static str,
    /// Takes the settings of this mechanism alone from another system.
    take: fn(&mut Settings, &Settings),
    /// The drive on which it does something.
    model: ModelKind,
}

const INTEL: ModelKind = ModelKind::IntelX25m;

/// Pages between kswapd's watermarks in 1 GB of RAM; FlashVM's runs of writes have 170 to 230 (5.2.1).
pub(super) const WRITE_RUN: u32 = 256;

/// In the order of the paper.
pub(super) static ALL: [Mechanism; 7] = [
    Mechanism {
        name: "clusters of an erase block",
        take: |to, from| to.cluster_pages = from.cluster_pages,
        model: INTEL,
    },
    Mechanism {
        name: "fine throttling",
        take: |to, from| {
            to.congestion_allocator = from.congestion_allocator;
            to.congestion_cleaner = from.congestion_cleaner;
        },
        model: INTEL,
    },
    Mechanism {
        name: "prefetching over free slots",
        take: |to, from| to.prefetcher = from.prefetcher,
        model: INTEL,
    },
    Mechanism {
        name: "stride prefetching",
        take: |to, from| to.stride = from.stride,
        model: INTEL,
    },
    Mechanism {
        name: "page sampling",
        take: |to, from| to.sampling = from.sampling,
        model: INTEL,
    },
    Mechanism {
        name: "page sharing",
        take: |to, from| to.zero_sharing = from.zero_sharing,
        model: INTEL,
    },
    // The Intel SSD takes no discards.
    Mechanism {
        name: "discards",
        take: |to, from| to.discard = from.discard,
        model: ModelKind::OczVertex,
    },
];

/// A system of the ablation.
pub(super) struct System {
    pub(super) name: String,
    pub(super) settings: Settings,
    pub(super) model: ModelKind,
    /// The place in the list of the system without the change; its own if it is none.
    pub(super) base: usize,
    /// The mechanism, by its place in [`ALL`], and whether it is switched on.
    pub(super) changed: Option<(usize, bool)>,
}

/// Linux and FlashVM on both drives, and both with each mechanism changed alone.
pub(super) fn systems() -> Vec<System> {
    let presets = [("Linux", Preset::Native), ("FlashVM", Preset::Flashvm)];
    let settings = presets.map(|(_, preset)| preset.settings());
    let mut systems = Vec::new();
    for (side, (name, _)) in presets.into_iter().enumerate() {
        let base = systems.len();
        let (own, other) = (&settings[side], &settings[1 - side]);
        let models = [INTEL, ModelKind::OczVertex];
        for (place, model) in models.into_iter().enumerate() {
            systems.push(System {
                name: name.to_owned(),
                settings: own.clone(),
                model,
                base: base + place,
                changed: None,
            });
        }
        let mut change = |name: String, model: ModelKind, settings: Settings, changed| {
            let place = models.iter().position(|&one| one == model);
            systems.push(System {
                name,
                settings,
                model,
                base: base + place.expect("one of the two"),
                changed,
            });
        };
        for (at, mechanism) in ALL.iter().enumerate() {
            let is_on = side == 0;
            let word = if is_on { "with" } else { "without" };
            let mut settings = own.clone();
            (mechanism.take)(&mut settings, other);
            let name = format!("{name} {word} {}", mechanism.name);
            change(name, mechanism.model, settings, Some((at, is_on)));
        }
        // In neither preset.
        let settings = Settings {
            write_run: WRITE_RUN,
            ..own.clone()
        };
        change(format!("{name} with runs of writes"), INTEL, settings, None);
    }
    systems
}

/// The options of `flashvm run` for these settings, whatever the preset; replacement is that of both presets.
pub(super) fn options(settings: &Settings) -> Vec<String> {
    let timeout = |time: flashvm_core::Nanos| Micros(time.0 / 1000).to_string();
    let values = [
        ("--preset", Preset::Native.to_string()),
        ("--prefetcher", settings.prefetcher.to_string()),
        ("--readahead", settings.readahead.to_string()),
        ("--stride", settings.stride.to_string()),
        ("--preclean", settings.preclean.to_string()),
        ("--write-run", settings.write_run.to_string()),
        ("--cluster", WholePages(settings.cluster_pages).to_string()),
        ("--zero-sharing", Switch(settings.zero_sharing).to_string()),
        ("--sampling", settings.sampling.to_string()),
        ("--discard", settings.discard.to_string()),
        (
            "--congestion-timeout",
            timeout(settings.congestion_allocator),
        ),
        ("--cleaner-timeout", timeout(settings.congestion_cleaner)),
    ];
    let words = values.into_iter();
    words
        .flat_map(|(option, value)| [option.to_owned(), value])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_mechanisms_together_make_flashvm_out_of_linux() {
        let (mut linux, flashvm) = (Preset::Native.settings(), Preset::Flashvm.settings());
        for mechanism in &ALL {
            let before = linux.clone();
            (mechanism.take)(&mut linux, &flashvm);
            assert_ne!(linux, before, "{} changes nothing", mechanism.name);
        }
        assert_eq!(linux, flashvm);
    }

    #[test]
    fn a_base_is_its_own_base_and_differs_in_one_mechanism() {
        let systems = systems();
        for (at, system) in systems.iter().enumerate() {
            let base = &systems[system.base];
            assert_eq!(base.model, system.model, "{}", system.name);
            assert_eq!(
                at == system.base,
                system.settings == base.settings,
                "{}",
                system.name
            );
        }
    }
}
