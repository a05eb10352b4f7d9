//! A heap on a block device: a loop device over a file, which the test detaches at its end.

#[path = "../../flashvm-cli/tests/support/children.rs"]
#[allow(
    dead_code,
    reason = "shared by all test programs; this one takes a part"
)]
mod children;
mod common;

use children::Bounded as _;
use common::{Change, Plain, Rng, found, small_options};
use gordon::{Collector, Error, Heap};
use std::io::Write;
use std::path::{Path, PathBuf};

struct Loop(PathBuf);

impl Loop {
    fn over(file: &Path, bytes: u64) -> Option<Self> {
        std::fs::File::create(file)
            .and_then(|file| file.set_len(bytes))
            .expect("a file");
        let output = children::command("losetup")
            .args(["--find", "--show"])
            .arg(file)
            .output_in_time()
            .ok()?;
        let device = String::from_utf8(output.stdout).ok()?.trim().to_owned();
        (output.status.success() && !device.is_empty()).then(|| Self(device.into()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = children::command("losetup")
            .arg("--detach")
            .arg(&self.0)
            .status_in_time();
    }
}

#[test]
fn a_heap_on_a_block_device() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(device) = Loop::over(&folder.path().join("image"), 8 << 20) else {
        // Directly to standard error, which the test harness does not capture: continuous
        // integration looks for it.
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: a_heap_on_a_block_device: needs root and loop devices"
        );
        return;
    };
    let options = small_options(Collector::Beside);
    let too_large = Heap::create(&device.0, 16 << 20, options);
    assert!(
        matches!(too_large, Err(Error::Truncated { .. })),
        "{too_large:?}"
    );
    let mut plain = Plain::default();
    let mut rng = Rng(9);
    let heap = Heap::create(&device.0, 4 << 20, options).expect("a heap");
    let taken = Heap::open(&device.0, options);
    assert!(matches!(taken, Err(Error::Locked(_))), "{taken:?}");
    heap.update(|tx| {
        found(tx);
        Ok(())
    })
    .expect("a commit");
    drop(heap);
    for round in 0..3 {
        let heap = Heap::open(&device.0, options).expect("a heap");
        assert_eq!(Plain::of(&heap).as_ref(), Some(&plain), "round {round}");
        for _ in 0..100 {
            heap.update(|tx| {
                (0..10).for_each(|_| plain.apply(tx, &Change::random(&mut rng)));
                Ok(())
            })
            .expect("a commit");
        }
        heap.collect().expect("a collection");
    }
    let occupied = Heap::create(&device.0, 4 << 20, options);
    assert!(matches!(occupied, Err(Error::Occupied(_))), "{occupied:?}");
    let heap = Heap::open(&device.0, options).expect("the heap is as it was");
    assert_eq!(Plain::of(&heap), Some(plain));
}
