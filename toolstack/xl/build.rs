//! Puts the loop that unpacks kernels at the start of a page, as the hypervisor's image does: an emulator jumps from page to page
//! by a slow way, and that loop is most of a `create`.

fn main() {
    let dir = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    println!("cargo::rerun-if-changed=unpack.ld");
    println!("cargo::rustc-link-arg-bins=-Wl,-T,{dir}/unpack.ld");
}
