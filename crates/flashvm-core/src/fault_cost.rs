//! What faults cost in all, with the exception, the signal and the work of the cleaner that they cause: assumed, after the
//! measurements in `docs/performance.md`. Reads from flash are measured as the program runs.

use crate::ids::Nanos;

/// A fault that needs no contents from elsewhere: soft, or on a page of zeros.
pub(crate) const SOFT: Nanos = Nanos(8_000);
/// A fault on a compressed page in RAM, with its compression.
pub(crate) const POOL: Nanos = Nanos(30_000);
