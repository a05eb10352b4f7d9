//! `intel-x25m`: FlashVM's second-generation SSD, used for most of its figures (Table 2). No
//! discards: the paper calls another drive its trim-capable one.

use super::ModelOptions;
use super::drive::{Drive, Rates, operation_time, page_time};
use flashvm_core::Nanos;

pub(super) fn build(options: &ModelOptions) -> Drive {
    let rates = Rates {
        latency: Nanos(100_000),
        read_page: page_time(250),
        write_page: page_time(70),
        random_read: operation_time(35_000),
        random_write: operation_time(3_300),
        // Figure 5(a): a seventh of its bandwidth is left when 60 % of five-block requests write.
        turnaround: Nanos(750_000),
        discard: None,
    };
    Drive::new(rates, options)
}
