//! References a second of each policy on one core, over traces in memory: gcc's loads and stores,
//! which mostly hit; keys of a block trace, which mostly miss; and a Zipf-like mix.

mod timing;

use flashvm_core::PolicyKind;
use flashvm_sim::sweep::{Job, Observation, References, sweep};
use flashvm_sim::trace::{Granularity, Kind, Reference, TraceError, open};
use flashvm_sim::{Device, ModelKind, Rng};
use std::path::PathBuf;
use timing::bench;

fn file(name: &str) -> References {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let trace = open(&folder.join(name), None).expect("a trace");
    References::read(trace.granularity(), trace).expect("a trace")
}

/// A million references to 65,536 pages, one in four a write. Page n has about 1/n of the first page's
/// references.
fn zipf() -> References {
    let mut rng = Rng::new(1);
    let trace = (0..1_000_000).map(|_| {
        let chance = rng.below(1 << 32) as f64 / 4_294_967_296.0;
        let page = 65_536_f64.powf(chance) as u64;
        Ok::<_, TraceError>(Reference {
            address: page.wrapping_mul(0x9E37_79B9) % 65_536,
            bytes: 0,
            kind: match rng.below(4) {
                0 => Kind::Write,
                _ => Kind::Read,
            },
        })
    });
    References::read(Granularity::Pages, trace).expect("no file")
}

fn main() {
    let device = Device::new(ModelKind::SlcNand);
    for (name, references) in [
        ("gcc", file("gcc.trace.gz")),
        ("zipf", zipf()),
        ("cloud-physics", file("cloudPhysicsIO.txt.zst")),
    ] {
        for info in PolicyKind::ALL {
            let job = Job {
                policy: info.kind.into(),
                frames: references.pages() / 10,
                observation: Observation::Full,
            };
            let name = format!("{name}/{}", info.name);
            let run = |()| sweep(&references, &[job], &device, 1, &Default::default());
            bench(&name, references.len(), 10, || (), run);
        }
    }
}
