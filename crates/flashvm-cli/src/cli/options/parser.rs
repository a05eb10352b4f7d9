//! The table as clap's arguments, with their help.

use super::spec::{Applies, Group, Spec};
use super::table::{RunOptions, TABLE};
use clap::error::Error;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

impl Spec {
    /// The argument of a command that has this option.
    pub(super) fn arg(&self) -> Arg {
        let mut arg = Arg::new(self.name)
            .long(self.name)
            .help(self.short_help())
            .long_help(self.long_help())
            .help_heading(self.group.heading())
            .hide_short_help(self.group == Group::Studies);
        if !self.is_flag() {
            arg = arg.value_name(self.value).hide_possible_values(true);
        }
        (self.kind.arg)(arg)
    }

    /// The text of `-h`: the help and the default.
    fn short_help(&self) -> String {
        match self.default_text() {
            Some(default) => format!("{} [default: {default}]", self.help),
            None => self.help.to_owned(),
        }
    }

    /// The text of `--help` and the manual page.
    fn long_help(&self) -> String {
        let mut help = format!("{}.", self.help);
        let choices = (self.kind.choices)();
        if !choices.is_empty() && !choices.iter().all(|choice| self.value.contains(choice)) {
            help.push_str(&format!("\nKnown: {}.", choices.join(", ")));
        }
        if let Some(words) = self.applies.words() {
            help.push_str(&format!(" {words}."));
        }
        if let Some(default) = self.default_text() {
            help.push_str(&format!("\nDefault: {default}."));
        }
        if !self.is_flag() {
            help.push_str(&format!("\nExample: {}", self.use_of(self.example)));
        }
        help
    }
}

impl Applies {
    /// The restriction in words, if any.
    fn words(self) -> Option<&'static str> {
        match self {
            Self::Always => None,
            Self::SmallPages => Some("Only with --granularity 512"),
            Self::WholePages => Some("Not with --granularity 512"),
            Self::CommandLine => Some("Not in a configuration file"),
        }
    }
}

impl Args for RunOptions {
    fn augment_args(command: Command) -> Command {
        command.args(TABLE.iter().map(Spec::arg))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for RunOptions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut options = Self::default();
        options.update_from_arg_matches(matches)?;
        Ok(options)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        TABLE
            .iter()
            .for_each(|spec| (spec.kind.take)(matches, self));
        Ok(())
    }
}
