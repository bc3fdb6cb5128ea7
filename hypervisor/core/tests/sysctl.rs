//! What a toolstack learns of the machine, and a PVH domain built by calls alone.

mod common;

use common::System;
use common::toolstack::{ARG, LIST, from, pvh};
use hv_core::vcpu::run::{PcpuLocal, step};
use hv_hw::GuestContext;
use hv_hw::machine::CpuId;
use x86_model::{Gpa, Gpr};
use xen_abi::domctl::{
    self, CpuidLeaf, GetDomainInfo, HvmContext, HvmContextPartial, TscInfo, dominf, op as dop,
    scheduler,
};
use xen_abi::hvm::save::{HwCpu, HwMtrr, SaveDescriptor, SaveHeader, code, file};
use xen_abi::sysctl::{
    self, CpuFeatureset, CpuTopo, CpuTopoInfo, CpupoolOp, DebugKeys, GetCpuInfo, GetDomainInfoList,
    MemInfo, NumaInfo, PhysInfo, ReadConsole, SchedId, Sysctl, cpupool, op, physcap,
};
use xen_abi::{DomId, Errno};
use zerocopy::{FromBytes, IntoBytes};

fn err(e: Errno) -> i64 {
    e.to_ret()
}

#[test]
fn versions_and_privilege() {
    let s = System::new(1);
    let guest = s.add_guest(3, 1);
    let call = |dom, v: u32, cmd: u32| {
        let a = Sysctl {
            cmd,
            interface_version: v,
            u: [0; 128],
        };
        let d = if dom == 0 { &s.dom } else { &guest };
        hv_core::guest::access::write_phys(&d.p2m, Gpa(ARG), a.as_bytes()).unwrap();
        s.call_from(d, 0, 35, [ARG, 0, 0, 0, 0]).0
    };
    assert_eq!(call(0, 0x14, op::SCHED_ID), err(Errno::EACCES));
    assert_eq!(call(0, 0x17, op::SCHED_ID), err(Errno::EACCES));
    assert_eq!(call(0, 0x15, op::SCHED_ID), 0);
    assert_eq!(call(0, 0x16, op::SCHED_ID), 0);
    assert_eq!(call(0, 0x15, op::GET_CPU_LEVELLING_CAPS), 0);
    assert_eq!(
        call(0, 0x16, op::GET_CPU_LEVELLING_CAPS),
        err(Errno::ENOSYS)
    );
    assert_eq!(call(1, 0x14, op::SCHED_ID), err(Errno::EACCES));
    assert_eq!(call(1, 0x15, op::SCHED_ID), err(Errno::EPERM));
    assert_eq!(call(1, 0x15, 999), err(Errno::EPERM));
    assert_eq!(call(0, 0x15, 999), err(Errno::ENOSYS));
}

#[test]
fn the_machine() {
    let s = System::new(1);
    let (ret, a) = s.sysctl(op::PHYSINFO, &0u64);
    let info: PhysInfo = from(&a.u);
    assert_eq!(ret, 0);
    assert_eq!((info.nr_cpus, info.max_cpu_id, info.nr_nodes), (2, 1, 1));
    assert_eq!(
        info.capabilities,
        physcap::HVM | physcap::HAP | physcap::GNTTAB_V1 | physcap::GNTTAB_V2
    );
    assert!(info.free_pages < info.total_pages);
    assert_eq!(info.cpu_khz, 1_000_000);
    assert!(info.threads_per_core >= 1 && info.cores_per_socket >= 1);

    let (ret, a) = s.sysctl(op::CPUTOPOINFO, &CpuTopoInfo::default());
    assert_eq!((ret, from::<CpuTopoInfo>(&a.u).num_cpus), (0, 2));
    let ask = CpuTopoInfo {
        num_cpus: 8,
        cputopo: LIST,
        ..Default::default()
    };
    let (ret, a) = s.sysctl(op::CPUTOPOINFO, &ask);
    assert_eq!((ret, from::<CpuTopoInfo>(&a.u).num_cpus), (0, 2));
    let topo: [CpuTopo; 2] = <[CpuTopo; 2]>::read_from_bytes(&s.peek::<24>(LIST)).unwrap();
    assert_eq!(topo.map(|t| t.node), [0, 0]);
    assert_ne!(
        (topo[0].core, topo[0].socket),
        (topo[1].core, topo[1].socket)
    );

    let (ret, a) = s.sysctl(op::NUMAINFO, &NumaInfo::default());
    assert_eq!((ret, from::<NumaInfo>(&a.u).num_nodes), (0, 1));
    let ask = NumaInfo {
        num_nodes: 4,
        meminfo: LIST,
        distance: LIST + 64,
        ..Default::default()
    };
    let (ret, a) = s.sysctl(op::NUMAINFO, &ask);
    assert_eq!((ret, from::<NumaInfo>(&a.u).num_nodes), (0, 1));
    let memory = MemInfo::read_from_bytes(&s.peek::<16>(LIST)).unwrap();
    assert!(memory.memfree > 0 && memory.memfree < memory.memsize);
    assert_eq!(s.peek_u32(LIST + 64), 10);

    let (ret, a) = s.sysctl(op::SCHED_ID, &0u32);
    assert_eq!(
        (ret, from::<SchedId>(&a.u).sched_id),
        (0, scheduler::CREDIT2)
    );
    let idle = GetCpuInfo {
        max_cpus: 8,
        info: LIST,
        ..Default::default()
    };
    let (ret, a) = s.sysctl(op::GETCPUINFO, &idle);
    assert_eq!((ret, from::<GetCpuInfo>(&a.u).nr_cpus), (0, 2));
}

