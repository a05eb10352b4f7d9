//! The experiments of the FlashVM paper, on the device models, with the programs of its evaluation
//! as models: the engine is the one that runs live, time is virtual, so every figure is the same
//! on every machine.

mod devices;
mod garbage;
mod prefetch;
mod runs;
mod scaling;
mod tuning;
mod value;
mod wear;

use super::{Experiment, Suite};

pub(super) const SUITE: Suite = Suite {
    title: "FlashVM's tables and figures",
    introduction: "Saxena and Swift, *FlashVM: Virtual Memory Management on Flash*, USENIX ATC 2010. Made by \
`flashvm reproduce flashvm`.\n\nEvery figure comes from the engine that runs live, replayed in virtual \
time against models of the paper's devices. The devices are fitted to the paper's Table 2 and Figure 4; all \
else that the paper says is a result here. The programs are models too: the paper names programs and not \
inputs, so each model has its program's structure and a footprint in the paper's relation to memory, at a \
sixteenth of the paper's memory where nothing else is said. Compare ratios, not seconds.",
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
};
