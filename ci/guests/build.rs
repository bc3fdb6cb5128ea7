//! Hands the linker script to the linker when the guests are built for bare metal.

fn main() {
    println!("cargo:rerun-if-changed=guest.ld");
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("none") {
        return;
    }
    let dir = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets this");
    println!("cargo:rustc-link-arg-bins=-T{dir}/guest.ld");
    // The loader does not relocate: the image runs where its program headers say.
    println!("cargo:rustc-link-arg-bins=--no-pie");
    println!("cargo:rustc-link-arg-bins=--no-dynamic-linker");
    println!("cargo:rustc-link-arg-bins=-znorelro");
}
