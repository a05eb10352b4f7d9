//! The syntax of memory sizes: frames, bytes, or a share of the trace's footprint.

use flashvm_core::PAGE_SIZE;
use std::fmt;
use std::str::FromStr;

/// A size of memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MemorySize {
    /// Frames: `400`.
    Frames(u32),
    /// Bytes: `8M`.
    Bytes(u64),
    /// A share of the footprint: `10%`.
    Percent(f64),
}

/// Why a text is not a size of memory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is no size of memory: write frames (400), bytes (8M) or a share of the footprint (10%)"
)]
pub struct SizeError(String);

impl MemorySize {
    /// The number of frames, at least one, for a footprint in pages.
    ///
    /// # Errors
    /// If the size is below one frame.
    pub fn frames(self, footprint: u32) -> Result<u32, TooSmall> {
        let frames = match self {
            Self::Frames(frames) => u64::from(frames),
            Self::Bytes(bytes) => bytes / PAGE_SIZE as u64,
            Self::Percent(percent) => (f64::from(footprint) * percent / 100.0).round() as u64,
        };
        let frames = u32::try_from(frames).unwrap_or(u32::MAX);
        match frames > 0 {
            true => Ok(frames),
            false => Err(TooSmall {
                size: self,
                footprint,
            }),
        }
    }

    /// Reads a list, separated by commas.
    ///
    /// # Errors
    /// For the first part that is no size.
    ///
    /// # Examples
    /// ```
    /// use flashvm_sim::sweep::MemorySize;
    /// let sizes = MemorySize::list("400,8M,10%")?;
    /// let frames: Vec<_> = sizes.iter().map(|size| size.frames(5000).unwrap()).collect();
    /// assert_eq!(frames, [400, 2048, 500]);
    /// # Ok::<(), flashvm_sim::sweep::SizeError>(())
    /// ```
    pub fn list(text: &str) -> Result<Vec<Self>, SizeError> {
        text.split(',').map(str::parse).collect()
    }
}

/// A size that gives too few frames.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error(
    "{size} of memory is less than one frame, for a footprint of {footprint} pages: ask for one frame or more"
)]
pub struct TooSmall {
    size: MemorySize,
    footprint: u32,
}

impl fmt::Display for MemorySize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frames(frames) => write!(f, "{frames}"),
            Self::Bytes(bytes) => write!(f, "{bytes} bytes"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

impl FromStr for MemorySize {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        let text = text.trim();
        let refuse = || SizeError(text.to_owned());
        let digits = text
            .bytes()
            .take_while(|b| b.is_ascii_digit() || *b == b'.');
        let (number, unit) = text.split_at(digits.count());
        if unit.is_empty() {
            return number.parse().map(Self::Frames).map_err(|_| refuse());
        }
        let number = number.parse::<f64>().map_err(|_| refuse())?;
        let power = match unit.to_ascii_uppercase().as_str() {
            "%" => return Ok(Self::Percent(number)),
            "B" => 0,
            "K" | "KB" | "KIB" => 10,
            "M" | "MB" | "MIB" => 20,
            "G" | "GB" | "GIB" => 30,
            "T" | "TB" | "TIB" => 40,
            _ => return Err(refuse()),
        };
        let bytes = number * (1_u64 << power) as f64;
        (bytes < 9e15)
            .then_some(Self::Bytes(bytes as u64))
            .ok_or_else(refuse)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        for (text, frames) in [
            ("400", 400),
            ("1", 1),
            ("8M", 2048),
            ("1.5MiB", 384),
            ("1g", 1 << 18),
            ("1T", 1 << 28),
            ("10%", 100),
            ("12.5%", 125),
        ] {
            let size: MemorySize = text.parse().expect(text);
            assert_eq!(size.frames(1000), Ok(frames), "{text}");
        }
        for text in ["", "-1", "many", "10%%", "5.5", "1 M", "%", "99999999999"] {
            let line = text.parse::<MemorySize>().expect_err(text).to_string();
            assert!(line.contains(&format!("'{}'", text.trim())), "{line}");
        }
        for text in ["0", "1K", "0%", "0.01%"] {
            let size: MemorySize = text.parse().expect(text);
            assert!(size.frames(1000).is_err(), "{text}");
        }
    }
}
