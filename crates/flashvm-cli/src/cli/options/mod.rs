//! The options of `flashvm run`, in one table.
//!
//! To add an option, add an entry to [`table`]. It yields the parser, `-h` and `--help`, the manual page,
//! completions, the keys of the configuration file, the README's tables and the run's settings. Tests walk the
//! table.
//!
//! - `table`: the options;
//! - `spec`: an option's properties; the macro that makes types and functions from the table;
//! - `value`: parsing and printing of values; `choice`: values that are one of a few words;
//! - `parser`: the table as clap's arguments; `file`: the configuration file; `readme`: the README's tables;
//! - `budget`: the budget of RAM, and the memory limit;
//! - `settings`: turns options into the settings of a run; `granularity`: does so for small pages.
mod budget;
mod choice;
mod file;
mod granularity;
mod parser;
#[cfg(test)]
mod readme;
mod settings;
mod spec;
mod table;
#[cfg(test)]
mod tests;
mod value;

pub(crate) use budget::{Budget, warning as budget_warning};
pub(crate) use choice::{FaultMode, WhichMemory};
pub(crate) use granularity::{check_delivery, look_at_sectors};
pub(crate) use settings::{choose_first_store, choose_huge_pages, choose_malloc, settings};
pub(crate) use table::RunOptions;
