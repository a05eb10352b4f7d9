//! What faults cost in all, with the exception, the signal and the work of the cleaner that they cause. These are constants, after
//! the measurements and trials in `docs/performance.md`. Reads from flash are measured as the program runs.

use crate::ids::Nanos;

/// A fault that needs no contents from elsewhere: soft, or on a page of zeros. Measured: 6 to 10 us.
pub(crate) const SOFT: Nanos = Nanos(8_000);
/// A fault on a compressed page in RAM, with its compression. Measured: 19 to 23 us; programs run fastest with 30.
pub(crate) const POOL: Nanos = Nanos(30_000);
