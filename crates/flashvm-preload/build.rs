//! Makes the object one that the dynamic linker can start: see `src/carry.rs`.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == "x86_64") {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-e,flashvm_carry");
    }
}
