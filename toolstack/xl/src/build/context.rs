//! The state in which vCPUs start, as records of Xen's saved hardware state.

use xen_abi::hvm::save::{HwCpu, HwMtrr, SaveDescriptor, SaveHeader, code};
use zerocopy::{FromBytes, IntoBytes};

const CR0_PE_ET: u64 = 0x11;
/// 32-bit code, execute and read, accessed, 4 KiB units; as the hardware stores it.
const CODE: u32 = 0xc9b;
const DATA: u32 = 0xc93;
/// 32-bit TSS, busy.
const TSS: u32 = 0x8b;
/// Write-back by default, ranges on.
const MTRR_WRITE_BACK: u64 = 0x806;

/// The header and the memory types in a domain's state as the hypervisor gives it.
///
/// # Errors
/// What is missing.
pub fn template(state: &[u8]) -> Result<(SaveHeader, HwMtrr), &'static str> {
    let mut rest = state;
    let (mut header, mut mtrr) = (None, None);
    while let Ok((d, after)) = SaveDescriptor::read_from_prefix(rest) {
        let (body, next) = after
            .split_at_checked(d.length as usize)
            .ok_or("a record of the domain's state is cut short")?;
        match d.typecode {
            code::HEADER => header = SaveHeader::read_from_prefix(body).ok().map(|(h, _)| h),
            code::MTRR if d.instance == 0 => {
                mtrr = HwMtrr::read_from_prefix(body).ok().map(|(m, _)| m);
            }
            code::END => break,
            _ => {}
        }
        rest = next;
    }
    let header = header.ok_or("the domain's state has no header")?;
    Ok((
        header,
        mtrr.ok_or("the domain's state has no memory types of vCPU 0")?,
    ))
}

/// Records that set a vCPU's memory types.
pub fn memory_types(header: &SaveHeader, mtrr: &HwMtrr, vcpu: u32) -> Vec<u8> {
    let mut mtrr = *mtrr;
    mtrr.msr_mtrr_def_type = MTRR_WRITE_BACK;
    let mut out = Vec::new();
    record(&mut out, code::HEADER, 0, header.as_bytes());
    record(&mut out, code::MTRR, vcpu as u16, mtrr.as_bytes());
    record(&mut out, code::END, 0, &[]);
    out
}

/// Records that start vCPU 0: 32-bit protected mode, flat segments, no paging, EBX at the start information.
pub fn first_vcpu(header: &SaveHeader, entry: u64, start_info: u64) -> Vec<u8> {
    let cpu = HwCpu {
        rip: entry,
        rbx: start_info,
        cr0: CR0_PE_ET,
        dr6: 0xffff_0ff0,
        dr7: 0x400,
        cs_limit: u32::MAX,
        ds_limit: u32::MAX,
        es_limit: u32::MAX,
        ss_limit: u32::MAX,
        tr_limit: 0x67,
        cs_arbytes: CODE,
        ds_arbytes: DATA,
        es_arbytes: DATA,
        ss_arbytes: DATA,
        tr_arbytes: TSS,
        ..HwCpu::default()
    };
    let mut out = Vec::new();
    record(&mut out, code::HEADER, 0, header.as_bytes());
    record(&mut out, code::CPU, 0, cpu.as_bytes());
    record(&mut out, code::END, 0, &[]);
    out
}

fn record(out: &mut Vec<u8>, typecode: u16, instance: u16, body: &[u8]) {
    let descriptor = SaveDescriptor {
        typecode,
        instance,
        length: body.len() as u32,
    };
    out.extend_from_slice(descriptor.as_bytes());
    out.extend_from_slice(body);
}
