//! The experiments of the FlashVM paper. The engine is the live one; the devices and the programs are models
//! and time is virtual, so every figure is the same on every machine. `programs` runs real programs live.

mod devices;
mod garbage;
mod prefetch;
mod programs;
mod runs;
mod scaling;
mod tuning;
mod value;
mod wear;

use super::{Experiment, Suite};

pub(super) const SUITE: Suite = Suite {
    title: "FlashVM's tables and figures",
    introduction: "Saxena and Swift, *FlashVM: Virtual Memory Management on Flash*, USENIX ATC 2010. Made by \
`flashvm reproduce flashvm`.\n\nEvery figure comes from the live engine, replayed in virtual time against models \
of the paper's devices. The devices are fitted to the paper's Table 2 and Figure 4; all other figures are \
results. The programs are models too, as the paper does not give their inputs: each has its program's structure \
and the paper's ratio of footprint to memory. Memory is a sixteenth of the paper's unless noted. Compare ratios, \
not seconds.\n\nAt the end, real programs run live on the same device models for Table 4: these figures vary \
with the run and the machine.",
    experiments: &[
        Experiment {
            name: "table-2",
            title: "Table 2: device characteristics",
            run: |_, bar| Ok(devices::table_2(bar)),
        },
        Experiment {
            name: "figure-4",
            title: "Figure 4: discard overhead",
            run: |_, bar| Ok(devices::figure_4(bar)),
        },
        Experiment {
            name: "figure-5a",
            title: "Figure 5(a): read/write interference",
            run: |_, bar| Ok(devices::figure_5a(bar)),
        },
        Experiment {
            name: "figure-5b",
            title: "Figure 5(b): paging throughput",
            run: |_, bar| Ok(scaling::figure_5b(bar)),
        },
        Experiment {
            name: "figure-5c",
            title: "Figure 5(c): response time",
            run: |_, bar| Ok(scaling::figure_5c(bar)),
        },
        Experiment {
            name: "figure-6a",
            title: "Figure 6(a): page pre-cleaning",
            run: |_, bar| Ok(tuning::figure_6a(bar)),
        },
        Experiment {
            name: "figure-6b",
            title: "Figure 6(b): page clustering",
            run: |_, bar| Ok(tuning::figure_6b(bar)),
        },
        Experiment {
            name: "figure-6c",
            title: "Figure 6(c): disk scheduling",
            run: |_, bar| Ok(tuning::figure_6c(bar)),
        },
        Experiment {
            name: "table-3",
            title: "Table 3: VM prefetching",
            run: |_, bar| Ok(prefetch::table_3(bar)),
        },
        Experiment {
            name: "sampling",
            title: "5.3.2: page sampling",
            run: |_, bar| Ok(wear::sampling(bar)),
        },
        Experiment {
            name: "sharing",
            title: "5.3.2: page sharing",
            run: |_, bar| Ok(wear::sharing(bar)),
        },
        Experiment {
            name: "figure-7",
            title: "Figure 7: garbage collection performance",
            run: |_, bar| Ok(garbage::figure_7(bar)),
        },
        Experiment {
            name: "raw-flash",
            title: "4.4: unmanaged flash",
            run: |_, bar| Ok(garbage::raw_flash(bar)),
        },
        Experiment {
            name: "table-4",
            title: "Table 4: cost/benefit analysis",
            run: |_, bar| Ok(value::table_4(bar)),
        },
    ],
    programs: &[
        Experiment {
            name: "program-imagemagick",
            title: "Table 4, live: ImageMagick",
            run: |_, bar| Ok(programs::imagemagick(bar)),
        },
        Experiment {
            name: "program-spin",
            title: "Table 4, live: spin",
            run: |_, bar| Ok(programs::spin(bar)),
        },
        Experiment {
            name: "program-jvm",
            title: "Table 4, live: a JVM with 16 warehouses",
            run: |_, bar| Ok(programs::jvm(bar)),
        },
        Experiment {
            name: "program-memcached-store",
            title: "Table 4, live: memcached, store",
            run: |_, bar| Ok(programs::memcached_store(bar)),
        },
        Experiment {
            name: "program-memcached-lookup",
            title: "Table 4, live: memcached, lookup",
            run: |_, bar| Ok(programs::memcached_lookup(bar)),
        },
    ],
};
