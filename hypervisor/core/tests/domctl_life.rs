//! Domains from their creation to their end, as a toolstack drives them.

mod common;

use std::sync::atomic::Ordering;

use common::System;
use common::toolstack::{ARG, LIST, VERSION, bytes, from, pvh};
use hv_core::vcpu::run::{PcpuLocal, step};
use hv_hw::machine::{CpuId, Exit};
use x86_model::Gfn;
use xen_abi::domctl::{
    CreateDomain, CreateDomain17, GetDomainInfo, GetPageFrameInfo3, GetVcpuInfo, MaxMem, MaxVcpus,
    PagingMempool, SchedCredit, SchedulerOp, SendTrigger, SetDomainHandle, SetVirqHandler,
    VcpuAffinity, affinity, cdf, dominf, emu, op, pfinfo, schedop, scheduler,
};
use xen_abi::{DomId, Errno};
use zerocopy::{FromBytes, IntoBytes};

fn err(e: Errno) -> i64 {
    e.to_ret()
}

#[test]
fn versions_are_negotiated() {
    let s = System::new(1);
    let call = |v, cmd, id, u| s.domctl_by(&s.dom, v, cmd, id, u);
    for v in [0, 0x14, 0x18, u32::MAX] {
        let (ret, _) = call(v, op::GETDOMAININFO, 0, [0; 128]);
        assert_eq!(ret, err(Errno::EACCES), "{v:#x}");
    }
    // 64 bytes up to 0x16, 68 from 0x17 on.
    let old = pvh(2);
    let new = CreateDomain17 {
        handle: old.handle,
        flags: old.flags,
        max_vcpus: 3,
        max_evtchn_port: 1023,
        max_grant_frames: -1,
        max_maptrack_frames: -1,
        grant_opts: 1,
        arch: old.arch,
        ..Default::default()
    };
    for (v, u, vcpus) in [
        (0x15, bytes(&old), 2),
        (0x16, bytes(&old), 2),
        (0x17, bytes(&new), 3),
    ] {
        let (ret, answer) = call(v, op::CREATEDOMAIN, 0xffff, u);
        assert_eq!(ret, 0, "{v:#x}");
        let d = s.hv.domain(answer.domain).unwrap();
        assert_eq!(d.max_vcpus(), vcpus);
    }
    // The first domain from the number on, or exactly that one.
    let (ret, answer) = call(0x15, op::GETDOMAININFO, 1, [0; 128]);
    assert_eq!((ret, answer.domain.0), (0, 1));
    assert_eq!(s.plain(op::DESTROYDOMAIN, 1), 0);
    let (ret, answer) = call(0x15, op::GETDOMAININFO, 1, [0; 128]);
    assert_eq!((ret, answer.domain.0), (0, 2));
    assert_eq!(from::<GetDomainInfo>(&answer.u).domain.0, 2);
    for v in [0x16, 0x17] {
        let (ret, _) = call(v, op::GETDOMAININFO, 1, [0; 128]);
        assert_eq!(ret, err(Errno::ESRCH));
    }
    assert_eq!(s.plain(op::GETDOMAININFO, 4), err(Errno::ESRCH));
    assert_eq!(s.plain(op::GETDOMAININFO, 0x7ff0), err(Errno::EINVAL));
}

#[test]
fn errors_come_in_order() {
    let s = System::new(1);
    let guest = s.add_guest(7, 1);
    // Unreadable, version, domain, privilege, operation.
    assert_eq!(
        s.call(0, 36, [common::PAGES << 12, 0, 0, 0, 0]),
        err(Errno::EFAULT)
    );
    let by_guest = |v, cmd, id| s.domctl_by(&guest, v, cmd, id, [0; 128]).0;
    assert_eq!(by_guest(1, op::PAUSEDOMAIN, 99), err(Errno::EACCES));
    assert_eq!(by_guest(VERSION, op::PAUSEDOMAIN, 99), err(Errno::ESRCH));
    for cmd in [op::PAUSEDOMAIN, op::CREATEDOMAIN, op::GETDOMAININFO, 999] {
        assert_eq!(by_guest(VERSION, cmd, 7), err(Errno::EPERM), "{cmd}");
    }
    assert_eq!(s.plain(999, 7), err(Errno::ENOSYS));
    assert_eq!(s.plain(999, 8), err(Errno::ESRCH));
    // What would have to hold the caller.
    for cmd in [op::PAUSEDOMAIN, op::DESTROYDOMAIN, op::RESUMEDOMAIN] {
        assert_eq!(s.plain(cmd, 0), err(Errno::EINVAL), "{cmd}");
    }
}

