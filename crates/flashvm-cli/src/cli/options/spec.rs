//! An option's properties; the macro that makes a struct of typed fields from the table.

use super::table::RunOptions;
use clap::{Arg, ArgMatches};
use flashvm_core::{Preset, Settings};
use std::ffi::OsStr;

/// An option.
pub(crate) struct Spec {
    /// On the command line with two dashes, in the configuration file without.
    pub(crate) name: &'static str,
    /// The placeholder for the value in the help; empty for a flag.
    pub(crate) value: &'static str,
    pub(crate) group: Group,
    /// Its effect, without a full stop at the end.
    pub(crate) help: &'static str,
    pub(crate) default: Fallback,
    /// A valid value; empty for a flag.
    pub(crate) example: &'static str,
    /// A refused value; empty for a flag.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "for the test that walks the table")
    )]
    pub(crate) refused: &'static str,
    pub(crate) applies: Applies,
    pub(super) kind: Kind,
}

/// The heading of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    /// The main options, which the README lists too.
    Run,
    /// Reports of a run.
    Report,
    /// The pager's decisions; each preset has its defaults.
    Paging,
    /// Properties of the store's device, and limits on its use.
    Device,
    /// The heap of small pages.
    SmallPages,
    /// For tests and studies; hidden from the short help.
    Studies,
}

/// The default of an option.
pub(crate) enum Fallback {
    /// These words.
    Words(&'static str),
    /// The preset's value.
    Preset(fn(&Settings) -> String),
    /// No default.
    None,
}

/// Where an option works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Applies {
    /// Everywhere.
    Always,
    /// Only with small pages: `--granularity 512` or `--peer`.
    SmallPages,
    /// Only without small pages.
    WholePages,
    /// Only on the command line, not in the configuration file.
    CommandLine,
}

/// The functions of an option that know its type.
pub(super) struct Kind {
    /// Completes the argument for clap.
    pub(super) arg: fn(Arg) -> Arg,
    /// Takes the value that clap has parsed.
    pub(super) take: fn(&ArgMatches, &mut RunOptions),
    /// Sets the value from a text.
    pub(super) set: fn(&mut RunOptions, &OsStr) -> Result<(), String>,
    /// The value as text.
    pub(super) shown: fn(&RunOptions) -> Option<String>,
    /// The words that the value may be or start with, if there is such a list.
    pub(super) choices: fn() -> Vec<&'static str>,
}

impl Spec {
    /// Whether the option takes no value.
    pub(crate) fn is_flag(&self) -> bool {
        self.value.is_empty()
    }

    /// The default in words: that of the default preset, then those of the presets that differ.
    pub(crate) fn default_text(&self) -> Option<String> {
        match self.default {
            Fallback::Words(words) => Some(words.to_owned()),
            Fallback::None => None,
            Fallback::Preset(of) => {
                let default = of(&Preset::default().settings());
                let others = Preset::ALL.iter().filter_map(|(preset, name)| {
                    let value = of(&preset.settings());
                    (value != default).then(|| format!("{name}: {value}"))
                });
                let others = Vec::from_iter(others);
                Some(match others.is_empty() {
                    true => default,
                    false => format!("{default}; {}", others.join(", ")),
                })
            }
        }
    }

    /// The option with `value`, as on a command line.
    pub(crate) fn use_of(&self, value: &str) -> String {
        match self.is_flag() {
            true => format!("--{}", self.name),
            false => format!("--{} {value}", self.name),
        }
    }
}

impl Group {
    /// The heading in the help; `None`: clap's own.
    pub(crate) fn heading(self) -> Option<&'static str> {
        match self {
            Self::Run => None,
            Self::Report => Some("Reports"),
            Self::Paging => Some("Paging"),
            Self::Device => Some("Device"),
            Self::SmallPages => Some("Small pages"),
            Self::Studies => Some("Tests and studies"),
        }
    }
}

/// Makes the struct of options, the table, and the functions over all options.
///
/// An entry is `field: Type = "name" { what Spec says } use;` where `use` is one of
/// `sets |value, settings| ...` (written into the settings that reach the program), `small_pages` (gathered in
/// `granularity`), or `supervisor` (used by the command itself). The test that walks the table checks it.
macro_rules! options {
    ($(
        $(#[$doc:meta])*
        $field:ident: $kind:ty = $name:literal { $($key:ident: $what:expr),* $(,)? }
        $used:ident $(|$value:ident, $settings:ident| $apply:expr)?;
    )*) => {
        /// The given options of a run.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub(crate) struct RunOptions {
            $($(#[$doc])* pub(crate) $field: Option<$kind>,)*
        }

        /// All options, in the order of the help.
        pub(crate) const TABLE: &[Spec] = &[$(Spec {
            name: $name,
            $($key: $what,)*
            kind: Kind {
                arg: <$kind as Value>::arg,
                take: |matches, options| {
                    options.$field = <$kind as Value>::take(matches, $name);
                },
                set: |options, text| {
                    options.$field = Some(<$kind as Value>::parse(text)?);
                    Ok(())
                },
                shown: |options| options.$field.as_ref().map(Value::shown),
                choices: <$kind as Value>::choices,
            },
        }),*];

        /// The use of each option.
        #[cfg(test)]
        pub(super) const USES: &[(&str, &str)] = &[$(($name, stringify!($used))),*];

        impl RunOptions {
            /// These options; `file` fills the gaps.
            pub(crate) fn or(self, file: Self) -> Self {
                Self { $($field: self.$field.or(file.$field),)* }
            }

            /// Writes the given options into the settings, in the order of the table.
            pub(super) fn apply(&self, settings: &mut RunSettings) {
                $($(
                    if let Some($value) = &self.$field {
                        let $settings = &mut *settings;
                        $apply;
                    }
                )?)*
            }
        }
    };
}
pub(super) use options;
