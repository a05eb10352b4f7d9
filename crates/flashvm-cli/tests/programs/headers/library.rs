//! The crate `flashvm`, the library of Rust programs, under `flashvm run`. The program is this test itself: it starts itself with the
//! name of an ignored test, which finds itself in a run.

use crate::LIMIT;
use crate::support::{self, FLASHVM, Outcome, can_page, flashvm_run, run_bounded};
use std::path::Path;

#[path = "../../../../flashvm/examples/larger_than_ram.rs"]
#[allow(dead_code, reason = "its main is the example's")]
mod larger_than_ram;

/// The arguments with which this test is one of its ignored tests.
fn words(name: &str) -> Vec<String> {
    let this = std::env::current_exe().expect("this test");
    let (_, module) = module_path!()
        .split_once("::")
        .expect("a module of the test");
    let name = format!("{module}::inside::{name}");
    let this = this.display().to_string();
    [&this, "--ignored", "--exact", &name, "--nocapture"]
        .map(str::to_owned)
        .to_vec()
}

/// The ignored test has run, and has passed.
fn expect_passed(name: &str, outcome: Outcome) -> Outcome {
    let outcome = outcome.expect_success(name);
    assert!(
        outcome.stdout.contains("1 passed"),
        "{name}: {}",
        outcome.stdout
    );
    outcome
}

/// Runs an ignored test under the command.
fn passes(name: &str, options: &[&str]) -> Option<Outcome> {
    can_page(name).then(|| expect_passed(name, flashvm_run(name, options, &words(name), LIMIT)))
}

#[test]
fn data_larger_than_ram() {
    for select in ["api", "all"] {
        let options = ["--ram", "32M", "--select", select];
        if let Some(outcome) = passes("larger_than_ram_is_as_without_limits", &options) {
            assert!(outcome.stat("pages_out") > 0, "{}", outcome.stats);
        }
    }
}

#[test]
fn collections_of_other_crates() {
    passes("collections", &["--ram", "10M", "--select", "api"]);
}

#[test]
fn memory_keeps_its_promises() {
    passes("mappings", &["--ram", "8M", "--select", "api"]);
}

#[test]
fn a_full_store_is_an_error() {
    let options = ["--ram", "16M", "--flash-size", "32M", "--select", "api"];
    passes("a_full_store", &options);
}

/// Without a run there is no memory, and the error names the command.
#[test]
fn outside_of_a_run() {
    assert!(!flashvm::is_run());
    let errors = [
        larger_than_ram::work(100).expect_err("no memory"),
        flashvm::Arena::new().expect_err("no arena"),
        flashvm::Mapping::new(1).expect_err("no mapping"),
        flashvm::Flash::new().expect_err("no allocator"),
        flashvm::stats().expect_err("no statistics"),
        flashvm::advise(&[1], flashvm::Advice::Cold).expect_err("nobody to advise"),
    ];
    for error in errors {
        assert!(matches!(error, flashvm::Error::NotARun), "{error:?}");
        let text = error.to_string();
        assert!(text.contains("start it with flashvm run --ram"), "{text}");
    }
}

/// The builder of runs, in a process whose environment names the command.
#[test]
fn runs_from_a_program() {
    const TEST: &str = "runs";
    if can_page(TEST) {
        let words = words(TEST);
        let mut this = support::children::command(&words[0]);
        this.args(&words[1..]).env("FLASHVM", FLASHVM);
        expect_passed(TEST, run_bounded(TEST, &mut this, LIMIT));
    }
}

/// The sample of the document is `sample.rs`, and prints what it says.
#[test]
fn the_sample_of_the_document() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |name: &str| std::fs::read_to_string(root.join(name)).expect(name);
    let document = read("docs/rust.md");
    let (_, sample) = document.split_once("```rust,no_run\n").expect("a sample");
    let (sample, _) = sample.split_once("```").expect("its end");
    assert!(include_str!("sample.rs").ends_with(&format!("\n\n{sample}")));
    if let Some(outcome) = passes("sample::prints", &["--ram", "64M", "--select", "api"]) {
        let lines = "1000000 samples, 3 words\n64 MiB of RAM\n";
        assert!(outcome.stdout.contains(lines), "{}", outcome.stdout);
    }
}