#[test]
fn creation_is_checked() {
    let s = System::new(1);
    let create = |change: &dyn Fn(&mut CreateDomain)| {
        let mut c = pvh(1);
        change(&mut c);
        s.domctl(op::CREATEDOMAIN, 0, &c).0
    };
    let einval: [&dyn Fn(&mut CreateDomain); 15] = [
        &|c| c.flags = 0,
        &|c| c.flags = cdf::HVM,
        &|c| c.flags = cdf::HAP,
        &|c| c.flags |= 1 << 20,
        &|c| c.flags |= cdf::IOMMU,
        &|c| c.flags |= cdf::NESTED_VIRT,
        &|c| c.iommu_opts = 1,
        &|c| c.max_vcpus = 0,
        &|c| c.max_vcpus = 129,
        &|c| c.vmtrace_size = 4096,
        &|c| c.grant_opts = 0,
        &|c| c.grant_opts = 3,
        &|c| c.grant_opts = 0x11,
        &|c| c.max_grant_frames = 0,
        &|c| c.max_maptrack_frames = 1025,
    ];
    for (i, change) in einval.iter().enumerate() {
        assert_eq!(create(change), err(Errno::EINVAL), "{i}");
    }
    assert_eq!(
        create(&|c| c.arch.emulation_flags = 0),
        err(Errno::EOPNOTSUPP)
    );
    assert_eq!(
        create(&|c| c.arch.emulation_flags = emu::ALL & !emu::VPCI),
        err(Errno::EOPNOTSUPP)
    );
    assert_eq!(create(&|c| c.arch.misc_flags = 2), err(Errno::EINVAL));
    assert_eq!(create(&|c| c.cpupool_id = 1), err(Errno::ESRCH));
    assert!(s.hv.next_domain(DomId(1)).is_none());

    // A number of one's own, and the next free ones.
    assert_eq!(s.domctl(op::CREATEDOMAIN, 5, &pvh(1)).0, 0);
    assert_eq!(s.domctl(op::CREATEDOMAIN, 5, &pvh(1)).0, err(Errno::EEXIST));
    let ids: Vec<u16> = (0..5).map(|_| s.create(&pvh(1))).collect();
    assert_eq!(ids[3..], [ids[2] + 1 + u16::from(ids[2] == 4), ids[3] + 1]);
    assert!(!ids.contains(&5));
    assert_eq!(s.plain(op::DESTROYDOMAIN, ids[0]), 0);
    assert!(s.create(&pvh(1)) > ids[4], "numbers are not reused at once");
}

#[test]
fn what_is_told_of_a_domain() {
    let s = System::new(1);
    let id = s.create(&pvh(3));
    let i = s.info(id);
    assert_eq!(
        i.flags & 0xffff,
        dominf::HVM_GUEST | dominf::HAP | dominf::PAUSED
    );
    assert_eq!((i.max_vcpu_id, i.nr_online_vcpus), (u32::MAX, 0));
    assert_eq!((i.handle, i.gpaddr_bits, i.tot_pages), ([9; 16], 40, 0));
    assert_eq!(i.shared_info_frame, u64::MAX);
    assert_eq!(i.arch_config.emulation_flags, emu::LAPIC);

    let max = |max| s.domctl(op::MAX_VCPUS, id, &MaxVcpus { max }).0;
    let vcpu = |vcpu| {
        let a = GetVcpuInfo {
            vcpu,
            ..Default::default()
        };
        let (ret, answer) = s.domctl(op::GETVCPUINFO, id, &a);
        (ret, from::<GetVcpuInfo>(&answer.u))
    };
    assert_eq!(vcpu(0).0, err(Errno::ESRCH));
    assert_eq!(max(2), err(Errno::EINVAL));
    assert_eq!(max(3), 0);
    assert_eq!(max(3), 0);
    assert_eq!(vcpu(3).0, err(Errno::EINVAL));
    let (ret, v) = vcpu(2);
    assert_eq!((ret, v.online, v.running, v.cpu_time), (0, 0, 0, 0));
    assert_eq!(s.info(id).max_vcpu_id, 2);

    let mem = MaxMem { max_memkb: 4096 };
    assert_eq!(s.domctl(op::MAX_MEM, id, &mem).0, 0);
    let uuid = SetDomainHandle { handle: [1; 16] };
    assert_eq!(s.domctl(op::SETDOMAINHANDLE, id, &uuid).0, 0);
    let i = s.info(id);
    assert_eq!((i.max_pages, i.handle), (1024, [1; 16]));
    // The control domain itself.
    let i = s.info(0);
    assert_eq!(i.tot_pages, common::PAGES);
    assert_eq!(i.flags & dominf::PAUSED, 0);
}

