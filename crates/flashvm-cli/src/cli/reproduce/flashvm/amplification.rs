//! Write amplification of each program, on flash chips behind a translation layer.

use crate::cli::refusal::Refusal;
use crate::cli::report::{Report, Table};
use crate::cli::reproduce::programs::recorded::RecordedPrograms;
use crate::cli::reproduce::programs::runs::{alone, seconds};
use flashvm_core::{Discard, DiscardKind, Preset, Settings};
use flashvm_sim::{Device, ModelKind};
use indicatif::ProgressBar;

pub(super) fn amplification(
    programs: &RecordedPrograms,
    bar: &ProgressBar,
) -> Result<Report, Refusal> {
    let mut table = Table::new(&[
        "program",
        "system",
        "s",
        "pages written",
        "copied pages",
        "map pages",
        "write amplification",
        "erases, mean",
    ]);
    for program in programs.all()? {
        let title = program.info.title;
        let native = Settings {
            discard: Discard::new(DiscardKind::Native),
            ..Preset::Flashvm.settings()
        };
        let systems = [
            ("Linux", Preset::Native.settings(), true),
            ("FlashVM", Preset::Flashvm.settings(), true),
            ("FlashVM, native discards", native, true),
            ("FlashVM, fresh chips", Preset::Flashvm.settings(), false),
        ];
        for (system, settings, aged) in systems {
            bar.set_message(format!("{title}, {system}"));
            let mut device = Device::new(ModelKind::Nand);
            device.nand.aged = aged;
            let figures = alone(program, program.frames(), &device, settings);
            let wear = figures.wear.expect("flash has some");
            table.row([
                title.to_owned(),
                system.to_owned(),
                format!("{:.1}", seconds(figures.elapsed)),
                wear.host_writes.to_string(),
                wear.copies.to_string(),
                wear.map_writes.to_string(),
                format!("{:.2}", wear.write_amplification()),
                format!("{:.2}", wear.erase_mean),
            ]);
        }
    }
    Ok(Report {
        tables: vec![table],
        charts: Vec::new(),
        notes: vec![
            "One run in Table 4's memory on flash chips behind a translation layer (`nand`). Aged chips were written over \
             twice at random before: whatever the program writes, the layer first has to copy about five pages for each. Fresh chips copy \
             none, because no program fills them. So the age of the drive decides, not the system: FlashVM saves pages written \
             (all of spin's but 3), but hardly any copy of those that remain."
                .to_owned(),
            "Native discards of the clusters that become free in one run change little: most garbage arises when a program \
             ends. Over four runs discards do save copies (4.4). The live tables below have no write amplification: intel-x25m is a model \
             of rates, without chips."
                .to_owned(),
        ],
    })
}
