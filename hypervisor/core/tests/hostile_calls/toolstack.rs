//! What makes a random call of the toolstack likely to get somewhere.

use xen_abi::domctl::{CreateDomain, op};
use xen_abi::hvm::save::{HwCpu, HwMtrr, SaveDescriptor, SaveHeader, code, file};
use zerocopy::IntoBytes;

use super::Random;
use crate::common::toolstack::pvh;

/// Command, interface and domain of a domctl.
pub fn domctl_head(random: &mut Random, cmd: u32) -> Vec<u8> {
    let mut head = Vec::new();
    head.extend(cmd.to_le_bytes());
    let version: u32 = if random.one_in(30) {
        random.below(0x20) as u32
    } else {
        random.pick(&[0x15, 0x15, 0x16, 0x17])
    };
    head.extend(version.to_le_bytes());
    let domain: u16 = match cmd {
        op::CREATEDOMAIN => random.pick(&[0, 0, 2, 3, 0xffff]),
        // Ends of domains are kept rare, or there would be none to act on.
        op::DESTROYDOMAIN if random.one_in(2) => 999,
        _ => random.pick(&[0, 1, 1, 2, 2, 2, 3, 3, 4, 0x7ff0, 0x7ff4, 0xffff]),
    };
    head.extend(domain.to_le_bytes());
    head.extend([0; 6]);
    head
}

/// Makes some arguments right that chance would hardly find.
pub fn amend(random: &mut Random, cmd: u32, argument: &mut [u8], memory: &mut Vec<(u64, Vec<u8>)>) {
    if random.one_in(4) {
        return;
    }
    match cmd {
        op::CREATEDOMAIN => {
            let vcpus = 1 + random.below(3) as u32;
            let right = pvh(vcpus);
            let n = size_of::<CreateDomain>();
            if argument.len() == n {
                argument.copy_from_slice(right.as_bytes());
            } else {
                // The later layout has one more word before the trace size.
                argument[..48].copy_from_slice(&right.as_bytes()[..48]);
                argument[48..52].fill(0);
                argument[52..].copy_from_slice(&right.as_bytes()[48..]);
            }
        }
        op::MAX_VCPUS => {
            argument[..4].copy_from_slice(&(1 + random.below(3) as u32).to_le_bytes());
        }
        op::MAX_MEM => {
            let pages = random.below(2000);
            argument[..8].copy_from_slice(&(pages * 4).to_le_bytes());
        }
        op::SETHVMCONTEXT => {
            let stream = records(random);
            argument[..4].copy_from_slice(&(stream.len() as u32).to_le_bytes());
            let at = u64::from_le_bytes(argument[8..16].try_into().unwrap());
            memory.push((at, stream));
        }
        op::GETHVMCONTEXT => argument[..4].copy_from_slice(&8192u32.to_le_bytes()),
        op::GETHVMCONTEXT_PARTIAL => {
            argument[..4].copy_from_slice(&(random.below(22) as u32).to_le_bytes());
            argument[8..16].copy_from_slice(&2000u64.to_le_bytes());
        }
        _ => {}
    }
}

fn push(out: &mut Vec<u8>, typecode: u16, instance: u16, record: &[u8]) {
    let descriptor = SaveDescriptor {
        typecode,
        instance,
        length: record.len() as u32,
    };
    out.extend_from_slice(descriptor.as_bytes());
    out.extend_from_slice(record);
}

/// A list of records, one byte of it wrong now and then.
fn records(random: &mut Random) -> Vec<u8> {
    let mut out = Vec::new();
    let header = SaveHeader {
        magic: file::MAGIC,
        version: file::VERSION,
        ..Default::default()
    };
    push(&mut out, code::HEADER, 0, header.as_bytes());
    let mut mtrr = HwMtrr {
        msr_mtrr_cap: random.below(10),
        msr_mtrr_def_type: 0x806,
        msr_pat_cr: random.value(),
        ..Default::default()
    };
    mtrr.msr_mtrr_var[random.below(16) as usize] = random.value();
    push(
        &mut out,
        code::MTRR,
        random.below(3) as u16,
        mtrr.as_bytes(),
    );
    let mut cpu = HwCpu {
        cr0: 0x11,
        rip: 0x1000,
        dr6: 0xffff_0ff0,
        dr7: 0x400,
        cs_arbytes: 0xc9b,
        ..Default::default()
    };
    let field = random.below(size_of::<HwCpu>() as u64 / 8) as usize;
    if random.one_in(2) {
        let value = random.value();
        cpu.as_mut_bytes()[field * 8..field * 8 + 8].copy_from_slice(&value.to_le_bytes());
    }
    push(&mut out, code::CPU, random.below(2) as u16, cpu.as_bytes());
    for _ in 0..random.below(3) {
        let (kind, length) = random.pick(&[
            (code::LAPIC, 24),
            (code::LAPIC_REGS, 1024),
            (code::PCI_IRQ, 16),
            (code::ISA_IRQ, 8),
            (code::PCI_LINK, 8),
            (code::CPU_XSAVE, 600),
            (code::VMCE_VCPU, 32),
            (code::TSC_ADJUST, 8),
            (code::CPU_MSR, 24),
        ]);
        let mut record = vec![0; length];
        for _ in 0..random.below(4) {
            let at = random.below(length as u64 / 8) as usize * 8;
            record[at..at + 8].copy_from_slice(&random.value().to_le_bytes());
        }
        push(&mut out, kind, random.below(2) as u16, &record);
    }
    push(&mut out, code::END, 0, &[]);
    if random.one_in(6) {
        let at = random.below(out.len() as u64) as usize;
        out[at] ^= 1 << random.below(8);
    }
    out
}
