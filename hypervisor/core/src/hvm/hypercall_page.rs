//! The page of stubs by which older kernels make hypercalls.

use x86_model::PAGE_SIZE;

/// Number of the stub that HVM domains have not.
const IRET: usize = 23;

/// The 128 stubs: `mov eax, n; vmcall or vmmcall; ret` in 32 bytes each; the stub for iret is an undefined instruction.
pub fn contents(uses_vmmcall: bool) -> [u8; PAGE_SIZE as usize] {
    let call: [u8; 3] = if uses_vmmcall {
        [0x0f, 0x01, 0xd9]
    } else {
        [0x0f, 0x01, 0xc1]
    };
    // The rest is INT3.
    let mut page = [0xccu8; PAGE_SIZE as usize];
    for (n, stub) in page.chunks_exact_mut(32).enumerate() {
        if n == IRET {
            stub[..2].copy_from_slice(&[0x0f, 0x0b]);
            continue;
        }
        stub[0] = 0xb8;
        stub[1..5].copy_from_slice(&(n as u32).to_le_bytes());
        stub[5..8].copy_from_slice(&call);
        stub[8] = 0xc3;
    }
    page
}
