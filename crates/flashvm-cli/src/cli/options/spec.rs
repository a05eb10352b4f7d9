//! What an option is, and how the table becomes a struct of typed fields.

use super::table::RunOptions;
use clap::{Arg, ArgMatches};
use flashvm_core::{Preset, Settings};
use std::ffi::OsStr;

/// An option.
pub(crate) struct Spec {
    /// On the command line with two dashes, in the configuration file as it is.
    pub(crate) name: &'static str,
    /// What stands for the value in the help; empty: a flag.
    pub(crate) value: &'static str,
    /// With what it is listed.
    pub(crate) group: Group,
    /// What it does.
    pub(crate) help: &'static str,
    /// What holds where it is not given.
    pub(crate) default: Fallback,
    /// A value that can be used; a flag has none.
    pub(crate) example: &'static str,
    /// A value that is refused; a flag has none.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "for the test that walks the table")
    )]
    pub(crate) refused: &'static str,
    /// With which pages it works.
    pub(crate) applies: Applies,
    /// How the table's types do their part.
    pub(super) kind: Kind,
}

/// Under which heading an option is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    /// What a user reads first: these are in the README as well.
    Run,
    /// What is told of a run.
    Report,
    /// How the pager decides; the preset has a default for each.
    Paging,
    /// What the store is taken for, and what it is spared.
    Device,
    /// The heap of small pages.
    SmallPages,
    /// Not in the short help.
    Studies,
}

/// What holds where an option is not given.
pub(crate) enum Fallback {
    /// What these words say.
    Words(&'static str),
    /// What the preset has.
    Preset(fn(&Settings) -> String),
    /// Nothing.
    None,
}

/// With which pages an option works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Applies {
    /// With all.
    Always,
    /// Only with `--granularity 512`.
    SmallPages,
    /// Only without.
    WholePages,
    /// On the command line alone, not in the configuration file.
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
    /// The value, as it may be written.
    pub(super) shown: fn(&RunOptions) -> Option<String>,
    /// The words that the value may be or begin with, if they are known.
    pub(super) choices: fn() -> Vec<&'static str>,
}

impl Spec {
    /// Whether it takes no value.
    pub(crate) fn is_flag(&self) -> bool {
        self.value.is_empty()
    }

    /// The default in words.
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

    /// Its use, as on a command line.
    pub(crate) fn use_of(&self, value: &str) -> String {
        match self.is_flag() {
            true => format!("--{}", self.name),
            false => format!("--{} {value}", self.name),
        }
    }
}

impl Group {
    /// Its heading, if it is not clap's own.
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

/// Makes the struct of options, the table, and what is done with all options.
///
/// An entry is `field: Type = "name" { what Spec says } use;` where `use` is one of
/// `sets |value, settings| ...` (written into the settings that reach the program), `small_pages` (gathered in
/// `granularity`), and `supervisor` (used by the command itself).
macro_rules! options {
    ($(
        $(#[$doc:meta])*
        $field:ident: $kind:ty = $name:literal { $($key:ident: $what:expr),* $(,)? }
        $used:ident $(|$value:ident, $settings:ident| $apply:expr)?;
    )*) => {
        /// The options of a run that were given.
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

        /// What each option is used for.
        #[cfg(test)]
        pub(super) const USES: &[(&str, &str)] = &[$(($name, stringify!($used))),*];

        impl RunOptions {
            /// These options, and those of `file` where they say nothing.
            pub(crate) fn or(self, file: Self) -> Self {
                Self { $($field: self.$field.or(file.$field),)* }
            }

            /// Writes what was given into the settings, in the order of the table.
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
