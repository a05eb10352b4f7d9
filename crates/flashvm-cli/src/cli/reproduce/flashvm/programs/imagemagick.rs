//! ImageMagick: enlarges a picture to five times its size (the paper: 1.5 times).

use super::{Failure, Program, command, find, finish};
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
const SIZE: &str = "640x480";

pub(super) struct ImageMagick {
    convert: PathBuf,
    folder: PathBuf,
}

pub(super) fn prepare(folder: &Path) -> Result<ImageMagick, Failure> {
    let found = NAMES.iter().find_map(|name| find(name, "imagemagick").ok());
    let program = ImageMagick {
        convert: found.ok_or("ImageMagick is missing: install imagemagick")?,
        folder: folder.to_owned(),
    };
    std::fs::write(folder.join("policy.xml"), POLICY).map_err(|e| e.to_string())?;
    let words = [
        "-size",
        SIZE,
        "-seed",
        "7",
        "plasma:fractal",
        "-depth",
        "8",
        "in.ppm",
    ];
    program.convert(&[], &words.map(OsString::from))?;
    Ok(program)
}

impl ImageMagick {
    fn convert(&self, prefix: &[String], words: &[OsString]) -> Result<Duration, Failure> {
        let mut command = command(prefix, &self.convert, words);
        command
            .current_dir(&self.folder)
            .env("MAGICK_CONFIGURE_PATH", &self.folder)
            .env("OMP_NUM_THREADS", "2");
        finish(&mut command)
    }
}

impl Program for ImageMagick {
    fn what(&self) -> String {
        format!("a picture of {SIZE} is enlarged by 500 %.")
    }

    fn ram(&self) -> &'static str {
        "48M"
    }

    fn run(&self, prefix: &[String]) -> Result<Duration, Failure> {
        let words = ["in.ppm", "-resize", "500%", "ppm:/dev/null"];
        self.convert(prefix, &words.map(OsString::from))
    }
}
