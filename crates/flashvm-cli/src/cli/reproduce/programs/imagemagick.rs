//! ImageMagick: enlarges a picture by 500 %, as in the paper, which does not give the picture's size.

use super::{FOR_EVER, Failure, Prepared, Program, command, find, finish_within};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// /usr/bin comes first: `convert` in PATH may be another program.
const NAMES: [&str; 3] = ["/usr/bin/convert-im6.q16", "/usr/bin/convert", "magick"];
/// The default limits would send large pictures to ImageMagick's own disk cache.
const POLICY: &str = r#"<policymap>
  <policy domain="resource" name="memory" value="64GiB"/>
  <policy domain="resource" name="map" value="64GiB"/>
  <policy domain="resource" name="area" value="64GP"/>
</policymap>
"#;
/// With this many pixels it takes 1.35 times its memory in Table 4: 8 bytes a pixel in the picture, in one that is 5 times as
/// wide, and in the result.
const PIXELS: f64 = 4.43e6;

pub(super) struct ImageMagick {
    convert: PathBuf,
    folder: PathBuf,
    size: String,
}

pub(super) fn prepare(folder: &Path, scale: u32) -> Prepared {
    let height = (PIXELS / f64::from(scale) * 0.75).sqrt();
    let found = NAMES.iter().find_map(|name| find(name, "imagemagick").ok());
    let program = ImageMagick {
        convert: found.ok_or("ImageMagick is missing: install imagemagick")?,
        folder: folder.to_owned(),
        size: format!("{:.0}x{height:.0}", height / 0.75),
    };
    std::fs::write(folder.join("policy.xml"), POLICY).map_err(|e| e.to_string())?;
    let words = [
        "-size",
        &program.size,
        "-seed",
        "7",
        "plasma:fractal",
        "-depth",
        "8",
        "in.ppm",
    ];
    program.convert(&[], &words.map(OsString::from), FOR_EVER)?;
    Ok(Box::new(program))
}

impl ImageMagick {
    fn convert(
        &self,
        prefix: &[String],
        words: &[OsString],
        within: Duration,
    ) -> Result<Option<Duration>, Failure> {
        let mut command = command(prefix, &self.convert, words);
        command
            .current_dir(&self.folder)
            .env("MAGICK_CONFIGURE_PATH", &self.folder)
            .env("OMP_NUM_THREADS", "2");
        finish_within(&mut command, within)
    }
}

impl Program for ImageMagick {
    fn what(&self) -> String {
        format!("A picture of {} is enlarged by 500 %.", self.size)
    }

    fn run_within(&self, prefix: &[String], within: Duration) -> Result<Option<Duration>, Failure> {
        let words = ["in.ppm", "-resize", "500%", "ppm:/dev/null"];
        self.convert(prefix, &words.map(OsString::from), within)
    }
}
