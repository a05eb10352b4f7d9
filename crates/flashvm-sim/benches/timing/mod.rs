//! Times benches: prints a line for each, with the median of several rounds after an uncounted one.

mod selection;

use std::hint::black_box;
use std::time::Instant;

/// Times `run`, which handles `references` references. `prepare` makes each round's input, untimed.
pub(crate) fn bench<S, T>(
    name: &str,
    references: u64,
    rounds: usize,
    mut prepare: impl FnMut() -> S,
    mut run: impl FnMut(S) -> T,
) {
    if !selection::is_selected(name) {
        return;
    }
    let mut round = || {
        let subject = prepare();
        let start = Instant::now();
        let result = black_box(run(subject));
        let seconds = start.elapsed().as_secs_f64();
        drop(result);
        seconds
    };
    round();
    let mut seconds = Vec::from_iter((0..rounds).map(|_| round()));
    seconds.sort_unstable_by(f64::total_cmp);
    let median = seconds[rounds / 2];
    println!(
        "{name:<32} {:>10.3} ms ({:.3} to {:.3}), {:>9.3} M references/s",
        median * 1e3,
        seconds[0] * 1e3,
        seconds[rounds - 1] * 1e3,
        references as f64 / median / 1e6,
    );
}
