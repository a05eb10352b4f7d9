//! The translation layer against published write amplification: uniform random writes of single
//! pages, greedy cleaning, one frontier, no reserve.

use flashvm_sim::device::nand::{Cleaning, Frontiers, FtlStrategy, Geometry, Workload, simulate};

const BLOCKS: u32 = 1024;

fn measured(over_provisioning: f64, pages_per_block: u32) -> f64 {
    let geometry = Geometry::of_blocks(BLOCKS, pages_per_block, over_provisioning).expect("valid");
    let settled = simulate(
        geometry,
        FtlStrategy::default(),
        &Workload::Uniform,
        1,
        |_, _| (),
    );
    settled.expect("not worn").write_amplification
}

/// Figures for finite blocks, from simulations of greedy cleaning, recomputed independently. Their
/// limit for large blocks is `a / (a + W(-a exp(-a)))`, with a = 1 + over-provisioning and Lambert's W.
#[test]
fn greedy_cleaning_amplifies_as_published() {
    for (over_provisioning, pages_per_block, published) in [
        (0.07, 64, 7.01),
        (0.07, 128, 7.39),
        (0.111, 64, 4.82),
        (0.111, 128, 4.99),
        (0.25, 64, 2.60),
        (0.25, 128, 2.65),
    ] {
        let amplification = measured(over_provisioning, pages_per_block);
        let off = amplification / published - 1.0;
        println!(
            "{over_provisioning} {pages_per_block}: {amplification:.3} for {published} ({:+.2} %)",
            off * 100.0
        );
        assert!(off.abs() < 0.01, "{amplification:.3} for {published}");
    }
}

/// Larger blocks come closer to the limit, from below.
#[test]
fn block_size_approaches_the_limit() {
    let [small, large] = [16, 256].map(|pages| measured(0.25, pages));
    assert!(small < large && large < 2.693, "{small} {large}");
}

#[test]
fn sequential_writes_copy_nothing() {
    let geometry = Geometry::of_blocks(256, 64, 0.07).expect("valid");
    let settled = simulate(
        geometry,
        FtlStrategy::default(),
        &Workload::Sequential,
        1,
        |_, _| (),
    );
    assert_eq!(settled.expect("not worn").write_amplification, 1.0);
}

/// A frontier for hot pages and one for cold pages: fewer copies than with one for both.
#[test]
fn separate_frontiers_help_where_pages_are_hot_and_cold() {
    let amplification = [Frontiers::Shared, Frontiers::Separate].map(|frontiers| {
        let mut geometry = Geometry::of_blocks(512, 64, 0.15).expect("valid");
        geometry.frontiers = frontiers;
        let strategy = FtlStrategy {
            cleaning: Cleaning::CostBenefit,
            ..FtlStrategy::default()
        };
        let settled = simulate(geometry, strategy, &Workload::HotCold, 1, |_, _| ());
        settled.expect("not worn").write_amplification
    });
    assert!(amplification[1] < amplification[0], "{amplification:?}");
}
