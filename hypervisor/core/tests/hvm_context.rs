//! Saved hardware state of a domain: what it holds, what comes back, and which records are refused with what.
//!
//! `XENOLITH_CASES` sets the number of hostile lists, `XENOLITH_SEED` their seed.

mod common;

use std::sync::Arc;

use common::System;
use common::toolstack::from;
use hv_core::domain::Domain;
use hv_hw::GuestContext;
use hv_hw::host::FakeMachine;
use x86_model::{Gpr, xsave};
use xen_abi::Errno;
use xen_abi::domctl::{HvmContext, HvmContextPartial, VcpuContext, op};
use xen_abi::guest_context::{VcpuGuestContext, vgcf};
use xen_abi::hvm::save::{
    HwCpu, HwCpuXsave, HwLapic, HwMsr, HwMtrr, HwPciLink, HwVmce, SaveDescriptor, SaveHeader, code,
    cpu_flags, file,
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Where lists and records stand: eight pages.
const BUFFER: u64 = 0x8000;
const ROOM: usize = 0x8000;

fn err(e: Errno) -> i64 {
    e.to_ret()
}

fn system() -> System {
    let mut machine = FakeMachine::new(2);
    machine.xsave = true;
    System::on(machine, 1)
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

/// A list with one record.
fn list(typecode: u16, instance: u16, record: &[u8]) -> Vec<u8> {
    let header = SaveHeader {
        magic: file::MAGIC,
        version: file::VERSION,
        ..Default::default()
    };
    let mut out = Vec::new();
    push(&mut out, code::HEADER, 0, header.as_bytes());
    push(&mut out, typecode, instance, record);
    push(&mut out, code::END, 0, &[]);
    out
}

fn set(s: &System, d: &Domain, records: &[u8]) -> i64 {
    s.poke(BUFFER, records);
    let a = HvmContext {
        size: records.len() as u32,
        buffer: BUFFER,
        ..Default::default()
    };
    s.domctl(op::SETHVMCONTEXT, d.id.0, &a).0
}

fn get(s: &System, d: &Domain) -> Vec<u8> {
    let a = HvmContext {
        size: ROOM as u32,
        buffer: BUFFER,
        ..Default::default()
    };
    let (ret, answer) = s.domctl(op::GETHVMCONTEXT, d.id.0, &a);
    assert_eq!(ret, 0);
    let size = from::<HvmContext>(&answer.u).size as usize;
    s.peek_bytes(BUFFER, size)
}

fn one(s: &System, d: &Domain, kind: u16, instance: u32) -> Result<Vec<u8>, i64> {
    let a = HvmContextPartial {
        kind: kind.into(),
        instance,
        bufsz: ROOM as u64,
        buffer: BUFFER,
    };
    let (ret, answer) = s.domctl(op::GETHVMCONTEXT_PARTIAL, d.id.0, &a);
    if ret < 0 {
        return Err(ret);
    }
    let size = from::<HvmContextPartial>(&answer.u).bufsz as usize;
    Ok(s.peek_bytes(BUFFER, size))
}

fn records(mut list: &[u8]) -> Vec<(u16, u16, Vec<u8>)> {
    let mut out = Vec::new();
    while let Ok((d, rest)) = SaveDescriptor::read_from_prefix(list) {
        let (record, rest) = rest.split_at(d.length as usize);
        out.push((d.typecode, d.instance, record.to_vec()));
        list = rest;
    }
    out
}

fn cpu() -> HwCpu {
    let mut r = HwCpu {
        rip: 0x100_0000,
        rbx: 0x1234,
        r15: 15,
        cr0: 0x11,
        dr0: 0xd0,
        dr3: 0xd3,
        dr6: 0xffff_0ff0,
        dr7: 0x400,
        cs_sel: 8,
        cs_limit: u32::MAX,
        cs_arbytes: 0xc9b,
        gs_base: 0x6000,
        gs_arbytes: 0xc93,
        shadow_gs: 0x7000,
        flags: cpu_flags::FPU_INITIALISED,
        ..Default::default()
    };
    r.fpu_regs[0] = 0x7f;
    r.fpu_regs[24..28].copy_from_slice(&0x1f80u32.to_le_bytes());
    r.fpu_regs[160] = 0xaa;
    r
}

fn extended(all: u64, components: u64) -> HwCpuXsave {
    let mut r = HwCpuXsave {
        xcr0: all,
        xcr0_accum: all,
        xstate_bv: components,
        ..Default::default()
    };
    r.fpu_sse[24..28].copy_from_slice(&0x1f80u32.to_le_bytes());
    r.fpu_sse[160] = 0xbb;
    r
}

/// With the upper halves of the AVX registers behind.
fn with_avx(r: &HwCpuXsave) -> Vec<u8> {
    let mut out = r.as_bytes().to_vec();
    out.extend((0..256).map(|n| n as u8));
    out
}

#[test]
fn everything_is_told_and_comes_back() {
    let s = system();
    let d = s.create_ready(2, 1024);
    // Before anything is set, only vCPU 1's registers are missing, as vCPU 0's are.
    let kinds: Vec<_> = records(&get(&s, &d)).iter().map(|r| (r.0, r.1)).collect();
    let fresh = [
        (code::HEADER, 0),
        (code::LAPIC, 0),
        (code::LAPIC, 1),
        (code::LAPIC_REGS, 0),
        (code::LAPIC_REGS, 1),
        (code::PCI_IRQ, 0),
        (code::ISA_IRQ, 0),
        (code::PCI_LINK, 0),
        (code::MTRR, 0),
        (code::MTRR, 1),
        (code::CPU_XSAVE, 0),
        (code::CPU_XSAVE, 1),
        (code::VMCE_VCPU, 0),
        (code::VMCE_VCPU, 1),
        (code::TSC_ADJUST, 0),
        (code::TSC_ADJUST, 1),
        (code::END, 0),
    ];
    assert_eq!(kinds, fresh);

    assert_eq!(set(&s, &d, &list(code::CPU, 0, cpu().as_bytes())), 0);
    let first = get(&s, &d);
    let told = records(&first);
    let saved = HwCpu::read_from_bytes(&told[1].2).unwrap();
    assert_eq!((told[1].0, told[1].1), (code::CPU, 0));
    let wanted = HwCpu {
        tsc: saved.tsc,
        rflags: 2,
        ..cpu()
    };
    assert_eq!(saved, wanted);

    // XSAVE: what the legacy part of the CPU record said, in the area of the components in use.
    let x = one(&s, &d, code::CPU_XSAVE, 0).unwrap();
    let (head, _) = HwCpuXsave::read_from_prefix(&x).unwrap();
    assert_eq!((head.xfeature_mask, head.xcr0, head.xcr0_accum), (7, 1, 3));
    assert_eq!((head.xstate_bv, head.fpu_sse[160], x.len()), (3, 0xaa, 600));
    let avx = with_avx(&extended(7, 7));
    assert_eq!(set(&s, &d, &list(code::CPU_XSAVE, 0, &avx)), 0);
    let x = one(&s, &d, code::CPU_XSAVE, 0).unwrap();
    let (head, rest) = HwCpuXsave::read_from_prefix(&x).unwrap();
    assert_eq!((head.xcr0, head.xcr0_accum, head.xstate_bv), (7, 7, 7));
    assert_eq!(rest, &avx[600..]);

    // All of it loads again and is told again.
    assert_eq!(set(&s, &d, &first), 0);
    let again = get(&s, &d);
    let text = |list: &[u8]| {
        let kinds = |r: &(u16, u16, Vec<u8>)| (r.0, r.1, r.2.len());
        records(list).iter().map(kinds).collect::<Vec<_>>()
    };
    assert_eq!(text(&again), text(&first));
    for ((kind, vcpu, new), (.., old)) in records(&again).iter().zip(&told) {
        // The clock goes on.
        if *kind != code::CPU {
            assert_eq!(new, old, "{kind}/{vcpu}");
        }
    }
}

#[test]
fn single_records_are_refused_as_by_xen() {
    let s = system();
    let d = s.create_ready(2, 1024);
    let size = |kind, instance| one(&s, &d, kind, instance).map(|r| r.len());
    let e = |errno: Errno| Err(errno.to_ret());
    for (kind, instance, answer) in [
        (code::END, 0, e(Errno::EINVAL)),
        (code::HEADER, 0, e(Errno::EINVAL)),
        (code::CPU, 0, e(Errno::ENODATA)),
        (code::CPU, 2, e(Errno::ENOENT)),
        (code::PIC, 0, e(Errno::ENOENT)),
        (code::IOAPIC, 0, e(Errno::ENOENT)),
        (code::LAPIC, 1, Ok(24)),
        (code::LAPIC_REGS, 1, Ok(1024)),
        (code::PCI_IRQ, 0, Ok(16)),
        (code::ISA_IRQ, 0, Ok(8)),
        (code::PCI_LINK, 0, Ok(8)),
        (code::PCI_LINK, 1, e(Errno::ENOENT)),
        (code::HPET, 0, e(Errno::ENOENT)),
        (code::MTRR, 1, Ok(240)),
        (code::VIRIDIAN_DOMAIN, 0, e(Errno::ENOENT)),
        (code::VIRIDIAN_VCPU, 0, e(Errno::ENODATA)),
        (code::VIRIDIAN_VCPU, 9, e(Errno::ENOENT)),
        (code::CPU_XSAVE, 0, Ok(600)),
        (code::VMCE_VCPU, 0, Ok(32)),
        (code::TSC_ADJUST, 0, Ok(8)),
        (code::CPU_MSR, 0, e(Errno::ENODATA)),
        (code::MAX + 1, 0, e(Errno::EINVAL)),
    ] {
        assert_eq!(size(kind, instance), answer, "{kind}/{instance}");
    }
}

#[test]
fn lists_are_refused_as_by_xen() {
    let s = system();
    let d = s.create_ready(2, 1024);
    let check = |kind, instance, record: &[u8], errno: Option<Errno>| {
        let ret = set(&s, &d, &list(kind, instance, record));
        assert_eq!(ret, errno.map_or(0, err), "{kind}/{instance} {record:x?}");
    };
    let bad = Some(Errno::EINVAL);
    // Devices that are not there; types that do not exist.
    for kind in [
        code::PIC,
        code::IOAPIC,
        code::PIT,
        code::RTC,
        code::HPET,
        code::PMTIMER,
    ] {
        check(kind, 0, &[], Some(Errno::ENODEV));
    }
    for kind in [
        code::VIRIDIAN_DOMAIN,
        code::VIRIDIAN_VCPU,
        code::MAX + 1,
        999,
    ] {
        check(kind, 0, &[], bad);
    }
    // Wires.
    check(code::PCI_IRQ, 0, &[0xff; 16], None);
    check(code::PCI_IRQ, 0, &[0; 8], bad);
    let link = HwPciLink {
        route: [0, 5, 15, 16],
        ..Default::default()
    };
    check(code::PCI_LINK, 0, link.as_bytes(), bad);
    // Lengths: exact ones, and ones that may be less.
    check(code::MTRR, 0, &[0; 239], bad);
    check(code::TSC_ADJUST, 0, &[0; 7], bad);
    check(code::TSC_ADJUST, 2, &[0; 8], bad);
    check(code::LAPIC_REGS, 0, &[0; 1023], bad);
    let lapic = HwLapic {
        apic_base_msr: 0xfee0_0900,
        ..Default::default()
    };
    check(code::LAPIC, 0, &lapic.as_bytes()[..8], None);
    check(code::LAPIC, 0, &[0; 25], bad);
    let extended_only = HwLapic {
        apic_base_msr: 0xfee0_0400,
        ..Default::default()
    };
    check(code::LAPIC, 0, extended_only.as_bytes(), bad);
    let caps = HwVmce {
        caps: 1 << 24,
        ..Default::default()
    };
    check(code::VMCE_VCPU, 0, caps.as_bytes(), bad);
    check(code::VMCE_VCPU, 0, &2u64.to_le_bytes(), None);
    // A CPU record of the oldest form has floating-point state, and no TSC_AUX.
    check(code::CPU, 0, &cpu().as_bytes()[..1016], None);
    check(code::CPU, 0, &[0; 1033], bad);

    // XSAVE.
    let legacy = extended(3, 3);
    let xsave = |r: &HwCpuXsave, errno| check(code::CPU_XSAVE, 0, r.as_bytes(), errno);
    xsave(&legacy, None);
    check(code::CPU_XSAVE, 0, &legacy.as_bytes()[..599], bad);
    check(code::CPU_XSAVE, 0, &with_avx(&extended(7, 4)), None);
    xsave(&extended(7, 4), bad);
    xsave(&extended(3, 4), bad);
    xsave(&extended(5, 1), bad);
    xsave(&extended(0, 0), bad);
    xsave(&extended(0x203, 3), bad);
    let mut wrong = legacy;
    wrong.xcomp_bv = 1 << 63;
    xsave(&wrong, Some(Errno::EOPNOTSUPP));
    let mut wrong = legacy;
    wrong.reserved[5] = 1;
    xsave(&wrong, Some(Errno::EIO));
    let mut longer = legacy.as_bytes().to_vec();
    longer.push(0);
    check(code::CPU_XSAVE, 0, &longer, None);
    longer.push(1);
    check(code::CPU_XSAVE, 0, &longer, Some(Errno::EOPNOTSUPP));

    // MSRs.
    let msrs = |count: u64, msr: HwMsr, errno| {
        let mut record = count.to_le_bytes().to_vec();
        record.extend_from_slice(msr.as_bytes());
        check(code::CPU_MSR, 0, &record, errno);
    };
    let msr = |index, val, _rsvd| HwMsr { index, val, _rsvd };
    msrs(1, msr(0xc000_0080, 0, 0), Some(Errno::ENXIO));
    msrs(1, msr(0x48, 1, 0), Some(Errno::ENXIO));
    msrs(1, msr(0x48, 1, 1), Some(Errno::EOPNOTSUPP));
    msrs(2, msr(0x48, 1, 0), Some(Errno::EOPNOTSUPP));
    msrs(u64::MAX, msr(0x48, 1, 0), Some(Errno::EOPNOTSUPP));
    check(code::CPU_MSR, 0, &[0; 23], bad);

    // Bytes that end too soon; an end record needs no length that fits.
    let mut cut = list(code::CPU_MSR, 0, &[0; 24]);
    cut.truncate(60);
    assert_eq!(set(&s, &d, &cut), err(Errno::ENODATA));
    let mut cut = list(code::TSC_ADJUST, 0, &[0; 8]);
    cut.truncate(45);
    assert_eq!(set(&s, &d, &cut), err(Errno::EINVAL));
    cut.truncate(36);
    assert_eq!(set(&s, &d, &cut), err(Errno::ENODATA));
    let mut end = list(code::TSC_ADJUST, 0, &[0; 8]);
    let at = end.len() - 4;
    end[at] = 99;
    assert_eq!(set(&s, &d, &end), 0);

    // A machine without XSAVE.
    let old = System::new(1);
    let d = old.create_ready(1, 1024);
    let list = list(code::CPU_XSAVE, 0, legacy.as_bytes());
    assert_eq!(set(&old, &d, &list), err(Errno::EOPNOTSUPP));
    assert_eq!(one(&old, &d, code::CPU_XSAVE, 0), e_nodata());
}

fn e_nodata() -> Result<Vec<u8>, i64> {
    Err(err(Errno::ENODATA))
}

#[test]
fn registers_in_the_form_of_dumps() {
    let s = system();
    let d = s.create_ready(2, 1024);
    let id = d.id.0;
    let call = |cmd, vcpu, ctxt| {
        let a = VcpuContext {
            vcpu,
            ctxt,
            ..Default::default()
        };
        s.domctl(cmd, id, &a).0
    };
    let read = || {
        assert_eq!(call(op::GETVCPUCONTEXT, 0, BUFFER), 0);
        VcpuGuestContext::read_from_bytes(&s.peek_bytes(BUFFER, 5168)).unwrap()
    };
    assert_eq!(call(op::GETVCPUCONTEXT, 0, BUFFER), err(Errno::ENODATA));
    assert_eq!(call(op::GETVCPUCONTEXT, 2, BUFFER), err(Errno::EINVAL));
    assert_eq!(call(op::SETVCPUCONTEXT, 2, BUFFER), err(Errno::EINVAL));
    assert_eq!(set(&s, &d, &list(code::CPU, 0, cpu().as_bytes())), 0);
    assert_eq!(
        call(op::GETVCPUCONTEXT, 0, common::PAGES << 12),
        err(Errno::EFAULT)
    );
    let c = read();
    assert_eq!(c.flags, vgcf::I387_VALID | vgcf::ONLINE);
    assert_eq!((c.rip, c.rbx, c.r15, c.rflags), (0x100_0000, 0x1234, 15, 2));
    assert_eq!((c.cs, c.ctrlreg[0], c.debugreg[7]), (8, 0x11, 0x400));
    assert_eq!((c.debugreg[0], c.debugreg[3]), (0xd0, 0xd3));
    assert_eq!((c.gs_base_kernel, c.gs_base_user), (0x6000, 0x7000));
    assert_eq!(c.fpu_ctxt[160], 0xaa);

    // What is set is read; control registers stay, and the vCPU goes down if it is said to be.
    let mut new = c;
    (new.rip, new.rcx, new.flags) = (0x200_0000, 7, vgcf::I387_VALID);
    (new.debugreg[1], new.ctrlreg[0]) = (0xd1, 0);
    new.fpu_ctxt[160] = 0xcc;
    s.poke(BUFFER, new.as_bytes());
    assert_eq!(call(op::SETVCPUCONTEXT, 0, BUFFER), 0);
    let c = read();
    assert_eq!((c.rip, c.rcx, c.debugreg[1]), (0x200_0000, 7, 0xd1));
    assert_eq!((c.flags, c.ctrlreg[0], c.fpu_ctxt[160]), (1, 0x11, 0xcc));
    assert_eq!(s.info(id).nr_online_vcpus, 0);
    // The run-state flag is the only choice of vm_assist.
    new.vm_assist = 1;
    s.poke(BUFFER, new.as_bytes());
    assert_eq!(call(op::SETVCPUCONTEXT, 0, BUFFER), err(Errno::EINVAL));
    new.flags |= vgcf::ONLINE;
    new.vm_assist = 1 << 5;
    s.poke(BUFFER, new.as_bytes());
    assert_eq!(call(op::SETVCPUCONTEXT, 0, BUFFER), 0);
    assert!(d.flags_runstate());
    assert_eq!(s.info(id).nr_online_vcpus, 1);
    // A reset.
    assert_eq!(call(op::SETVCPUCONTEXT, 0, 0), 0);
    assert_eq!(call(op::GETVCPUCONTEXT, 0, BUFFER), err(Errno::ENODATA));
    assert_eq!(s.info(id).nr_online_vcpus, 0);
}

/// A small generator.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
    fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 16) % n
    }
    fn spoil(&mut self, record: &mut [u8]) {
        for _ in 0..self.below(4) {
            let at = self.below(record.len().max(1) as u64) as usize;
            if let Some(byte) = record.get_mut(at) {
                *byte ^= 1 << self.below(8);
            }
        }
    }
}

