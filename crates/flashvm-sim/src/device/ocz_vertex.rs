//! `ocz-vertex`: FlashVM's trim-capable SSD (Table 2), whose discards take 55 ms and more (Figure
//! 4) and block all other requests.

use super::drive::{Drive, Rates, operation_time, page_time};
use super::{DiscardCost, ModelOptions};
use flashvm_core::Nanos;

pub(super) fn build(options: &ModelOptions) -> Drive {
    let rates = Rates {
        latency: Nanos(200_000),
        read_page: page_time(230),
        write_page: page_time(80),
        random_read: operation_time(5_500),
        random_write: operation_time(4_600),
        // Figure 5(a) lacks this drive: the value is that of the Intel X25-M, of the same generation.
        turnaround: Nanos(750_000),
        discard: Some(DiscardCost::OCZ_VERTEX),
    };
    Drive::new(rates, options)
}
