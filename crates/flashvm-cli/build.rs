//! Names the file of the preloaded object, which the command carries (`src/cli/object.rs`).

use std::path::PathBuf;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    // OUT_DIR is PROFILE/build/PACKAGE/out; cargo leaves the objects of dependencies in PROFILE/deps.
    let profile = out.ancestors().nth(3).expect("OUT_DIR has three parents");
    let object = profile.join("deps/libflashvm_preload.so");
    println!("cargo::rustc-env=FLASHVM_OBJECT={}", object.display());
}
