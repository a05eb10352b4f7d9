//! `flashvm man` and `flashvm completions`: generated from the parser, for packages.

use super::refusal::Refusal;
use super::write_out;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Command, ValueEnum};
use clap_complete::{Shell, generate};
use clap_mangen::Man;
use std::path::PathBuf;
use std::process::ExitCode;

pub(super) const MAN_EXAMPLES: &str = "\
Examples:
  flashvm man run | man -l -
  flashvm man --out /usr/local/share/man/man1";

pub(super) const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  flashvm completions bash > /usr/local/share/bash-completion/completions/flashvm
  flashvm completions zsh > /usr/local/share/zsh/site-functions/_flashvm
  flashvm completions fish > ~/.config/fish/completions/flashvm.fish";

/// `flashvm man`.
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// The command whose page is printed, such as heap init [default: flashvm itself]
    #[arg(value_name = "COMMAND")]
    commands: Vec<String>,
    /// Write the pages of all commands into this folder
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

/// `flashvm completions`.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "bash|zsh|fish", value_parser = shells())]
    shell: Shell,
}

/// The shells whose completions are tested.
const SHELLS: [Shell; 3] = [Shell::Bash, Shell::Zsh, Shell::Fish];

fn shells() -> impl TypedValueParser<Value = Shell> {
    let names = SHELLS.iter().filter_map(Shell::to_possible_value);
    PossibleValuesParser::new(names).try_map(|name| name.parse::<Shell>())
}

/// Prints one manual page of the command line, or writes all into the folder `--out`.
pub(super) fn man(line: Command, args: &ManArgs) -> Result<ExitCode, Refusal> {
    if let Some(folder) = &args.out {
        if !args.commands.is_empty() {
            return Err(Refusal::new(
                "--out writes the pages of all commands: leave it or COMMAND out",
            ));
        }
        let refuse = |e| {
            Refusal::new(format!(
                "--out {}: {e}: name a folder that can be written to",
                folder.display()
            ))
        };
        return clap_mangen::generate_to(line, folder)
            .map(|()| ExitCode::SUCCESS)
            .map_err(refuse);
    }
    let page = page(line, &args.commands).ok_or_else(|| {
        Refusal::new(format!(
            "no page for '{}': see flashvm --help for the commands",
            args.commands.join(" ")
        ))
    })?;
    write_out(&page)
}

/// The manual page of a command: `[]` is flashvm itself, `["heap", "init"]` a subcommand. `None`: no such command.
pub(super) fn page(mut line: Command, commands: &[String]) -> Option<String> {
    line.build();
    let mut named = &line;
    for name in commands {
        named = named.find_subcommand(name)?;
    }
    let mut text = Vec::new();
    let written = Man::new(named.clone()).render(&mut text);
    written.expect("memory takes what is written");
    Some(String::from_utf8_lossy(&text).into_owned())
}

/// Prints the completions of the command line for a shell.
pub(super) fn completions(mut line: Command, args: &CompletionsArgs) -> Result<ExitCode, Refusal> {
    write_out(&completions_for(args.shell, &mut line))
}

/// The completions for a shell.
fn completions_for(shell: Shell, line: &mut Command) -> String {
    let mut text = Vec::new();
    generate(shell, line, "flashvm", &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// The completions for all shells.
#[cfg(test)]
pub(super) fn all_completions(line: &mut Command) -> [String; SHELLS.len()] {
    SHELLS.map(|shell| completions_for(shell, line))
}