#[test]
fn frames_are_told_from_holes() {
    let s = System::new(1);
    let d = s.create_ready(1, 16);
    assert_eq!(s.populate(d.id.0, 0, &[3, 70, 200]), 3);
    // An odd number of them, in any order, and one from beyond all memory.
    let mut asked: Vec<u64> = (0..150).rev().collect();
    asked.extend([200, u64::MAX, 3]);
    let ask = |num: u64, array: u64| {
        s.domctl(
            op::GETPAGEFRAMEINFO3,
            d.id.0,
            &GetPageFrameInfo3 { num, array },
        )
        .0
    };
    s.poke(LIST, asked.as_bytes());
    assert_eq!(ask(asked.len() as u64, LIST), 0);
    let told: [u64; 153] = zerocopy::transmute!(s.peek::<{ 153 * 8 }>(LIST));
    for (frame, kind) in asked.iter().zip(told) {
        let there = [3, 70, 200].contains(frame);
        let expected = if there { pfinfo::NOTAB } else { pfinfo::XTAB };
        assert_eq!(kind, expected.into(), "{frame}");
    }
    assert_eq!(ask(0, 0), 0);
    assert_eq!(ask(1025, LIST), err(Errno::E2BIG));
    // The last part of the list is not there.
    assert_eq!(ask(1024, common::PAGES * 4096 - 512), err(Errno::EFAULT));
    assert_eq!(ask(1024, u64::MAX - 7), err(Errno::EFAULT));
}

/// Lets a domain's vCPU 0 run on the fake machine until it sleeps.
fn run(s: &System) {
    let mut pcpu = PcpuLocal::new(CpuId(0));
    for _ in 0..4 {
        step(&s.hv, &mut pcpu);
    }
}

#[test]
fn holds_add_up() {
    let s = System::new(1);
    s.hv.sched.with(|p| p.remove(s.dom.vcpus()[0].key));
    let d = s.create_ready(1, 0);
    let v = d.vcpu(0).unwrap();
    let exits = || v.stats.exits();
    v.up.store(true, Ordering::SeqCst);
    {
        let mut local = v.local.try_lock().unwrap();
        local.ctx.sys.rflags = 1 << 9;
        local.ctx.script = (0..20).map(|_| Exit::CacheFlush { len: 1 }).collect();
    }
    run(&s);
    assert_eq!(exits(), 0);
    assert_eq!(s.plain(op::PAUSEDOMAIN, d.id.0), 0);
    assert_eq!(s.plain(op::UNPAUSEDOMAIN, d.id.0), 0);
    run(&s);
    assert_eq!((exits(), d.has_started()), (0, false));
    assert_eq!(s.plain(op::UNPAUSEDOMAIN, d.id.0), 0);
    assert_eq!(s.plain(op::UNPAUSEDOMAIN, d.id.0), err(Errno::EINVAL));
    run(&s);
    assert!(exits() > 20);
    assert!(d.has_started());
    assert_eq!(s.info(d.id.0).flags & dominf::PAUSED, 0);
    for _ in 0..255 {
        assert_eq!(s.plain(op::PAUSEDOMAIN, d.id.0), 0);
    }
    assert_eq!(s.plain(op::PAUSEDOMAIN, d.id.0), err(Errno::EOVERFLOW));
    assert_eq!(v.pause.load(Ordering::SeqCst), 1);
}