/// What runs under the command.
mod inside {
    use super::larger_than_ram;
    use bump_scope::Bump;
    use bump_scope::alloc::compat::AllocatorApi2V02Compat;
    use flashvm::allocator_api2::boxed::Box;
    use flashvm::allocator_api2::vec::Vec;
    use flashvm::{Advice, Arena, Error, Flash, FlashVec, Mapping, Run, advise, stats};
    use hashbrown::{DefaultHashBuilder, HashMap};
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::Stdio;

    mod sample {
        include!("sample.rs");

        #[test]
        #[ignore = "another test runs it under the command"]
        fn prints() {
            main().expect("a run");
        }
    }

    #[test]
    #[ignore = "another test runs it under the command"]
    fn larger_than_ram_is_as_without_limits() {
        const COUNT: u64 = 3_200_000;
        let (words, sum) = larger_than_ram::work(COUNT).expect("room");
        let expected = (0..COUNT / 16).map(|at| 16 * at).sum();
        assert_eq!((words as u64, sum), (COUNT / 16, expected));
        let now = stats().expect("a run");
        assert_eq!(now.budget_bytes, 32 << 20);
        assert!(now.resident_bytes_max <= now.budget_bytes, "{now:?}");
        assert!(now.written_bytes > 0 && now.major > 0, "{now:?}");
    }

    #[test]
    #[ignore = "another test runs it under the command"]
    fn collections() {
        // A map whose table is pages of its own, which several threads read.
        let hasher = DefaultHashBuilder::default();
        let mut squares = HashMap::with_hasher_in(hasher, Flash::new().expect("a run"));
        squares.extend((0..300_000_u64).map(|number| (number, number * number)));
        std::thread::scope(|scope| {
            for part in 0..4 {
                let squares = &squares;
                scope.spawn(move || {
                    let mut numbers = (part..300_000).step_by(4);
                    assert!(numbers.all(|number| squares[&number] == number * number));
                });
            }
        });
        drop(squares);

        // Boxes and vectors that grow and shrink, over both allocators.
        let arena = Arena::builder()
            .chunk_bytes(1 << 16)
            .build()
            .expect("a run");
        let shared = std::rc::Rc::new(());
        let boxed = Box::new_in((std::rc::Rc::clone(&shared), [7_u8; 100]), &arena);
        drop(boxed);
        assert_eq!(std::rc::Rc::strong_count(&shared), 1);
        let mut in_arena = Vec::new_in(&arena);
        let mut alone = Vec::new_in(Flash::new().expect("a run"));
        for number in 0..400_000_u64 {
            in_arena.push(number);
            alone.push(number);
        }
        in_arena.truncate(1000);
        in_arena.shrink_to_fit();
        alone.truncate(1000);
        alone.shrink_to_fit();
        assert_eq!(in_arena[..], alone[..]);
        assert!((0..1000).eq(alone.iter().copied()));

        // Bump allocation over an arena, scope by scope.
        let mut bump: Bump<_> = Bump::new_in(AllocatorApi2V02Compat(&arena));
        for turn in 0..3_u64 {
            bump.scoped(|bump| {
                let numbers = bump.alloc_iter((0..100_000).map(|number| number ^ turn));
                assert!((0..100_000).all(|at| numbers[at as usize] == at ^ turn));
            });
        }
        drop(bump);
        let bump: Bump<_> = Bump::new_in(AllocatorApi2V02Compat(Flash::new().expect("a run")));
        assert_eq!(bump.alloc_str("flash").as_ref(), "flash");
    }

