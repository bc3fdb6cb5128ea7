//! Turns the build's choices (`hypervisor/Kconfig`) into cfgs and constants.
fn main() {
    kconfig::build_script();
}
