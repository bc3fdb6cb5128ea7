//! Trace buffers as dom0's tools use them: switched on by sysctl, mapped as memory of the hypervisor, filled by the run loop.

mod common;

use common::System;
use common::toolstack::{ARG, from};
use hv_core::p2m::PageType;
use hv_core::vcpu::Sleep;
use hv_core::vcpu::run::{self, PcpuLocal};
use hv_hw::machine::{CpuId, Exit};
use std::sync::atomic::Ordering;
use x86_model::Gfn;
use xen_abi::Errno;
use xen_abi::domctl::CtlBitmap;
use xen_abi::sysctl::{TbufOp, op, tbufop};
use xen_abi::trace::{class, hvm, sched};

const RFLAGS_IF: u64 = 1 << 9;
const EINVAL: i64 = -(Errno::EINVAL as i64);
/// What the processor calls every exit.
const NUMBER: u32 = 0x1234;
/// Where pages are mapped.
const AT: u64 = 0x300;

fn tbuf(s: &System, cmd: u32, size: u32, evt_mask: u32) -> (i64, TbufOp) {
    let a = TbufOp {
        cmd,
        size,
        evt_mask,
        ..TbufOp::default()
    };
    let (ret, a) = s.sysctl(op::TBUF_OP, &a);
    (ret, from(&a.u))
}

/// Maps a frame of the hypervisor's in dom0; what the call says of this frame.
fn map(s: &System, frame: u64, at: u64) -> i32 {
    const IDX: u64 = 0x7000;
    s.poke(IDX, &frame.to_le_bytes());
    s.poke(IDX + 8, &at.to_le_bytes());
    s.poke_words(ARG, &[4 << 16, 1 | 0x7ff2 << 16]);
    for (i, at) in [IDX, IDX + 8, IDX + 16].into_iter().enumerate() {
        s.poke(ARG + 8 + 8 * i as u64, &at.to_le_bytes());
    }
    assert_eq!(s.call(0, 12, [23, ARG, 0, 0, 0]), 0);
    s.peek_u32(IDX + 16) as i32
}

fn word(s: &System, page: u64, at: u64) -> u32 {
    s.peek_u32((page << 12) + at)
}

/// Events in the buffer of CPU 0 whose pages are mapped from `first` on, and moves the reader's place behind them.
fn events(s: &System, first: u64) -> Vec<(u32, Vec<u32>)> {
    let (mut cons, prod) = (word(s, first, 0), word(s, first, 4));
    let mut found = Vec::new();
    while cons < prod {
        let at = |n: u32| {
            let byte = u64::from(8 + cons + 4 * n);
            word(s, first + byte / 4096, byte % 4096)
        };
        let timed = 2 * (at(0) >> 31);
        let extra = at(0) >> 28 & 7;
        let words = (0..extra).map(|n| at(1 + timed + n)).collect();
        found.push((at(0) & 0x0fff_ffff, words));
        cons += 4 * (1 + timed + extra);
    }
    s.poke(first << 12, &cons.to_le_bytes());
    found
}

/// Runs dom0's vCPU through these exits.
fn turn(s: &System, pcpu: &mut PcpuLocal, script: &[Exit]) {
    let vcpu = s.dom.vcpu(0).unwrap();
    vcpu.up.store(true, Ordering::SeqCst);
    // It halted at the end of its last turn.
    vcpu.sleep.store(Sleep::Awake as u8, Ordering::SeqCst);
    {
        let mut local = vcpu.local.try_lock().unwrap();
        local.started = true;
        local.ctx.sys.rflags = 2 | RFLAGS_IF;
        local.ctx.number = NUMBER;
        local.ctx.script = script.iter().copied().collect();
    }
    s.hv.make_runnable(vcpu);
    run::step(&s.hv, pcpu);
}

/// Maps the buffer of CPU 0, of two pages, behind [`AT`].
fn map_buffer(s: &System, info: &TbufOp) {
    // Pages that are no trace buffers stay out of reach; these are in reach, the first read-only.
    assert_eq!(map(s, info.buffer_mfn + 9999, AT), EINVAL as i32);
    assert_eq!(map(s, info.buffer_mfn, AT), 0);
    assert_eq!(s.dom.p2m.page_type(Gfn(AT)), Some(PageType::Foreign));
    let half = |at: u64| u64::from(word(s, AT, at & !3) >> (8 * (at & 2)) & 0xffff);
    assert_eq!(half(0), 2, "pages of a buffer");
    let list = 4 * half(2);
    for n in 0..2 {
        let frame = word(s, AT, list + 4 * n);
        assert_eq!(map(s, frame.into(), AT + 1 + n), 0);
    }
}

