//! `--granularity`, `--padding`, `--log-structuring` and the peers of Chameleon: what was asked for, and whether it can be had.

use super::args::RunOptions;
use super::refusal::Refusal;
use super::units::Size;
use flashvm::Delivery;
use flashvm::control::{ChameleonSettings, RunSettings};
use flashvm_core::chameleon::{BLOCK_BYTES, SIZES};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::path::Path;

/// Most RAM of a heap of small pages: its table has 24 bits for a frame of 4 KiB.
const RAM_BYTES_MAX: u64 = (4 << 10) << 24;
/// Most padding of a request.
const PADDING_MAX: u32 = 1024;

/// The heap of small pages that the options ask for.
pub(crate) fn chameleon(options: &RunOptions) -> Result<Option<ChameleonSettings>, Refusal> {
    let small = match options.granularity.as_deref() {
        None | Some("4096") => false,
        Some("512") => true,
        Some(other) => {
            return Err(Refusal::new(format!(
                "unknown granularity '{other}': known are 512, 4096"
            )));
        }
    };
    let padding = match options.padding {
        Some(padding) if padding > PADDING_MAX => {
            return Err(Refusal::new(format!(
                "--padding {padding}: more than {PADDING_MAX} bytes: ask for less"
            )));
        }
        padding => padding.unwrap_or(0),
    };
    let mut settings = ChameleonSettings {
        smallest: SIZES[0] as u32,
        padding,
        overlays: options.test.overlays,
        page_buffer: None,
        log_structuring: options.log_structuring.is_none_or(|switch| switch.0),
        spill: true,
    };
    match options.test.peer.as_deref() {
        None if small => {}
        None if options.padding.is_some() => {
            return Err(Refusal::new(format!(
                "--padding {padding} is for small pages: add --granularity 512"
            )));
        }
        None if !settings.log_structuring => {
            return Err(Refusal::new(
                "--log-structuring off is for small pages: add --granularity 512",
            ));
        }
        None => return Ok(None),
        Some("log-swap") => {
            settings.smallest = SIZES[SIZES.len() - 1] as u32;
            settings.spill = false;
        }
        Some(peer) => {
            let percent = peer.strip_prefix("ssdalloc:").and_then(|n| n.parse().ok());
            let percent = percent.filter(|percent| (1..=90).contains(percent));
            settings.page_buffer = Some(percent.ok_or_else(|| {
                Refusal::new(format!(
                    "unknown peer '{peer}': known are log-swap, ssdalloc:N with N from 1 to 90"
                ))
            })?);
            settings.spill = false;
        }
    }
    if let Some(cluster) = options.cluster.filter(|size| size.0 != BLOCK_BYTES as u64) {
        return Err(Refusal::new(format!(
            "--cluster {cluster}: with --granularity 512 clusters are the blocks of the log: leave it \
             out, or ask for {}",
            Size(BLOCK_BYTES as u64)
        )));
    }
    if options.write_limit.is_some() {
        return Err(Refusal::new(
            "--write-limit counts pages of 4 KiB alone: leave it or --granularity 512 out",
        ));
    }
    Ok(Some(settings))
}

/// Refuses a budget that is too large for a heap of small pages.
pub(crate) fn check_budget(ram: u64, small: Option<&ChameleonSettings>) -> Result<(), Refusal> {
    if budget_at_most(ram, small) < ram {
        return Err(Refusal::new(format!(
            "--ram {}: small pages can have {} at most: ask for 64G, or leave --granularity 512 out",
            Size(ram),
            Size(RAM_BYTES_MAX)
        )));
    }
    Ok(())
}

/// As much of a budget as a run can use.
pub(crate) fn budget_at_most(ram: u64, small: Option<&ChameleonSettings>) -> u64 {
    if small.is_some() {
        ram.min(RAM_BYTES_MAX)
    } else {
        ram
    }
}

/// Small pages are resolved by the thread that touches them.
pub(crate) fn check_fault_mode(settings: &RunSettings) -> Result<(), Refusal> {
    if settings.chameleon.is_some() && settings.delivery() == Delivery::Handler {
        return Err(Refusal::new(
            "--granularity 512 needs inline mode: leave --fault handler out, and see flashvm doctor for \
             what inline mode needs",
        ));
    }
    Ok(())
}

/// Says so where the store cannot be read by 512 bytes.
///
/// # Errors
/// If it would have to be written by 512 bytes.
pub(crate) fn look_at_sectors(
    settings: &ChameleonSettings,
    flash: &Path,
    store: &OwnedFd,
) -> Result<(), Refusal> {
    #[repr(align(4096))]
    struct Sector([u8; SIZES[0]]);
    let mut sector = Sector([0; SIZES[0]]);
    if rustix::io::pread(store, &mut sector.0, 0) != Err(Errno::INVAL) {
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
        "flashvm: the store's device has sectors of 4 KiB: small pages are read with what lies around \
         them"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashvm_core::PAGE_SIZE;
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
