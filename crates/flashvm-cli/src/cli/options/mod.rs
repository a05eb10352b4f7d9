//! The options of `flashvm run`: one table, from which everything that knows of options is made.
//!
//! To add an option, add its lines to [`table`]. From there come the parser, `-h` and `--help`, the manual page,
//! completions, the keys of the configuration file, the README's table, and what is written into the
//! settings that reach the program. A test walks the table.
//!
//! - `table`: the options;
//! - `spec`: what an option is, and how the table becomes types and functions;
//! - `value`: how values are written; `choice`: those that are one of a few words;
//! - `parser`: the table as clap sees it; `file`: the configuration file; `readme`: the README's tables;
//! - `settings`: from options to the settings of a run; `granularity`: those of small pages.
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

pub(crate) use choice::FaultMode;
pub(crate) use granularity::{check_delivery, look_at_sectors};
pub(crate) use settings::{choose_malloc, settings};
pub(crate) use table::RunOptions;
