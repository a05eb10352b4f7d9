//! `ibm-ssd`: FlashVM's first-generation SSD. It reads sequentially like a disk, and at random far
//! better. Random writes are merged into erase blocks, 66 a second (Table 2).

use super::ModelOptions;
use super::drive::{Drive, Rates, operation_time, page_time};
use flashvm_core::Nanos;

pub(super) fn build(options: &ModelOptions) -> Drive {
    let rates = Rates {
        latency: Nanos(200_000),
        read_page: page_time(69),
        write_page: page_time(20),
        random_read: operation_time(7_000),
        random_write: operation_time(66),
        // Figure 5(a): a tenth of its bandwidth is left when 60 % of five-block requests write.
        turnaround: Nanos(4_650_000),
        discard: None,
    };
    Drive::new(rates, options)
}
