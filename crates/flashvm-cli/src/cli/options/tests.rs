//! Tests that walk the table: every option does what its entry promises.

use super::RunOptions;
use super::file;
use super::granularity;
use super::settings::settings;
use super::spec::{Applies, Group, Spec};
use super::table::{TABLE, USES};
use crate::cli::args::{Command, command, parse};
use crate::cli::documents::{all_completions, page};
use crate::cli::execute;
use clap::Args as _;
use flashvm_core::Preset;
use flashvm_live::Delivery;
use flashvm_live::control::{Control, RunSettings};
use std::collections::BTreeSet;
use std::ffi::OsString;

/// `flashvm run` with these words before the program.
fn line<'a>(words: impl IntoIterator<Item = &'a str>) -> Vec<OsString> {
    let words = ["flashvm", "run"].into_iter().chain(words);
    words.chain(["--", "true"]).map(OsString::from).collect()
}

/// The words of a command line that give an option `value`.
fn given(spec: &Spec, value: &str) -> Vec<String> {
    let value = (!spec.is_flag()).then(|| value.to_owned());
    [format!("--{}", spec.name)]
        .into_iter()
        .chain(value)
        .collect()
}

/// The options that `flashvm run` parses from these words.
fn options(words: &[String]) -> RunOptions {
    match parse(line(words.iter().map(String::as_str))) {
        Ok(Some(Command::Run(args))) => args.options,
        other => panic!("{words:?}: {other:?}"),
    }
}

fn of_example(spec: &Spec) -> RunOptions {
    options(&given(spec, spec.example))
}

/// The options with the example and without it. Both have what the example needs.
fn with_and_without(spec: &Spec) -> [RunOptions; 2] {
    let mut before = vec!["--ram".to_owned(), "64M".to_owned()];
    if spec.applies == Applies::SmallPages {
        before.extend(["--granularity".to_owned(), "512".to_owned()]);
    }
    let without = options(&before);
    [of_example(spec).or(without.clone()), without]
}

/// The settings that follow from the options alone, whatever the machine.
fn written(options: &RunOptions) -> RunSettings {
    let engine = Preset::default().settings();
    let mut settings = RunSettings::new(1 << 30, 2 << 30, engine, Delivery::Inline);
    options.apply(&mut settings);
    settings.chameleon = granularity::chameleon(options).expect("a heap that can be had");
    settings
}

/// A help text with single spaces instead of line breaks and indentation.
fn flowing(text: &str) -> String {
    Vec::from_iter(text.split_whitespace()).join(" ")
}

#[test]
fn every_option_parses_its_example() {
    let names: BTreeSet<_> = TABLE.iter().map(|spec| spec.name).collect();
    assert_eq!(names.len(), TABLE.len(), "a name stands twice");
    for spec in TABLE {
        let options = of_example(spec);
        for other in TABLE {
            let is_there = (other.kind.shown)(&options).is_some();
            assert_eq!(
                is_there,
                other.name == spec.name,
                "{}: {}",
                spec.name,
                other.name
            );
        }
        assert!(spec.is_flag() || spec.example != spec.refused);
    }
}

#[test]
fn every_option_is_in_the_help_with_an_example_and_its_default() {
    let mut command = RunOptions::augment_args(clap::Command::new("run")).term_width(100);
    let short = flowing(&command.render_help().to_string());
    let long = flowing(&command.render_long_help().to_string());
    for spec in TABLE {
        let name = match spec.is_flag() {
            true => format!("--{} ", spec.name),
            false => format!("--{} <{}>", spec.name, spec.value),
        };
        assert!(
            long.contains(&name) && long.contains(&flowing(spec.help)),
            "{name}"
        );
        assert_eq!(
            short.contains(&name),
            spec.group != Group::Studies,
            "{name}"
        );
        let example = format!("Example: {}", spec.use_of(spec.example));
        assert!(spec.is_flag() || long.contains(&example), "{example}");
        if let Some(default) = spec.default_text() {
            assert!(
                long.contains(&flowing(&format!("Default: {default}."))),
                "{default}"
            );
        }
        assert!(
            !spec.help.ends_with('.') && !spec.help.contains("  "),
            "{name}"
        );
    }
}