#[test]
fn the_pool() {
    let s = System::new(1);
    s.create(&pvh(1));
    let mut a = CpupoolOp {
        op: cpupool::INFO,
        ..Default::default()
    };
    (a.cpumap.bitmap, a.cpumap.nr_bits) = (LIST, 16);
    s.poke(LIST, &[0xff; 4]);
    let (ret, answer) = s.sysctl(op::CPUPOOL_OP, &a);
    let info: CpupoolOp = from(&answer.u);
    assert_eq!((ret, info.n_dom, info.sched_id), (0, 2, scheduler::CREDIT2));
    assert_eq!(s.peek::<4>(LIST), [3, 0, 0xff, 0xff]);
    a.op = cpupool::FREEINFO;
    assert_eq!(s.sysctl(op::CPUPOOL_OP, &a).0, 0);
    assert_eq!(s.peek::<2>(LIST), [0, 0]);
    for (which, pool, e) in [
        (cpupool::INFO, 1, Errno::ENOENT),
        (cpupool::CREATE, cpupool::ANY, Errno::EOPNOTSUPP),
        (cpupool::DESTROY, 0, Errno::EBUSY),
        (cpupool::DESTROY, 1, Errno::ENOENT),
        (99, 0, Errno::ENOSYS),
    ] {
        (a.op, a.cpupool_id) = (which, pool);
        assert_eq!(s.sysctl(op::CPUPOOL_OP, &a).0, err(e), "{which} {pool}");
    }
    let mut sched = sysctl::SchedulerOp {
        sched_id: scheduler::CREDIT2,
        cmd: 1,
        ..Default::default()
    };
    let (ret, answer) = s.sysctl(op::SCHEDULER_OP, &sched);
    let told: sysctl::SchedulerOp = from(&answer.u);
    assert_eq!((ret, told.u[..4].to_vec()), (0, vec![0xe8, 3, 0, 0]));
    sched = told;
    sched.cmd = 0;
    assert_eq!(s.sysctl(op::SCHEDULER_OP, &sched).0, 0);
    sched.u[0] = 0;
    assert_eq!(s.sysctl(op::SCHEDULER_OP, &sched).0, err(Errno::EOPNOTSUPP));
    sched.cpupool_id = 1;
    assert_eq!(s.sysctl(op::SCHEDULER_OP, &sched).0, err(Errno::ESRCH));
}

