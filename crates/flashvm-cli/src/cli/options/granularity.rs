//! `--granularity`, `--padding`, `--log-structuring` and the peers of Chameleon: their settings and limits.

use super::choice::Peer;
use super::table::RunOptions;
use crate::cli::refusal::Refusal;
use crate::cli::units::Size;
use flashvm_core::PAGE_SIZE;
use flashvm_core::chameleon::{BLOCK_BYTES, SIZES};
use flashvm_live::Delivery;
use flashvm_live::control::{ChameleonSettings, RunSettings};
use std::path::Path;

/// Largest RAM of a heap of small pages: its table has 24 bits for the number of a frame of 4 KiB.
const RAM_BYTES_MAX: u64 = (4 << 10) << 24;
/// Largest padding of a request, in bytes.
const PADDING_MAX: u32 = 1024;

/// The settings of the heap of small pages, if the options ask for one.
pub(super) fn chameleon(options: &RunOptions) -> Result<Option<ChameleonSettings>, Refusal> {
    if !options.small_pages() {
        return Ok(None);
    }
    let padding = options.padding.unwrap_or(0);
    if padding > PADDING_MAX {
        return Err(Refusal::new(format!(
            "--padding {padding}: at most {PADDING_MAX} bytes are possible"
        )));
    }
    if let Some(cluster) = options.cluster
        && u64::from(cluster.0) * PAGE_SIZE as u64 != BLOCK_BYTES as u64
    {
        return Err(Refusal::new(format!(
            "--cluster {cluster}: with --granularity 512 clusters are the blocks of the log: leave it \
             out, or ask for {}",
            Size(BLOCK_BYTES as u64)
        )));
    }
    Ok(Some(ChameleonSettings {
        smallest: match options.peer {
            Some(Peer::LogSwap) => SIZES[SIZES.len() - 1] as u32,
            _ => SIZES[0] as u32,
        },
        padding,
        overlays: options.overlays,
        page_buffer: match options.peer {
            Some(Peer::SsdAlloc(percent)) => Some(percent),
            _ => None,
        },
        log_structuring: options.log_structuring.is_none_or(|switch| switch.0),
        spill: options.peer.is_none(),
    }))
}

/// Refuses a budget that is too large for a heap of small pages.
pub(super) fn check_budget(ram: u64, small: Option<&ChameleonSettings>) -> Result<(), Refusal> {
    if budget_at_most(ram, small) < ram {
        return Err(Refusal::new(format!(
            "--ram {}: small pages can have {} at most: ask for 64G, or leave --granularity 512 out",
            Size(ram),
            Size(RAM_BYTES_MAX)
        )));
    }
    Ok(())
}

/// The part of a budget that a run can use, in bytes.
pub(super) fn budget_at_most(ram: u64, small: Option<&ChameleonSettings>) -> u64 {
    if small.is_some() {
        ram.min(RAM_BYTES_MAX)
    } else {
        ram
    }
}

/// Refuses small pages in handler mode, as the faulting thread resolves them, and `--no-markers` without protect mode.
pub(crate) fn check_delivery(settings: &RunSettings) -> Result<(), Refusal> {
    if settings.chameleon.is_some() && settings.delivery == Delivery::Handler {
        return Err(Refusal::new(
            "--granularity 512 does not work in handler mode: leave --fault handler out, and see flashvm doctor for \
             what inline and protect mode need",
        ));
    }
    if settings.no_markers && settings.delivery != Delivery::Protect {
        return Err(Refusal::new(
            "--no-markers is about --fault protect: add it, or leave --no-markers out",
        ));
    }
    Ok(())
}

/// Warns if the store's device cannot read 512 bytes, as `reads_sectors` says.
///
/// # Errors
/// It cannot, and the run would write 512 bytes: `--log-structuring off`.
pub(crate) fn look_at_sectors(
    settings: &ChameleonSettings,
    flash: &Path,
    reads_sectors: bool,
) -> Result<(), Refusal> {
    if reads_sectors {
        return Ok(());
    }
    if !settings.log_structuring {
        return Err(Refusal::new(format!(
            "{}: the store's device has sectors of 4 KiB, and --log-structuring off writes 512 bytes: leave it \
             out, or use another device",
            flash.display()
        )));
    }
    eprintln!(
        "flashvm: the store's device has sectors of 4 KiB: it reads small pages in whole sectors"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashvm_core::chameleon::Frames;

    const SMALL: ChameleonSettings = ChameleonSettings {
        smallest: 512,
        padding: 0,
        overlays: None,
        page_buffer: None,
        log_structuring: true,
        spill: true,
    };

    #[test]
    fn budgets_up_to_64_gib_are_as_many_frames_as_there_can_be() {
        let most = RAM_BYTES_MAX / PAGE_SIZE as u64;
        assert!(check_budget(RAM_BYTES_MAX, Some(&SMALL)).is_ok());
        assert!(check_budget(RAM_BYTES_MAX + 1, Some(&SMALL)).is_err());
        assert!(check_budget(RAM_BYTES_MAX + 1, None).is_ok());
        assert_eq!(budget_at_most(u64::MAX, Some(&SMALL)), RAM_BYTES_MAX);
        assert_eq!(budget_at_most(u64::MAX, None), u64::MAX);
        let more = std::panic::catch_unwind(|| Frames::new(most as u32 + 1));
        assert!(more.is_err(), "the bound is too low");
    }
}
