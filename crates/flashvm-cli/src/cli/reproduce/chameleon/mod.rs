//! The experiments of the Chameleon paper (4.2 to 4.5), scaled: live runs of its programs on this machine,
//! with small pages and with the peers that are modes of the same code.
//!
//! - `run`: a run of one program under one system;
//! - `figures`: the measurements of each figure.

mod figures;
mod run;

use super::{Experiment, Suite};

pub(super) use run::check;

pub(super) const SUITE: Suite = Suite {
    title: "Chameleon's figures",
    introduction: "Badam, Pai and Nellans, *Better Flash Access via Shape-shifting Virtual Memory Pages*, TRIOS \
2013. Made by `flashvm reproduce chameleon`.\n\nLive runs on one machine: medians of interleaved runs. Sizes are \
a hundredth to a thousandth of the paper's, so that all runs take minutes; `--ram` bounds only the heap. \
*Log-Swap* and *SSDAlloc* are modes of the same code, as in the paper: Log-Swap has pages of 4 KiB only; \
SSDAlloc maps a quarter of RAM (its page buffer, a frame per object) and uses the rest as a cache of objects. \
*FlashVM* is `--granularity 4096 --compress off`, with prefetching. Ratios are times over Chameleon's.",
    experiments: &[
        Experiment {
            name: "figure-5",
            title: "Figure 5: random reads and writes of 0.5 KiB objects",
            run: |_, bar| Ok(figures::figure_5(bar)),
        },
        Experiment {
            name: "write-volume",
            title: "4.2: bytes written to flash",
            run: |_, bar| Ok(figures::write_volume(bar)),
        },
        Experiment {
            name: "figure-6",
            title: "Figure 6: quicksort of scattered records",
            run: |_, bar| Ok(figures::figure_6(bar)),
        },
        Experiment {
            name: "figure-7",
            title: "Figure 7: quicksort as RAM varies",
            run: |_, bar| Ok(figures::figure_7(bar)),
        },
        Experiment {
            name: "hot-set",
            title: "RAM for a hot set of scattered objects",
            run: |_, bar| Ok(figures::hot_set(bar)),
        },
        Experiment {
            name: "figure-8",
            title: "Figure 8: depth-first search in a Graph500 graph",
            run: |_, bar| Ok(figures::figure_8(bar)),
        },
        Experiment {
            name: "figure-9",
            title: "Figure 9: insertions into a bloom filter",
            run: |_, bar| Ok(figures::figure_9(bar)),
        },
        Experiment {
            name: "overhead",
            title: "3.6: memory for bookkeeping",
            run: |_, bar| Ok(figures::overhead(bar)),
        },
    ],
    programs: &[],
    named: &[],
};