#[test]
fn a_domain_that_stopped_can_be_resumed() {
    let s = System::new(1);
    let d = s.create_ready(1, 4);
    let v = d.vcpu(0).unwrap();
    v.up.store(true, Ordering::SeqCst);
    assert_eq!(s.plain(op::UNPAUSEDOMAIN, d.id.0), 0);
    // SCHEDOP_remote_shutdown as crash.
    s.poke_words(ARG, &[u32::from(d.id.0), 3]);
    assert_eq!(s.call(0, 29, [4, ARG, 0, 0, 0]), 0);
    let flags = s.info(d.id.0).flags;
    assert_eq!(flags >> dominf::SHUTDOWN_SHIFT, 3);
    assert_eq!(flags & dominf::SHUTDOWN, dominf::SHUTDOWN);
    assert_eq!(v.pause.load(Ordering::SeqCst), 1);
    assert_eq!(s.plain(op::RESUMEDOMAIN, d.id.0), 0);
    assert_eq!(s.plain(op::RESUMEDOMAIN, d.id.0), 0);
    assert_eq!(v.pause.load(Ordering::SeqCst), 0);
    let flags = s.info(d.id.0).flags;
    assert_eq!(flags & dominf::SHUTDOWN, 0);
    assert_eq!(flags >> dominf::SHUTDOWN_SHIFT, 0xffff);
}

#[test]
fn triggers_and_handlers() {
    let s = System::new(1);
    let d = s.create_ready(1, 0);
    let send = |trigger, vcpu| {
        s.domctl(op::SENDTRIGGER, d.id.0, &SendTrigger { trigger, vcpu })
            .0
    };
    assert_eq!(send(0, 0), 0);
    assert_eq!(send(3, 0), 0);
    assert_eq!(send(4, 0), 0);
    assert_eq!(send(2, 0), err(Errno::ENOSYS));
    assert_eq!(send(0, 1), err(Errno::ESRCH));
    let handler = |virq| {
        s.domctl(op::SET_VIRQ_HANDLER, d.id.0, &SetVirqHandler { virq })
            .0
    };
    assert_eq!(handler(3), 0);
    assert_eq!(s.hv.virq_handler(3), d.id);
    assert_eq!(handler(0), err(Errno::EINVAL));
    assert_eq!(handler(24), err(Errno::EINVAL));
}

#[test]
fn affinity_and_share() {
    let s = System::new(1);
    let d = s.create_ready(1, 0);
    let mut a = VcpuAffinity {
        flags: affinity::HARD | affinity::SOFT,
        ..Default::default()
    };
    let at = common::toolstack::LIST;
    (a.cpumap_hard.bitmap, a.cpumap_hard.nr_bits) = (at, 64);
    (a.cpumap_soft.bitmap, a.cpumap_soft.nr_bits) = (at + 8, 12);
    s.poke(at, &[2, 0, 0, 0, 0, 0, 0, 0x80, 0xff, 0xff]);
    assert_eq!(s.domctl(op::SETVCPUAFFINITY, d.id.0, &a).0, 0);
    // The pCPUs of the two that there are.
    assert_eq!(s.peek::<10>(at), [2, 0, 0, 0, 0, 0, 0, 0, 2, 0]);
    assert_eq!(s.domctl(op::GETVCPUAFFINITY, d.id.0, &a).0, 0);
    assert_eq!(s.peek::<10>(at), [2, 0, 0, 0, 0, 0, 0, 0x80, 0xff, 0x0f]);
    s.poke(at, &[4, 0, 0, 0, 0, 0, 0, 0]);
    a.flags = affinity::HARD;
    assert_eq!(
        s.domctl(op::SETVCPUAFFINITY, d.id.0, &a).0,
        err(Errno::EINVAL)
    );
    for (flags, vcpu, e) in [(0, 0, Errno::EINVAL), (affinity::HARD, 1, Errno::EINVAL)] {
        let bad = VcpuAffinity { flags, vcpu, ..a };
        assert_eq!(s.domctl(op::GETVCPUAFFINITY, d.id.0, &bad).0, err(e));
    }

    let sched = |id, cmd, weight, cap| {
        let mut a = SchedulerOp {
            sched_id: id,
            cmd,
            ..Default::default()
        };
        a.u[..4].copy_from_slice(SchedCredit { weight, cap }.as_bytes());
        let (ret, answer) = s.domctl(op::SCHEDULER_OP, d.id.0, &a);
        let a: SchedulerOp = from(&answer.u);
        let p = SchedCredit::read_from_prefix(&a.u).unwrap().0;
        (ret, p.weight, p.cap)
    };
    let credit2 = scheduler::CREDIT2;
    assert_eq!(sched(credit2, schedop::GETINFO, 0, 0), (0, 256, 0));
    assert_eq!(sched(credit2, schedop::PUTINFO, 512, 50), (0, 512, 50));
    assert_eq!(sched(credit2, schedop::PUTINFO, 0, 0xffff).0, 0);
    assert_eq!(sched(credit2, schedop::GETINFO, 0, 0), (0, 512, 50));
    assert_eq!(sched(scheduler::CREDIT, 1, 0, 0).0, err(Errno::EINVAL));
    assert_eq!(sched(credit2, 2, 0, 0).0, err(Errno::EINVAL));
}