    #[test]
    #[ignore = "another test runs it under the command"]
    fn mappings() {
        const BYTES: usize = 24 << 20;
        let mut bytes = Mapping::new(BYTES).expect("room");
        let mark = |at: usize| (at >> 12) as u8 ^ at as u8;
        assert!(bytes.iter().all(|&byte| byte == 0));
        (0..BYTES).for_each(|at| bytes[at] = mark(at));
        advise(&bytes[..1 << 20], Advice::Pin).expect("pins");
        assert_eq!(stats().expect("a run").locked_bytes, 1 << 20);
        advise(&bytes, Advice::PageOut).expect("advice");
        advise(&bytes, Advice::Cold).expect("advice");
        advise(&bytes[5 << 20..6 << 20], Advice::WillNeed).expect("advice");
        assert!((0..BYTES).all(|at| bytes[at] == mark(at)));
        let error = advise(&bytes, Advice::Pin).expect_err("more than half of the budget");
        assert!(matches!(error, Error::TooManyPins { .. }), "{error}");
        advise(&bytes[..1 << 20], Advice::Unpin).expect("advice");
        assert_eq!(stats().expect("a run").locked_bytes, 0);

        // Larger and smaller: what is new is zeros.
        bytes.resize(BYTES - 100).expect("less");
        bytes.resize(2 * BYTES).expect("room");
        assert!((0..BYTES - 100).all(|at| bytes[at] == mark(at)));
        assert!(bytes[BYTES - 100..].iter().all(|&byte| byte == 0));
        assert!(matches!(bytes.resize(0), Err(Error::Invalid(_))));
        assert_eq!(bytes.len(), 2 * BYTES);

        // Another thread drops it.
        std::thread::spawn(move || drop(bytes))
            .join()
            .expect("no panic");
    }

    #[test]
    #[ignore = "another test runs it under the command"]
    fn a_full_store() {
        let error = Mapping::new(1 << 40).expect_err("no store is so large");
        assert!(matches!(error, Error::NoRoom { bytes } if bytes == 1 << 40));
        assert!(matches!(Mapping::new(0), Err(Error::Invalid(_))));

        let mut numbers = FlashVec::new();
        let error = loop {
            if let Err(error) = numbers.try_push(numbers.len()) {
                break error;
            }
        };
        assert!(matches!(error, Error::NoRoom { .. }), "{error}");
        assert!(numbers.len() * 8 >= 8 << 20, "{} numbers", numbers.len());
        assert!(numbers.iter().enumerate().all(|(at, &number)| number == at));

        // Less is in use afterwards, and there is room again.
        numbers.truncate(1000);
        numbers.try_shrink().expect("less");
        let arena = Arena::new().expect("a run");
        let mut count = 0_usize;
        let error = loop {
            match arena.alloc([count; 2000]) {
                Ok(_) => count += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(error, Error::NoRoom { .. }), "{error}");
        assert!(count * 16_000 >= 8 << 20, "{count} objects");
        drop(arena);
        numbers.try_reserve(1 << 20).expect("the arena's room");
        assert!(numbers.iter().enumerate().all(|(at, &number)| number == at));
    }

    #[test]
    #[ignore = "another test runs it with the command's path"]
    fn runs() {
        let piped = || Run::new().stdout(Stdio::piped()).stderr(Stdio::piped());
        let quiet = || piped().ram("16M");
        let done = quiet()
            .run(["sh", "-c", "echo paged; exit 3"])
            .expect("a run");
        assert_eq!(
            (done.status.code(), &done.stdout[..]),
            (Some(3), &b"paged\n"[..])
        );
        assert_eq!(String::from_utf8_lossy(&done.stderr), "");
        let most = done.totals().expect("statistics")["resident_pages_max"].as_u64();
        assert!(most.is_some_and(|pages| pages > 0 && pages * 4096 <= 16 << 20));

        let loud = quiet().summary(true).env("WORD", "warm").current_dir("/");
        let done = loud.run(["sh", "-c", "echo $WORD $PWD"]).expect("a run");
        assert_eq!(String::from_utf8_lossy(&done.stdout), "warm /\n");
        assert!(String::from_utf8_lossy(&done.stderr).contains("exit code 0"));

        let done = quiet().run(["sh", "-c", "kill -TERM $$"]).expect("a run");
        assert_eq!(done.status.signal(), Some(15));

        for (run, program, named, wanted) in [
            (piped().ram("much"), "true", "much", 2),
            (
                quiet().option("no-such-option", "1"),
                "true",
                "no-such-option",
                2,
            ),
            (quiet().flag("no-such-flag"), "true", "no-such-flag", 2),
            (quiet(), "/no/such/program", "/no/such/program", 127),
        ] {
            match run.run([program]).expect_err("nothing ran") {
                Error::Refused { line, code } => {
                    assert!(line.contains(named), "{line}");
                    assert_eq!(code, wanted, "{line}");
                }
                error => panic!("{error}"),
            }
        }
        for run in [quiet().option("stats", "file"), quiet().flag("stats")] {
            let error = run.run(["true"]).expect_err("the result has them");
            assert!(matches!(error, Error::Invalid(_)), "{error}");
        }
    }
}