fn bytes(record: &(impl IntoBytes + Immutable)) -> Vec<u8> {
    record.as_bytes().to_vec()
}

fn hostile(random: &mut Random) -> Vec<u8> {
    let lapic = HwLapic {
        apic_base_msr: 0xfee0_0800 | random.below(2) << 10,
        ..Default::default()
    };
    let all = [1, 3, 7, 5][random.below(4) as usize];
    let mut x = bytes(&extended(all, random.below(8)));
    if all & 4 != 0 && random.below(8) != 0 {
        x = with_avx(&extended(all, random.below(8)));
    }
    let mut msr = 1u64.to_le_bytes().to_vec();
    msr.extend_from_slice(&[0; 16]);
    let mut choices = vec![
        (code::CPU, bytes(&cpu())),
        (code::LAPIC, bytes(&lapic)),
        (
            code::LAPIC_REGS,
            (0..1024).map(|_| random.next() as u8).collect(),
        ),
        (code::MTRR, bytes(&HwMtrr::default())),
        (code::CPU_XSAVE, x),
        (code::VMCE_VCPU, vec![0; 32]),
        (code::TSC_ADJUST, vec![0; 8]),
        (code::CPU_MSR, msr),
        (code::PCI_LINK, vec![0; 8]),
        (random.below(24) as u16, vec![0; random.below(64) as usize]),
    ];
    let mut out = list(code::END, 0, &[]);
    out.truncate(32);
    for _ in 0..random.below(4) {
        let pick = random.below(choices.len() as u64) as usize;
        let (kind, record) = &mut choices[pick];
        random.spoil(record);
        push(&mut out, *kind, random.below(3) as u16, record);
    }
    push(&mut out, code::END, 0, &[]);
    if random.below(8) == 0 {
        random.spoil(&mut out);
        out.truncate(random.below(out.len() as u64 + 1) as usize);
    }
    out
}