#[test]
fn every_option_is_in_the_manual_page_and_in_the_completions() {
    let page = page(command(), &["run".to_owned()]).expect("a page");
    // What groff has for a hyphen and an apostrophe.
    let page = flowing(&page.replace("\\-", "-").replace("\\*(Aq", "'"));
    let shells = all_completions(&mut command());
    for spec in TABLE {
        assert!(page.contains(&format!("--{}", spec.name)), "{}", spec.name);
        assert!(page.contains(&flowing(spec.help)), "{}", spec.help);
        for completions in &shells {
            assert!(completions.contains(spec.name), "{}", spec.name);
        }
    }
}

#[test]
fn every_option_survives_the_configuration_file() {
    for spec in TABLE {
        let values = match spec.is_flag() {
            true => vec!["true".to_owned(), "\"on\"".to_owned()],
            false => vec![format!("{:?}", spec.example)],
        };
        // A number needs no quotes.
        let number = spec.example.parse::<u64>().map(|number| number.to_string());
        for value in values.into_iter().chain(number) {
            let text = format!("# the file\n{} = {value}\n", spec.name);
            match file::parse(&text) {
                Ok(options) => assert_eq!(options, of_example(spec), "{text}"),
                Err((_, why)) => {
                    assert_eq!(spec.applies, Applies::CommandLine, "{text}: {why}");
                    assert!(why.contains(spec.name), "{why}");
                }
            }
        }
        if !spec.is_flag() && spec.applies != Applies::CommandLine {
            let off = file::parse(&format!("{} = [1]", spec.name));
            let (at, why) = off.expect_err("a list is no value");
            assert!(at > 0 && why.contains(spec.name), "{why}");
        }
    }
}

#[test]
fn the_command_line_wins_over_the_file() {
    for spec in TABLE {
        let mine = of_example(spec);
        let mut theirs = RunOptions::default();
        for other in TABLE.iter().filter(|other| !other.is_flag()) {
            theirs = theirs.or(of_example(other));
        }
        let both = mine.clone().or(theirs.clone());
        assert_eq!(
            (spec.kind.shown)(&both),
            (spec.kind.shown)(&mine),
            "{}",
            spec.name
        );
        for other in TABLE.iter().filter(|other| other.name != spec.name) {
            assert_eq!(
                (other.kind.shown)(&both),
                (other.kind.shown)(&theirs),
                "{}",
                other.name
            );
        }
    }
}

#[test]
fn every_option_of_the_program_reaches_it_through_the_settings_area() {
    for (spec, (name, used)) in TABLE.iter().zip(USES) {
        assert_eq!(spec.name, *name);
        let [with, without] = with_and_without(spec);
        let supervisor = match *used {
            "supervisor" => true,
            "sets" | "small_pages" => false,
            other => panic!("{name}: '{other}' is no use"),
        };
        assert_eq!(written(&with) == written(&without), supervisor, "{name}");
        let settings = settings(&with).expect(name);
        let (control, _fd) = Control::create(&settings).expect(name);
        assert_eq!(
            control.settings().expect("what was written"),
            settings,
            "{name}"
        );
    }
}

#[test]
fn every_option_refuses_a_bad_value() {
    for spec in TABLE.iter().filter(|spec| !spec.is_flag()) {
        let mut words = given(spec, spec.refused);
        if spec.applies == Applies::SmallPages {
            words.extend(["--granularity".to_owned(), "512".to_owned()]);
        }
        if spec.name != "ram" {
            words.extend(["--ram".to_owned(), "64M".to_owned()]);
        }
        let refusal = execute(line(words.iter().map(String::as_str)));
        let refusal = refusal.expect_err(spec.name);
        let text = refusal.to_string();
        assert_eq!(refusal.code(), 2, "{text}");
        assert!(!text.contains('\n'), "{text}");
        let named = [spec.refused, spec.name, &spec.name.replace('-', " ")];
        assert!(
            named.iter().any(|name| text.contains(name)),
            "{}: {text}",
            spec.name
        );
    }
}

#[test]
fn no_option_is_ignored_in_silence() {
    for spec in TABLE {
        let with = |granularity: &str| {
            let mut words = given(spec, spec.example);
            words.extend(["--granularity".to_owned(), granularity.to_owned()]);
            settings(&options(&words)).map_err(|refusal| refusal.to_string())
        };
        let refused = match spec.applies {
            Applies::SmallPages => with("4096"),
            Applies::WholePages => with("512"),
            Applies::Always | Applies::CommandLine => continue,
        };
        let line = refused.expect_err(spec.name);
        assert!(
            line.contains(spec.name) && line.contains("--granularity 512"),
            "{line}"
        );
    }
}
