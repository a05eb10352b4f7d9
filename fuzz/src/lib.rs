//! Shared by the fuzz targets.

use flashvm_sim::trace::{Format, read};
use std::io::Cursor;

/// Reads a trace to its end. An error must be one line that names the file.
pub fn references(bytes: &[u8], format: Option<Format>) {
    let bytes = Cursor::new(bytes.to_vec());
    let error = match read("fuzz".as_ref(), bytes, format) {
        Ok(trace) => trace.filter_map(Result::err).last(),
        Err(error) => Some(error),
    };
    if let Some(error) = error {
        let line = error.to_string();
        assert!(line.starts_with("fuzz: ") && !line.contains('\n'), "{line}");
    }
}