#[test]
fn the_list_of_domains() {
    let s = System::new(1);
    let ids: Vec<u16> = (0..3).map(|_| s.create(&pvh(1))).collect();
    let list = |first, max| {
        let a = GetDomainInfoList {
            first_domain: DomId(first),
            max_domains: max,
            buffer: LIST,
            ..Default::default()
        };
        let (ret, answer) = s.sysctl(op::GETDOMAININFOLIST, &a);
        assert_eq!(ret, 0);
        let n = from::<GetDomainInfoList>(&answer.u).num_domains;
        (0..u64::from(n))
            .map(|i| {
                let d = GetDomainInfo::read_from_bytes(&s.peek::<112>(LIST + i * 112)).unwrap();
                d.domain.0
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(list(0, 1024), [0, ids[0], ids[1], ids[2]]);
    assert_eq!(list(1, 2), ids[..2]);
    assert_eq!(list(ids[2] + 1, 8), []);
    assert_eq!(list(0xffff, 8), []);
    assert_eq!(list(0, 0), []);
}

#[test]
fn the_log_and_its_keys() {
    let s = System::new(1);
    s.hv.hw.seen.lock().unwrap().log = (0..600u32).map(|n| n as u8).collect();
    let read = |incremental, index, count, clear| {
        let a = ReadConsole {
            incremental,
            index,
            count,
            clear,
            buffer: LIST,
            ..Default::default()
        };
        let (ret, answer) = s.sysctl(op::READCONSOLE, &a);
        assert_eq!(ret, 0);
        let a: ReadConsole = from(&answer.u);
        (a.count, a.index)
    };
    assert_eq!(read(0, 0, 500, 0), (500, 500));
    assert_eq!(
        s.peek::<2>(LIST + 498),
        [498 & 0xff, 499 & 0xff].map(|n| n as u8)
    );
    assert_eq!(read(1, 500, 500, 0), (100, 600));
    // What is cleared is what was read: the next call tells the rest.
    assert_eq!(read(0, 0, 400, 1), (400, 400));
    assert_eq!(read(1, 400, 400, 1), (200, 600));
    assert_eq!(read(1, 600, 500, 1), (0, 600));
    assert_eq!(read(0, 0, 500, 0), (0, 600));
    s.poke(LIST, b"hqm?\x07");
    let keys = |nr_keys| {
        let a = DebugKeys {
            keys: LIST,
            nr_keys,
            ..Default::default()
        };
        s.sysctl(op::DEBUG_KEYS, &a).0
    };
    assert_eq!(keys(5), 0);
    assert_eq!(keys(129), err(Errno::E2BIG));
}

#[test]
fn new_lines_of_the_log_are_told() {
    let s = System::new(1);
    s.hv.sched.with(|p| p.remove(s.dom.vcpus()[0].key));
    // VIRQ_CON_RING.
    s.poke_words(ARG, &[8, 0, 0]);
    assert_eq!(s.call(0, 32, [1, ARG, 0, 0, 0]), 0);
    let port = s.peek_u32(ARG + 8);
    let told = || s.dom.evtchn.any_pending(&[port]).unwrap();
    let mut pcpu = PcpuLocal::new(CpuId(1));
    let print = |line: &[u8]| s.hv.hw.seen.lock().unwrap().log.extend(line);
    step(&s.hv, &mut pcpu);
    assert!(!told());
    print(b"one\n");
    step(&s.hv, &mut pcpu);
    assert!(told());
    // Once for what there is, and again for more.
    s.dom.shared_info.write(2048, &[0; 8]);
    step(&s.hv, &mut pcpu);
    assert!(!told());
    print(b"two\n");
    step(&s.hv, &mut pcpu);
    assert!(told());
}

#[test]
fn feature_sets_and_policies() {
    let s = System::new(1);
    let set = |index, nr_features, features| {
        let a = CpuFeatureset {
            index,
            nr_features,
            features,
        };
        let (ret, answer) = s.sysctl(op::GET_CPU_FEATURESET, &a);
        (ret, from::<CpuFeatureset>(&answer.u).nr_features)
    };
    assert_eq!(set(1, 0, 0), (0, 18));
    assert_eq!(set(1, 18, LIST), (0, 18));
    assert_eq!(set(3, 5, LIST), (err(Errno::ENOBUFS), 5));
    assert_eq!(set(2, 18, LIST).0, err(Errno::EOPNOTSUPP));
    assert_eq!(set(6, 18, LIST).0, err(Errno::EINVAL));

    let policy = |index, nr_leaves, leaves| {
        let a = sysctl::CpuPolicy {
            index,
            nr_leaves,
            leaves,
            ..Default::default()
        };
        let (ret, answer) = s.sysctl(op::GET_CPU_POLICY, &a);
        let a: sysctl::CpuPolicy = from(&answer.u);
        (ret, a.nr_leaves, a.nr_msrs)
    };
    assert_eq!(policy(5, 0, 0), (0, 120, 2));
    assert_eq!(policy(5, 1, LIST).0, err(Errno::ENOBUFS));
    assert_eq!(policy(2, 120, LIST).0, err(Errno::EOPNOTSUPP));
    let (ret, n, _) = policy(5, 120, LIST);
    assert_eq!(ret, 0);
    let leaves: Vec<CpuidLeaf> = (0..u64::from(n))
        .map(|i| CpuidLeaf::read_from_bytes(&s.peek::<24>(LIST + i * 24)).unwrap())
        .collect();
    assert!(leaves.is_sorted_by_key(|l| (l.leaf, l.subleaf)));
    assert_eq!((leaves[0].leaf, leaves[0].subleaf), (0, u32::MAX));

    // A toolstack gives the default back, with a feature less.
    let d = s.create_ready(2, 0);
    let set = |change: &dyn Fn(&mut CpuidLeaf)| {
        for (i, l) in (0..).zip(&leaves) {
            let mut l = *l;
            change(&mut l);
            s.poke(LIST + i * 24, l.as_bytes());
        }
        let a = domctl::CpuPolicy {
            nr_leaves: n,
            leaves: LIST,
            ..Default::default()
        };
        let (ret, answer) = s.domctl(dop::SET_CPU_POLICY, d.id.0, &a);
        let a: domctl::CpuPolicy = from(&answer.u);
        (ret, a.err_leaf, a.err_subleaf)
    };
    let x2apic = |v: u32| {
        d.vcpu(v)
            .unwrap()
            .local
            .try_lock()
            .unwrap()
            .cpuid
            .has(1, 2, 21)
    };
    let mode = |v: u32| {
        d.vcpu(v)
            .unwrap()
            .local
            .try_lock()
            .unwrap()
            .cpuid
            .lookup(0, 0, &Default::default())[0]
    };
    let before = mode(1);
    assert_eq!(set(&|_| ()), (0, u32::MAX, u32::MAX));
    assert_eq!(mode(1), before);
    assert_eq!(
        set(&|l| if l.leaf == 0 {
            l.a += 1
        }),
        (err(Errno::EINVAL), 0, u32::MAX)
    );
    assert_eq!(
        set(&|l| if l.leaf == 1 {
            l.leaf = 0x20
        }),
        (err(Errno::ERANGE), 0x20, u32::MAX)
    );
    assert_eq!(
        set(&|l| match l.leaf {
            0 => l.a = 1,
            // What the domain runs on stays.
            1 => l.c = 0,
            _ => {}
        })
        .0,
        0
    );
    assert_eq!((mode(0), mode(1)), (1, 1));
    assert!(x2apic(1));
    assert_eq!(s.plain(dop::UNPAUSEDOMAIN, d.id.0), 0);
    assert_eq!(set(&|_| ()).0, err(Errno::EEXIST));
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

#[test]
fn a_pvh_domain_is_built_and_runs() {
    let s = System::new(1);
    s.hv.sched.with(|p| p.remove(s.dom.vcpus()[0].key));
    let d = s.create_ready(2, 1024 + 256);
    let id = d.id.0;
    assert_eq!(s.domctl(dop::SETTSCINFO, id, &TscInfo::default()).0, 0);
    // 2 MiB of RAM, and the special pages; memory is zeroed.
    assert_eq!(s.populate(id, 9, &[0, 0x200]), 2);
    let special: Vec<u64> = (0..8).map(|n| 0xf_eff8 + n).collect();
    assert_eq!(s.populate(id, 0, &special), 8);
    // Parameters: timer mode, xenstore's page and port.
    for (index, value, answer) in [
        (10u32, 1u64, 0),
        (10, 4, err(Errno::EINVAL)),
        (35, 0, 0),
        (35, 1, err(Errno::EINVAL)),
        (1, 0xf_effc, 0),
        (2, 1, 0),
        (5, 0xf_effd, 0),
        (5, 0xf_effe, err(Errno::EEXIST)),
        (9, 1, err(Errno::EINVAL)),
        (12, 0xfeff_e000, 0),
        (13, 1, err(Errno::EINVAL)),
    ] {
        s.poke_words(ARG, &[id.into(), index]);
        s.poke(ARG + 8, &value.to_le_bytes());
        assert_eq!(s.call(0, 34, [0, ARG, 0, 0, 0]), answer, "{index} {value}");
    }

    // The header and the MTRR record come from the domain that never ran.
    let get = |size, buffer| {
        let a = HvmContext {
            size,
            buffer,
            ..Default::default()
        };
        let (ret, answer) = s.domctl(dop::GETHVMCONTEXT, id, &a);
        (ret, from::<HvmContext>(&answer.u).size as usize)
    };
    let (ret, size) = get(0, 0);
    assert_eq!(ret, 0);
    assert_eq!(get(10, LIST).0, err(Errno::ENOSPC));
    let (ret, used) = get(size as u32, LIST);
    assert_eq!(ret, 0);
    let saved: Vec<u8> = s.peek::<4096>(LIST)[..used].to_vec();
    let (first, rest) = SaveDescriptor::read_from_prefix(&saved).unwrap();
    assert_eq!((first.typecode, first.length), (code::HEADER, 24));
    let header = SaveHeader::read_from_prefix(rest).unwrap().0;
    assert_eq!((header.magic, header.version), (file::MAGIC, file::VERSION));
    let one = HvmContextPartial {
        kind: code::MTRR.into(),
        instance: 1,
        bufsz: 4096,
        buffer: LIST,
    };
    let (ret, answer) = s.domctl(dop::GETHVMCONTEXT_PARTIAL, id, &one);
    assert_eq!(ret, 0);
    assert_eq!(from::<HvmContextPartial>(&answer.u).bufsz, 240);
    let mut mtrr = HwMtrr::read_from_bytes(&s.peek::<240>(LIST)).unwrap();
    assert_eq!(mtrr.msr_mtrr_cap & 0xff, 8);
    mtrr.msr_mtrr_def_type = 0x806;

    let set = |records: &[u8]| {
        s.poke(LIST, records);
        let a = HvmContext {
            size: records.len() as u32,
            buffer: LIST,
            ..Default::default()
        };
        s.domctl(dop::SETHVMCONTEXT, id, &a).0
    };
    let mut stream = Vec::new();
    push(&mut stream, code::HEADER, 0, header.as_bytes());
    let only_header = stream.clone();
    push(&mut stream, code::MTRR, 1, mtrr.as_bytes());
    push(&mut stream, code::END, 0, &[]);
    assert_eq!(set(&stream), 0);
    assert_eq!(set(&stream[32..]), err(Errno::ENODATA));
    assert_eq!(set(&only_header), err(Errno::ENODATA));
    let cpu = HwCpu {
        rip: 0x100_0000,
        rbx: 0x200_0000,
        cr0: 0x11,
        dr6: 0xffff_0ff0,
        dr7: 0x400,
        cs_limit: u32::MAX,
        ds_limit: u32::MAX,
        es_limit: u32::MAX,
        ss_limit: u32::MAX,
        tr_limit: 0x67,
        cs_arbytes: 0xc9b,
        ds_arbytes: 0xc93,
        es_arbytes: 0xc93,
        ss_arbytes: 0xc93,
        tr_arbytes: 0x8b,
        ..Default::default()
    };
    let with_cpu = |cpu: &HwCpu, instance| {
        let mut stream = only_header.clone();
        push(&mut stream, code::CPU, instance, cpu.as_bytes());
        push(&mut stream, code::END, 0, &[]);
        stream
    };
    for bad in [
        HwCpu {
            cr0: 0x10 | 1 << 31,
            ..cpu
        },
        HwCpu { cr0: 1, ..cpu },
        HwCpu {
            cr4: 1 << 40,
            ..cpu
        },
        HwCpu {
            msr_efer: 1 << 10,
            ..cpu
        },
        HwCpu {
            cr3: 1 << 50,
            ..cpu
        },
        HwCpu {
            dr7: 1 << 40,
            ..cpu
        },
        HwCpu { flags: 2, ..cpu },
    ] {
        assert_eq!(set(&with_cpu(&bad, 0)), err(Errno::EINVAL), "{bad:?}");
    }
    assert_eq!(set(&with_cpu(&cpu, 2)), err(Errno::EINVAL));
    assert_eq!(s.info(id).nr_online_vcpus, 0);
    assert_eq!(set(&with_cpu(&cpu, 0)), 0);
    let info = s.info(id);
    assert_eq!((info.nr_online_vcpus, info.max_vcpu_id), (1, 1));
    assert_ne!(info.flags & dominf::PAUSED, 0);

    // It starts where it was told to, in flat 32-bit mode.
    let v = d.vcpu(0).unwrap();
    let mut pcpu = PcpuLocal::new(CpuId(0));
    step(&s.hv, &mut pcpu);
    assert_eq!(v.stats.exits(), 0);
    {
        let local = v.local.try_lock().unwrap();
        let state = local.ctx.state();
        assert_eq!((state.rip, state.rflags, state.cr0), (0x100_0000, 2, 0x11));
        assert_eq!(state.segments[1].access, 0xc09b);
        assert_eq!(state.segments[4].access & 1 << 16, 1 << 16);
        assert_eq!(local.ctx.gprs().get(Gpr::Rbx), 0x200_0000);
    }
    assert_eq!(s.plain(dop::UNPAUSEDOMAIN, id), 0);
    step(&s.hv, &mut pcpu);
    assert!(v.stats.exits() > 0);
    // HLT with interrupts off and no other vCPU up: it has powered off.
    let flags = s.info(id).flags;
    assert_eq!(flags >> dominf::SHUTDOWN_SHIFT, 0);
    assert_ne!(flags & dominf::SHUTDOWN, 0);
}
