//! The syntax of values, the same on the command line and in the configuration file.

use super::budget::Budget;
use super::choice::{
    FaultMode, Granularity, LivePolicy, Peer, WhereHuge, WhichDecisions, WhichMemory, WhoseMalloc,
};
use crate::cli::device::ModelName;
use crate::cli::metrics::MetricsAddress;
use crate::cli::units::{Micros, PerDay, Size, Switch, WholePages};
use clap::builder::{OsStringValueParser, PossibleValue, TypedValueParser};
use clap::error::Error;
use clap::{Arg, ArgAction, ArgMatches, Command};
use flashvm_core::{
    Compression, Discard, DiscardKind, FirstStore, PrefetcherKind, Preset, Sampling,
};
use flashvm_live::control::Inject;
use flashvm_sim::ModelKind;
use std::ffi::OsStr;
use std::marker::PhantomData;
use std::path::PathBuf;

/// The value of an option.
pub(super) trait Value: Sized + Clone + Send + Sync + 'static {
    /// Parses a value; the error is one line that names `text` or the part of it that is wrong.
    fn parse(text: &OsStr) -> Result<Self, String>;

    /// The value as text for messages and help.
    fn shown(&self) -> String;

    /// The words that the value may be or start with; empty if there is no such list.
    fn choices() -> Vec<&'static str> {
        Vec::new()
    }

    /// Completes clap's argument for an option of this type.
    fn arg(arg: Arg) -> Arg {
        arg.action(ArgAction::Set)
            .value_parser(Parser::<Self>::new())
    }

    /// Takes the value that clap has parsed; `None`: the option was not given.
    fn take(matches: &ArgMatches, name: &str) -> Option<Self> {
        matches.get_one(name).cloned()
    }
}

/// A parser for clap that calls [`Value::parse`].
struct Parser<T>(PhantomData<fn() -> T>);

impl<T> Parser<T> {
    fn new() -> Self {
        Self(PhantomData)
    }
}

impl<T> Clone for Parser<T> {
    fn clone(&self) -> Self {
        Self::new()
    }
}

impl<T: Value> TypedValueParser for Parser<T> {
    type Value = T;

    fn parse_ref(&self, cmd: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<T, Error> {
        let parser = OsStringValueParser::new().try_map(|text| T::parse(&text));
        parser.parse_ref(cmd, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let choices = T::choices();
        (!choices.is_empty()).then(|| Box::new(choices.into_iter().map(PossibleValue::new)) as _)
    }
}

/// `text` as UTF-8, or a refusal.
fn text(text: &OsStr) -> Result<&str, String> {
    let refuse = || format!("'{}' is not UTF-8: see flashvm run --help", text.display());
    text.to_str().ok_or_else(refuse)
}

/// A flag; the configuration file may also say `false`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flag(pub(crate) bool);

impl Value for Flag {
    fn parse(value: &OsStr) -> Result<Self, String> {
        Switch::parse(value).map(|switch| Self(switch.0))
    }

    fn shown(&self) -> String {
        Switch(self.0).shown()
    }

    fn arg(arg: Arg) -> Arg {
        arg.action(ArgAction::SetTrue)
    }

    fn take(matches: &ArgMatches, name: &str) -> Option<Self> {
        matches.get_flag(name).then_some(Self(true))
    }
}

impl Value for PathBuf {
    fn parse(text: &OsStr) -> Result<Self, String> {
        match text.is_empty() {
            true => Err("'' is no path: name one".to_owned()),
            false => Ok(text.into()),
        }
    }

    fn shown(&self) -> String {
        self.display().to_string()
    }
}

impl Value for u32 {
    fn parse(value: &OsStr) -> Result<Self, String> {
        let value = text(value)?;
        let refuse = |_| format!("'{value}' is not a whole number from 0 to {}", Self::MAX);
        value.parse().map_err(refuse)
    }

    fn shown(&self) -> String {
        self.to_string()
    }
}

impl Value for Inject {
    /// `read=PPM,write=PPM,flip=PPM,seed=N`, any of them.
    fn parse(value: &OsStr) -> Result<Self, String> {
        const ALL: u32 = 1_000_000;
        let mut inject = Self::default();
        for part in text(value)?.split(',') {
            let wrong = || {
                format!("'{part}' is none of read=PPM, write=PPM, flip=PPM (up to {ALL}), seed=N")
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

    fn shown(&self) -> String {
        format!(
            "read={},write={},flip={},seed={}",
            self.read_error_ppm, self.write_error_ppm, self.flip_ppm, self.seed
        )
    }
}

/// Implements `Value` for types with `FromStr` and `Display`. Each has its list of choices.
macro_rules! written {
    ($($kind:ty: $choices:expr;)*) => {$(
        impl Value for $kind {
            fn parse(value: &OsStr) -> Result<Self, String> {
                text(value)?.parse().map_err(|e| format!("{e}"))
            }

            fn shown(&self) -> String {
                self.to_string()
            }

            fn choices() -> Vec<&'static str> {
                Vec::from($choices)
            }
        }
    )*};
}

written! {
    Budget: [];
    Size: [];
    WholePages: [];
    Micros: [];
    PerDay: [];
    Switch: ["on", "off"];
    Preset: Preset::ALL.map(|(_, name)| name);
    LivePolicy: Vec::from_iter(LivePolicy::names());
    PrefetcherKind: Vec::from_iter(PrefetcherKind::ALL.iter().map(|info| info.name));
    Discard: Vec::from_iter(DiscardKind::ALL.iter().map(|info| info.name));
    FirstStore: FirstStore::ALL.map(|(_, word)| word);
    Compression: ["off", "auto", "lz4", "zstd"];
    Sampling: ["off", "uniform:20", "adaptive:20"];
    FaultMode: FaultMode::ALL.map(|(_, word)| word);
    WhichMemory: WhichMemory::ALL.map(|(_, word)| word);
    WhoseMalloc: WhoseMalloc::ALL.map(|(_, word)| word);
    WhichDecisions: WhichDecisions::ALL.map(|(_, word)| word);
    WhereHuge: WhereHuge::ALL.map(|(_, word)| word);
    Granularity: Granularity::ALL.map(|(_, word)| word);
    Peer: ["log-swap", "ssdalloc:25"];
    MetricsAddress: [];
    ModelName: Vec::from_iter(ModelKind::ALL.iter().map(|info| info.name));
}
