//! The experiments of the FlashVM paper. The engine is the live one, the devices are models and time is virtual, so every
//! figure is the same on every machine.
//!
//! - `record`: the traces of the programs, made anew;
//! - `devices`, `scaling`, `tuning`, `prefetch`, `wear`, `garbage`, `value`: the experiments, on replays of the traces;
//! - `table_4_live`, `ablation_live`: the programs live, on device models.

mod ablation;
mod ablation_live;
mod amplification;
mod causes;
mod congestion;
mod deadline;
mod devices;
mod figure_1;
mod garbage;
mod garbage_replay;
mod mechanisms;
mod prefetch;
mod record;
mod sampling;
mod scaling;
mod table_4_live;
mod tuning;
mod value;
mod wear;

pub(super) use record::{RecordArgs, record};

use super::{Experiment, Suite};

pub(super) const SUITE: Suite = Suite {
    title: "FlashVM's tables and figures",
    introduction: "Saxena and Swift, *FlashVM: Virtual Memory Management on Flash*, USENIX ATC 2010. Made by \
`flashvm reproduce flashvm`.\n\nEvery figure comes from the live engine, replayed in virtual time against models \
of the paper's devices, which are fitted to the paper's Table 2, Figure 4 and Figure 5(a); all other figures are results. The \
programs are real: ImageMagick, spin, a JVM with 16 warehouses and memcached, with the paper's inputs divided by a scale of 4 \
(memcached: 16). `flashvm reproduce record` has run them in a quarter of their memory and kept each fault, whether its page held \
zeros, and how long they computed in between (`traces/flashvm`); `--scale 1` records the paper's sizes, for `--traces`. Compare \
ratios, not seconds: memory is divided by the scale, and the processor is today's.\n\nAt the end, real programs run live on the same device models for Table 4: these figures vary \
with the run and the machine.",
    experiments: &[
        Experiment {
            name: "figure-1",
            title: "Figure 1: time by memory",
            run: |material, bar| figure_1::figure_1(&material.recorded, bar),
        },
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
            run: |material, bar| scaling::figure_5b(&material.recorded, bar),
        },
        Experiment {
            name: "figure-5c",
            title: "Figure 5(c): response time",
            run: |_, bar| Ok(scaling::figure_5c(bar)),
        },
        Experiment {
            name: "figure-6a",
            title: "Figure 6(a): page pre-cleaning",
            run: |material, bar| tuning::figure_6a(&material.recorded, bar),
        },
        Experiment {
            name: "figure-6b",
            title: "Figure 6(b): page clustering",
            run: |material, bar| tuning::figure_6b(&material.recorded, bar),
        },
        Experiment {
            name: "figure-6c",
            title: "Figure 6(c): disk scheduling",
            run: |material, bar| tuning::figure_6c(&material.recorded, bar),
        },
        Experiment {
            name: "table-3",
            title: "Table 3: VM prefetching",
            run: |material, bar| prefetch::table_3(&material.recorded, bar),
        },
        Experiment {
            name: "sampling",
            title: "5.3.2: page sampling",
            run: |material, bar| sampling::sampling(&material.recorded, bar),
        },
        Experiment {
            name: "congestion",
            title: "5.3.1: congestion control",
            run: |material, bar| congestion::congestion(&material.recorded, bar),
        },
        Experiment {
            name: "sharing",
            title: "5.3.2: page sharing",
            run: |material, bar| wear::sharing(&material.recorded, bar),
        },
        Experiment {
            name: "figure-7",
            title: "Figure 7: garbage collection performance",
            run: |material, bar| garbage::figure_7(&material.recorded, bar),
        },
        Experiment {
            name: "figure-7-replayed",
            title: "Figure 7, as block traces on an aged drive",
            run: |material, bar| garbage_replay::garbage(&material.recorded, bar),
        },
        Experiment {
            name: "raw-flash",
            title: "4.4: unmanaged flash",
            run: |material, bar| garbage::raw_flash(&material.recorded, bar),
        },
        Experiment {
            name: "amplification",
            title: "4.2: write amplification",
            run: |material, bar| amplification::amplification(&material.recorded, bar),
        },
        Experiment {
            name: "table-4",
            title: "Table 4: cost/benefit analysis",
            run: |material, bar| value::table_4(&material.recorded, bar),
        },
        Experiment {
            name: "ablation",
            title: "Each mechanism alone",
            run: |material, bar| ablation::ablation(&material.recorded, bar),
        },
    ],
    programs: &[Experiment {
        name: "table-4-live",
        title: "Table 4, live",
        run: |material, bar| Ok(table_4_live::table_4(material.is_quick, bar)),
    }],
    named: &[Experiment {
        name: "ablation-live",
        title: "Each mechanism alone, live",
        run: |material, bar| Ok(ablation_live::ablation(material.is_quick, bar)),
    }],
};
