//! `flashvm man` and `flashvm completions`: generated from the parser, for packages.

use super::refusal::Refusal;
use super::write_out;
use clap::builder::PossibleValuesParser;
use clap::{Args, Command};
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
    #[arg(value_name = "bash|zsh|fish", value_parser = PossibleValuesParser::new(["bash", "zsh", "fish"]))]
    shell: String,
}

/// Prints one manual page of the command line, or writes all into the folder `--out`.
pub(super) fn man(mut line: Command, args: &ManArgs) -> Result<ExitCode, Refusal> {
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
    line.build();
    let mut page = &line;
    for name in &args.commands {
        page = page.find_subcommand(name).ok_or_else(|| {
            Refusal::new(format!(
                "no page for '{}': see flashvm --help for the commands",
                args.commands.join(" ")
            ))
        })?;
    }
    let mut text = Vec::new();
    let written = Man::new(page.clone()).render(&mut text);
    written.expect("memory takes what is written");
    write_out(&String::from_utf8_lossy(&text))
}

/// Prints the completions of the command line for a shell.
pub(super) fn completions(mut line: Command, args: &CompletionsArgs) -> Result<ExitCode, Refusal> {
    let shell = match &*args.shell {
        "bash" => Shell::Bash,
        "zsh" => Shell::Zsh,
        _ => Shell::Fish,
    };
    let mut text = Vec::new();
    generate(shell, &mut line, "flashvm", &mut text);
    write_out(&String::from_utf8_lossy(&text))
}