#[test]
fn a_trace_of_dom0() {
    let s = System::new(1);
    let mut pcpu = PcpuLocal::new(CpuId(0));
    // Nothing before there are buffers.
    assert_eq!(tbuf(&s, tbufop::ENABLE, 0, 0).0, EINVAL);
    assert_eq!(tbuf(&s, tbufop::SET_SIZE, 0, 0).0, EINVAL);
    assert_eq!(tbuf(&s, 6, 0, 0).0, EINVAL);
    let (ret, info) = tbuf(&s, tbufop::GET_INFO, 0, 0);
    assert_eq!(
        (ret, info.buffer_mfn, info.size, info.evt_mask),
        (0, 0, 0, class::ALL)
    );

    assert_eq!(tbuf(&s, tbufop::SET_SIZE, 2, 0).0, 0);
    assert_eq!(tbuf(&s, tbufop::SET_SIZE, 2, 0).0, Errno::EBUSY.to_ret());
    assert_eq!(tbuf(&s, tbufop::SET_SIZE, 3, 0).0, EINVAL);
    let (_, info) = tbuf(&s, tbufop::GET_INFO, 0, 0);
    assert_eq!(info.size, 4096);

    map_buffer(&s, &info);

    assert_eq!(tbuf(&s, tbufop::SET_EVT_MASK, 0, 0x0008_ffff).0, 0);
    let exits = [
        Exit::Cpuid { len: 2 },
        Exit::InterruptWindow,
        Exit::CacheFlush { len: 2 },
    ];
    turn(&s, &mut pcpu, &exits);
    let seen = events(&s, AT + 1);
    let of = |event: u32| seen.iter().filter(|e| e.0 == event).count();
    assert!(of(hvm::ENTRY) >= 3 && of(hvm::EXIT) >= 3, "{seen:x?}");
    assert_eq!(of(hvm::CPUID), 1);
    let exit = seen.iter().find(|e| e.0 == hvm::EXIT).unwrap();
    assert_eq!(exit.1[0], NUMBER, "the processor's own number");
    assert!(
        seen.iter().all(|e| e.0 & 0x0008_0000 != 0),
        "only the class that is wanted"
    );

    // Another class, another CPU, off.
    assert_eq!(tbuf(&s, tbufop::SET_EVT_MASK, 0, 0x0002_ffff).0, 0);
    turn(&s, &mut pcpu, &exits);
    let seen = events(&s, AT + 1);
    assert!(
        seen.iter().any(|e| e.0 & 0xffff_f00f == sched::RUNSTATE),
        "{seen:x?}"
    );
    assert!(seen.iter().all(|e| e.0 & 0x0008_0000 == 0));
    s.poke(0x7100, &[0b10]);
    let mask = TbufOp {
        cmd: tbufop::SET_CPU_MASK,
        cpu_mask: CtlBitmap {
            bitmap: 0x7100,
            nr_bits: 8,
            ..CtlBitmap::default()
        },
        ..TbufOp::default()
    };
    assert_eq!(s.sysctl(op::TBUF_OP, &mask).0, 0);
    turn(&s, &mut pcpu, &exits);
    assert!(events(&s, AT + 1).is_empty());
    s.poke(0x7100, &[0b11]);
    assert_eq!(s.sysctl(op::TBUF_OP, &mask).0, 0);
    assert_eq!(tbuf(&s, tbufop::DISABLE, 0, 0).0, 0);
    turn(&s, &mut pcpu, &exits);
    assert!(events(&s, AT + 1).is_empty());
    assert_eq!(tbuf(&s, tbufop::ENABLE, 0, 0).0, 0);
    turn(&s, &mut pcpu, &exits);
    assert!(!events(&s, AT + 1).is_empty());
}

#[test]
fn only_the_control_domain_may() {
    let s = System::new(1);
    let guest = s.add_guest(1, 1);
    assert_eq!(tbuf(&s, tbufop::SET_SIZE, 1, 0).0, 0);
    let (_, info) = tbuf(&s, tbufop::GET_INFO, 0, 0);
    // XENMEM_add_to_physmap_batch by the guest itself.
    let at = |gpa: u64, bytes: &[u8]| {
        hv_core::guest::access::write_phys(&guest.p2m, x86_model::Gpa(gpa), bytes).unwrap();
    };
    at(0x7000, &info.buffer_mfn.to_le_bytes());
    at(0x7008, &AT.to_le_bytes());
    at(ARG, &[0xf0, 0x7f, 4, 0, 1, 0, 0xf2, 0x7f]);
    for (i, gpa) in [0x7000u64, 0x7008, 0x7010].into_iter().enumerate() {
        at(ARG + 8 + 8 * i as u64, &gpa.to_le_bytes());
    }
    let (ret, _) = s.call_from(&guest, 0, 12, [23, ARG, 0, 0, 0]);
    let (frame, _) = guest.p2m.frame(Gfn(7)).unwrap();
    let mut code = [0; 4];
    frame.read(16, &mut code);
    assert!(ret != 0 || i32::from_le_bytes(code) != 0);
    assert_eq!(guest.p2m.page_type(Gfn(AT)), None);
}

/// `tbuf_size=` and `tevt_mask=`: dom0's first exits are there when a tool comes. Without a mask it has to switch tracing on.
#[test]
fn a_trace_from_the_start() {
    let exits = [Exit::Cpuid { len: 2 }];
    for mask in [0, 0x0008_ffff] {
        let s = System::new(1);
        let mut pcpu = PcpuLocal::new(CpuId(0));
        assert_eq!(s.hv.trace_from_boot(0, mask), Err(Errno::EINVAL));
        assert_eq!(s.hv.trace_from_boot(2, mask), Ok(()));
        turn(&s, &mut pcpu, &exits);
        // As `xentrace` begins: it asks for buffers, switches tracing on and asks where they are.
        assert_eq!(tbuf(&s, tbufop::SET_SIZE, 32, 0).0, EINVAL);
        assert_eq!(tbuf(&s, tbufop::ENABLE, 0, 0).0, 0);
        let (_, info) = tbuf(&s, tbufop::GET_INFO, 0, 0);
        let expected = if mask == 0 { class::ALL } else { mask };
        assert_eq!((info.size, info.evt_mask), (4096, expected));
        map_buffer(&s, &info);
        let before = events(&s, AT + 1);
        assert_eq!(before.is_empty(), mask == 0, "{before:x?}");
        turn(&s, &mut pcpu, &exits);
        let after = events(&s, AT + 1);
        assert!(
            after.iter().any(|e| e.0 == hvm::CPUID),
            "{mask:#x} {after:x?}"
        );
    }
}
