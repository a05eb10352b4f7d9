//! The experiments of the Gordon paper, on emulated banks with the paper's timing.

use super::{Experiment, Suite};
use crate::cli::report::{Axis, Chart, Report, Series, Table};
use gordon_programs::reproduce::{Name, reproduce};

pub(super) const SUITE: Suite = Suite {
    title: "Gordon's tables and figures",
    introduction: "Moore, Hicks and Nettles, *General-Purpose Persistence Using Flash Memory*, 1997. Made by \
`flashvm reproduce gordon`.\n\nTime = modelled time of a bank with the paper's timing (its Table 3) + processor time \
of the program, on today's processor or on one as slow as the paper's: so much slower that debit-credit on flash that \
takes no time is as fast as in the paper.",
    experiments: &[
        Experiment {
            name: "table-3",
            title: "Table 3: write and erase bandwidth by parallelism",
            run: |_, _| Ok(measure(Name::Table3)),
        },
        Experiment {
            name: "table-4",
            title: "Table 4: commit latency and keystrokes of the editor",
            run: |_, _| Ok(measure(Name::Table4)),
        },
        Experiment {
            name: "pauses",
            title: "Section 8.1: pauses of the editor",
            run: |_, _| Ok(measure(Name::Pauses)),
        },
        Experiment {
            name: "table-5",
            title: "Table 5: erase efficiency by heap size",
            run: |_, _| Ok(measure(Name::Table5)),
        },
        Experiment {
            name: "table-6",
            title: "Table 6: erase bandwidth and lifetime of the groundstation",
            run: |_, _| Ok(measure(Name::Table6)),
        },
        Experiment {
            name: "lifetimes",
            title: "Sections 8.1 and 8.2: lifetimes",
            run: |_, _| Ok(measure(Name::Lifetimes)),
        },
        Experiment {
            name: "figure-4",
            title: "Figure 4: debit-credit transactions a second",
            run: |_, _| Ok(measure(Name::Figure4)),
        },
    ],
    programs: &[],
    named: &[],
};

/// Flash at 32 ways, the one point of Figure 4 that the text names (8.3).
const PAPER_TPS: (f64, f64) = (32.0, 1437.0);

fn measure(name: Name) -> Report {
    let results = reproduce(name).expect("an emulated bank fits into memory");
    let mut report = Report::default();
    let mut table = Table::new(&results.columns);
    table.rows = results.rows;
    report.tables.push(table);
    if !results.lines.is_empty() {
        let lines = results.lines.into_iter();
        let mut series: Vec<_> = lines
            .map(|(name, points)| Series::new(&name, points))
            .collect();
        series.push(Series::paper("the paper's flash", vec![PAPER_TPS]));
        report.charts.push(Chart {
            name: String::new(),
            title: results.title.to_owned(),
            x: Axis::logarithmic("ways"),
            y: Axis::logarithmic("transactions a second"),
            series,
        });
    }
    report
}