#[test]
fn table_frames_have_a_limit() {
    let s = System::new(1);
    let d = s.create_ready(1, 1 << 20);
    let id = d.id.0;
    let size = |cmd, size| {
        let (ret, answer) = s.domctl(cmd, id, &PagingMempool { size });
        (ret, from::<PagingMempool>(&answer.u).size)
    };
    let (get, set) = (op::GET_PAGING_MEMPOOL_SIZE, op::SET_PAGING_MEMPOOL_SIZE);
    assert_eq!(size(get, 0), (0, 256 << 12));
    assert_eq!(size(set, 64 << 20).0, 0);
    assert_eq!(size(get, 0), (0, 64 << 20));
    assert_eq!(size(set, 4097).0, err(Errno::EINVAL));
    assert_eq!(size(set, !4095).0, err(Errno::EINVAL));
    assert_eq!(size(set, 0).0, 0);
    // The root alone is in use; a page needs three tables below it.
    assert_eq!(size(get, 0), (0, 4096));
    assert_eq!(s.populate(id, 0, &[0]), 0);
    assert_eq!(d.p2m.pages(), 0);
    assert_eq!(size(set, 4 * 4096).0, 0);
    assert_eq!(s.populate(id, 0, &[0, 511, 512]), 2);
    assert_eq!(d.p2m.pages(), 2);
    assert!(d.p2m.page_type(Gfn(512)).is_none());
}

#[test]
fn refused_and_unknown_operations() {
    let s = System::new(1);
    let d = s.create_ready(1, 0);
    for (cmd, e) in [
        (op::ASSIGN_DEVICE, Errno::EOPNOTSUPP),
        (op::GET_DEVICE_GROUP, Errno::EOPNOTSUPP),
        (op::SET_ADDRESS_SIZE, Errno::EOPNOTSUPP),
        (op::SET_LLC_COLORS, Errno::EOPNOTSUPP),
        (op::IRQ_PERMISSION, Errno::EPERM),
        (op::PSR_CMT_OP, Errno::ENODEV),
        (op::VMTRACE_OP, Errno::EINVAL),
        (op::CACHEFLUSH, Errno::ENOSYS),
        (op::GDBSX_DOMSTATUS, Errno::ENOSYS),
    ] {
        assert_eq!(s.plain(cmd, d.id.0), err(e), "{cmd}");
    }
    assert_eq!(s.plain(op::ASSIGN_DEVICE, 0x7ff1), err(Errno::EOPNOTSUPP));
    assert_eq!(s.plain(op::ASSIGN_DEVICE, 0x7ff4), err(Errno::ESRCH));
    assert_eq!(
        s.plain(op::TEST_ASSIGN_DEVICE, 0x7ff4),
        err(Errno::EOPNOTSUPP)
    );
}