/// A processor takes what is in the vCPU's area.
fn sound(d: &Arc<Domain>) {
    for v in d.vcpus() {
        let local = v.local.try_lock().unwrap();
        let area = local.ctx.extended();
        assert_eq!(xsave::components(area) & !7, 0);
        assert!(area[xsave::LEGACY + 8..xsave::MIN].iter().all(|&b| b == 0));
        let mxcsr = u32::from_le_bytes(area[24..28].try_into().unwrap());
        assert_eq!(mxcsr & !xsave::MXCSR_DEFAULT_MASK, 0);
        assert_ne!(local.ctx.xcr0() & 5, 4);
        let _ = local.ctx.gprs().get(Gpr::Rax);
    }
}

#[test]
fn hostile_lists_are_taken_or_refused() {
    let number = |name, default| {
        let text = std::env::var(name).ok();
        text.and_then(|v| v.parse().ok()).unwrap_or(default)
    };
    let cases: u64 = number("XENOLITH_CASES", 3_000);
    let seed: u64 = number("XENOLITH_SEED", 0x5eed_0001);
    let s = system();
    let d = s.create_ready(2, 1024);
    let mut random = Random(seed | 1);
    let mut taken = 0;
    let known = [
        Errno::EINVAL,
        Errno::ENODATA,
        Errno::ENODEV,
        Errno::EOPNOTSUPP,
        Errno::EIO,
        Errno::ENXIO,
    ]
    .map(err);
    for case in 0..cases {
        let list = hostile(&mut random);
        let ret = set(&s, &d, &list);
        assert!(
            ret == 0 || known.contains(&ret),
            "case {case} seed {seed}: {ret} {list:x?}"
        );
        sound(&d);
        if ret == 0 {
            taken += 1;
            let saved = get(&s, &d);
            assert_eq!(set(&s, &d, &saved), 0, "case {case} seed {seed}");
        }
    }
    assert!(
        taken * 8 > cases,
        "only {taken} of {cases} lists were taken"
    );
    println!("{taken} of {cases} lists taken");
}
