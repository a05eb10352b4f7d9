//! The experiments of the CRAW paper: the locality of traces, and the live code's replacement policies over
//! them.
//!
//! - `programs`: the traces, measured and swept once for all experiments;
//! - `references`: Table 2 and Figures 2 to 5; `io`: Figures 12 to 14 and 17; `areas`: Figure 15;
//! - `readings`: what the paper's text leaves open; `mended`: large memories, and CRAW-C; `devices`: flash that maps
//!   pages or blocks, and live sight; `live`: the live pager.

mod areas;
mod devices;
mod io;
mod live;
mod mended;
mod programs;
mod readings;
mod references;

pub(super) use programs::Programs;

use super::{Experiment, Suite};
use crate::cli::trace::figures::FIGURES;

pub(super) const SUITE: Suite = Suite {
    title: "CRAW's tables and figures",
    introduction: "*Page Replacement for Write References in NAND Flash Based Virtual Memory Systems*. Made by \
`flashvm reproduce craw`.\n\nThe policies are the live code; the flash is the paper's (a page of memory is two \
flash pages: 50 us to read, 400 us to write). The traces are of current programs that do the work of the paper's \
six, recorded with Valgrind's lackey and filtered by CPU caches with write-back (`eval/craw-traces.sh`); \
`--traces FOLDER` takes others. The paper's text gives ranges, not the points of its curves: the ranges stand \
beside the measurements.",
    experiments: &[
        Experiment {
            name: "table-2",
            title: "Table 2: memory usage and reference counts",
            run: references::table_2,
        },
        Experiment {
            name: "figure-2",
            title: "Figure 2: all references by recency",
            run: |material, bar| references::ranks(material, bar, &FIGURES[0]),
        },
        Experiment {
            name: "figure-3",
            title: "Figure 3: reads by recency of reads",
            run: |material, bar| references::ranks(material, bar, &FIGURES[1]),
        },
        Experiment {
            name: "figure-4",
            title: "Figure 4: writes by recency of writes",
            run: |material, bar| references::ranks(material, bar, &FIGURES[2]),
        },
        Experiment {
            name: "figure-5",
            title: "Figure 5: writes by number of past writes",
            run: |material, bar| references::ranks(material, bar, &FIGURES[3]),
        },
        Experiment {
            name: "figure-12",
            title: "Figure 12: I/O time by memory size",
            run: io::figure_12,
        },
        Experiment {
            name: "figure-13",
            title: "Figure 13: pages read by memory size",
            run: |material, bar| io::pages(material, bar, "pages read", |counts| counts.page_reads),
        },
        Experiment {
            name: "figure-14",
            title: "Figure 14: pages written by memory size",
            run: |material, bar| {
                io::pages(material, bar, "pages written", |counts| counts.page_writes)
            },
        },
        Experiment {
            name: "figure-15",
            title: "Figure 15: sizes of CRAW's areas over time",
            run: areas::figure_15,
        },
        Experiment {
            name: "figure-17",
            title: "Figure 17: CRAW and CRAW-A",
            run: io::figure_17,
        },
        Experiment {
            name: "frequency",
            title: "Frequency and recency of writes, with and without runs",
            run: references::frequency,
        },
        Experiment {
            name: "readings",
            title: "Readings of the paper's text",
            run: readings::table,
        },
        Experiment {
            name: "large-memory",
            title: "Large memories: who evicts what",
            run: mended::causes,
        },
        Experiment {
            name: "craw-c",
            title: "CRAW-C: the cost of a victim counts",
            run: mended::table,
        },
        Experiment {
            name: "devices",
            title: "Page-mapped and block-mapped flash",
            run: devices::ranks,
        },
        Experiment {
            name: "sight",
            title: "Live sight",
            run: devices::sight,
        },
    ],
    programs: &[Experiment {
        name: "live",
        title: "Live runs",
        run: |_, bar| live::live(bar),
    }],
    named: &[],
};
