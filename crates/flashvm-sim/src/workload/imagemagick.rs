//! ImageMagick 6, `-resize 500%`: the horizontal filter walks the columns of the image, so it
//! touches a page of every row before the next page of any; the vertical filter walks the rows;
//! then the result is read once for encoding. So the image is read with a stride, its copies are
//! written once, and each is freed when the next is complete.

use super::Layout;
use crate::replay::{Program, Step, Touch};
use crate::rng::Rng;
use flashvm_core::{Nanos, PageId};

/// Pages of a row of the image, and of the image widened by `FACTOR`.
const ROW: u32 = 3;
const FACTOR: u32 = 5;
const WIDE_ROW: u32 = ROW * FACTOR;
/// Percentage of the result's rows that are black. It gives the paper's 15 % of writes that zero sharing saves
/// (5.3.2).
const ZERO_PERCENT: u64 = 18;
/// Computing time for a page of output, and for one of input.
const WRITE_WORK: Nanos = Nanos(120_000);
const READ_WORK: Nanos = Nanos(15_000);

pub(super) fn steps(layout: Layout) -> Program<'static> {
    // Memory holds the image, the wide image (5 times as large) and the result (25 times).
    let rows = layout.pages / (ROW + WIDE_ROW + WIDE_ROW * FACTOR);
    let wide = layout.base + rows * ROW;
    let result = wide + rows * WIDE_ROW;
    let step = |page: u32, touch, work| Step {
        page: PageId(page),
        touch,
        work,
    };
    let load = (0..rows * ROW).map(move |i| step(layout.base + i, Touch::Write, READ_WORK));
    let columns = (0..WIDE_ROW).flat_map(move |column| {
        (0..rows).flat_map(move |row| {
            let from = layout.base + row * ROW + column / FACTOR;
            let to = wide + row * WIDE_ROW + column;
            [
                step(from, Touch::Read, READ_WORK),
                step(to, Touch::Write, WRITE_WORK),
            ]
        })
    });
    let mut rng = Rng::new(layout.seed);
    let vertical = (0..rows * FACTOR).flat_map(move |row| {
        let zero = rng.below(100) < ZERO_PERCENT;
        let source = (row / FACTOR).saturating_sub(1)..(row / FACTOR + 2).min(rows);
        (0..WIDE_ROW).flat_map(move |column| {
            let reads = source
                .clone()
                .map(move |r| step(wide + r * WIDE_ROW + column, Touch::Read, READ_WORK));
            let touch = if zero { Touch::Clear } else { Touch::Write };
            reads.chain([step(result + row * WIDE_ROW + column, touch, WRITE_WORK)])
        })
    });
    let zap = move |first: u32, pages: u32| {
        (first..first + pages).map(move |page| step(page, Touch::Zap, Nanos(100)))
    };
    let image_gone = zap(layout.base, rows * ROW);
    let wide_gone = zap(wide, rows * WIDE_ROW);
    let encode =
        (0..rows * WIDE_ROW * FACTOR).map(move |i| step(result + i, Touch::Read, READ_WORK));
    let widened = load.chain(columns).chain(image_gone);
    Box::new(widened.chain(vertical).chain(wide_gone).chain(encode))
}
