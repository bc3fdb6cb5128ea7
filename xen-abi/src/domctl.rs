//! Control of domains by the toolstack (`domctl.h`, with the parts of `arch-x86/xen.h` and `xen.h` that it uses).
//!
//! The interface is not stable: every structure starts with the number of its version. What differs between the versions
//! that the hypervisor takes stands in [`version`].

use crate::DomId;
use crate::layout::abi_header;

abi_header! {
    header "domctl.h";
    structs {
        /// The argument of every operation.
        Domctl "struct xen_domctl" [144] {
            /// [`op`].
            @0 cmd: u32,
            /// [`version`].
            @4 interface_version: u32,
            @8 domain: DomId,
            @10 _pad: [u16; 3] as "_pad",
            /// The operation's own structure.
            @16 u: [u8; 128] as "u",
        }
        /// A set of CPUs or nodes in guest memory.
        CtlBitmap "struct xenctl_bitmap" [16] {
            /// Guest address of the bytes.
            @0 bitmap: u64,
            @8 nr_bits: u32,
            @12 _pad0: u32,
        }
        /// Part of [`CreateDomain`] and [`GetDomainInfo`].
        ArchDomainConfig "struct xen_arch_domainconfig" [8] {
            /// [`emu`].
            @0 emulation_flags: u32,
            /// [`misc`].
            @4 misc_flags: u32,
        }
        /// [`op::CREATEDOMAIN`] up to interface 0x16.
        CreateDomain "struct xen_domctl_createdomain" [64] {
            @0 ssidref: u32,
            @4 handle: [u8; 16],
            /// [`cdf`].
            @20 flags: u32,
            @24 iommu_opts: u32,
            @28 max_vcpus: u32,
            /// Highest port number.
            @32 max_evtchn_port: u32,
            /// Negative: the default.
            @36 max_grant_frames: i32,
            /// Negative: the default.
            @40 max_maptrack_frames: i32,
            /// Bits 3:0: highest version of grant tables.
            @44 grant_opts: u32,
            @48 vmtrace_size: u32,
            @52 cpupool_id: u32,
            @56 arch: ArchDomainConfig,
        }
        /// [`op::CREATEDOMAIN`] from interface 0x17 on.
        CreateDomain17 "struct xen_domctl_createdomain" [68] skip "the layout of Xen 4.19 and later" {
            @0 ssidref: u32,
            @4 handle: [u8; 16],
            @20 flags: u32,
            @24 iommu_opts: u32,
            @28 max_vcpus: u32,
            @32 max_evtchn_port: u32,
            @36 max_grant_frames: i32,
            @40 max_maptrack_frames: i32,
            @44 grant_opts: u32,
            /// Bits 1:0: mode; later releases keep a count in the upper half.
            @48 altp2m_opts: u32,
            @52 vmtrace_size: u32,
            @56 cpupool_id: u32,
            @60 arch: ArchDomainConfig,
        }
        /// [`op::GETDOMAININFO`], and the elements of the list that `sysctl` gives.
        GetDomainInfo "struct xen_domctl_getdomaininfo" [112] {
            @0 domain: DomId,
            @2 _pad1: u16 as "pad1",
            /// [`dominf`].
            @4 flags: u32,
            @8 tot_pages: u64,
            @16 max_pages: u64,
            @24 outstanding_pages: u64,
            @32 shr_pages: u64,
            @40 paged_pages: u64,
            @48 shared_info_frame: u64,
            /// ns.
            @56 cpu_time: u64,
            @64 nr_online_vcpus: u32,
            /// All ones without vCPUs.
            @68 max_vcpu_id: u32,
            @72 ssidref: u32,
            @76 handle: [u8; 16],
            @92 cpupool: u32,
            @96 gpaddr_bits: u8,
            @97 _pad2: [u8; 7] as "pad2",
            @104 arch_config: ArchDomainConfig,
        }
        /// [`op::GETPAGEFRAMEINFO3`].
        GetPageFrameInfo3 "struct xen_domctl_getpageframeinfo3" [16] {
            @0 num: u64,
            /// Guest address of `num` frame numbers (u64), replaced by types.
            @8 array: u64,
        }
        /// [`op::SETNODEAFFINITY`], [`op::GETNODEAFFINITY`].
        NodeAffinity "struct xen_domctl_nodeaffinity" [16] {
            @0 nodemap: CtlBitmap,
        }
        /// [`op::SETVCPUAFFINITY`], [`op::GETVCPUAFFINITY`].
        VcpuAffinity "struct xen_domctl_vcpuaffinity" [40] {
            @0 vcpu: u32,
            /// [`affinity`].
            @4 flags: u32,
            @8 cpumap_hard: CtlBitmap,
            @24 cpumap_soft: CtlBitmap,
        }
        /// [`op::SHADOW_OP`].
        ShadowOp "struct xen_domctl_shadow_op" [40] {
            /// [`shadow`].
            @0 op: u32,
            @4 mode: u32,
            @8 mb: u32,
            @12 _pad0: u32,
            @16 dirty_bitmap: u64,
            @24 pages: u64,
            @32 stats: [u32; 2],
        }
        /// [`op::MAX_MEM`].
        MaxMem "struct xen_domctl_max_mem" [8] {
            @0 max_memkb: u64,
        }
        /// [`op::GETVCPUCONTEXT`], [`op::SETVCPUCONTEXT`].
        VcpuContext "struct xen_domctl_vcpucontext" [16] {
            @0 vcpu: u32,
            @4 _pad0: u32,
            @8 ctxt: u64,
        }
        /// [`op::GETVCPUINFO`].
        GetVcpuInfo "struct xen_domctl_getvcpuinfo" [24] {
            @0 vcpu: u32,
            @4 online: u8,
            @5 blocked: u8,
            @6 running: u8,
            @7 _pad0: u8,
            /// ns.
            @8 cpu_time: u64,
            @16 cpu: u32,
            @20 _pad1: u32,
        }
        /// [`op::MAX_VCPUS`].
        MaxVcpus "struct xen_domctl_max_vcpus" [4] {
            @0 max: u32,
        }
        /// [`op::SCHEDULER_OP`].
        SchedulerOp "struct xen_domctl_scheduler_op" [24] {
            /// [`scheduler`].
            @0 sched_id: u32,
            /// [`schedop`].
            @4 cmd: u32,
            @8 u: [u8; 16] as "u",
        }
        /// Parameters under credit and credit2.
        SchedCredit "struct xen_domctl_sched_credit" [4] {
            @0 weight: u16,
            @2 cap: u16,
        }
        /// [`op::SETDOMAINHANDLE`].
        SetDomainHandle "struct xen_domctl_setdomainhandle" [16] {
            @0 handle: [u8; 16],
        }
        /// [`op::IRQ_PERMISSION`].
        IrqPermission "struct xen_domctl_irq_permission" [8] {
            @0 pirq: u32,
            @4 allow_access: u8,
            @5 _pad: [u8; 3] as "pad",
        }
        /// [`op::IOMEM_PERMISSION`].
        IomemPermission "struct xen_domctl_iomem_permission" [24] {
            @0 first_mfn: u64,
            @8 nr_mfns: u64,
            @16 allow_access: u8,
            @17 _pad0: [u8; 7],
        }
        /// [`op::IOPORT_PERMISSION`].
        IoportPermission "struct xen_domctl_ioport_permission" [12] {
            @0 first_port: u32,
            @4 nr_ports: u32,
            @8 allow_access: u8,
            @9 _pad0: [u8; 3],
        }
        /// [`op::HYPERCALL_INIT`].
        HypercallInit "struct xen_domctl_hypercall_init" [8] {
            @0 gmfn: u64,
        }
        /// [`op::SETTIMEOFFSET`].
        SetTimeOffset "struct xen_domctl_settimeoffset" [8] {
            @0 time_offset_seconds: i64,
        }
        /// [`op::GETHVMCONTEXT`], [`op::SETHVMCONTEXT`].
        HvmContext "struct xen_domctl_hvmcontext" [16] {
            @0 size: u32,
            @4 _pad0: u32,
            /// Null asks for the size.
            @8 buffer: u64,
        }
        /// [`op::GETHVMCONTEXT_PARTIAL`].
        HvmContextPartial "struct xen_domctl_hvmcontext_partial" [24] {
            @0 kind: u32 as "type",
            @4 instance: u32,
            @8 bufsz: u64,
            @16 buffer: u64,
        }
        /// [`op::SET_ADDRESS_SIZE`], [`op::GET_ADDRESS_SIZE`].
        AddressSize "struct xen_domctl_address_size" [4] {
            @0 size: u32,
        }
        /// [`op::SENDTRIGGER`].
        SendTrigger "struct xen_domctl_sendtrigger" [8] {
            /// [`trigger`].
            @0 trigger: u32,
            @4 vcpu: u32,
        }
        /// [`op::ASSIGN_DEVICE`] and its kin.
        AssignDevice "struct xen_domctl_assign_device" [24] {
            /// 0: PCI.
            @0 dev: u32,
            @4 flags: u32,
            @8 machine_sbdf: u32 as "u.pci.machine_sbdf",
            @12 _pad0: [u8; 12],
        }
        /// [`op::MEMORY_MAPPING`].
        MemoryMapping "struct xen_domctl_memory_mapping" [32] {
            @0 first_gfn: u64,
            @8 first_mfn: u64,
            @16 nr_mfns: u64,
            @24 add_mapping: u32,
            @28 _padding: u32 as "padding",
        }
        /// [`op::IOPORT_MAPPING`].
        IoportMapping "struct xen_domctl_ioport_mapping" [16] {
            @0 first_gport: u32,
            @4 first_mport: u32,
            @8 nr_ports: u32,
            @12 add_mapping: u32,
        }
        /// [`op::SET_TARGET`].
        SetTarget "struct xen_domctl_set_target" [2] {
            @0 target: DomId,
        }
        /// [`op::SUBSCRIBE`].
        Subscribe "struct xen_domctl_subscribe" [4] {
            @0 port: u32,
        }
        /// [`op::GETTSCINFO`], [`op::SETTSCINFO`].
        TscInfo "struct xen_domctl_tsc_info" [24] {
            @0 tsc_mode: u32,
            @4 gtsc_khz: u32,
            @8 incarnation: u32,
            @12 _pad: u32 as "pad",
            @16 elapsed_nsec: u64,
        }
        /// [`op::SET_VIRQ_HANDLER`].
        SetVirqHandler "struct xen_domctl_set_virq_handler" [4] {
            @0 virq: u32,
        }
        /// [`op::CACHEFLUSH`].
        CacheFlush "struct xen_domctl_cacheflush" [16] {
            @0 start_pfn: u64,
            @8 nr_pfns: u64,
        }
        /// [`op::GET_PAGING_MEMPOOL_SIZE`], [`op::SET_PAGING_MEMPOOL_SIZE`].
        PagingMempool "struct xen_domctl_paging_mempool" [8] {
            /// Bytes.
            @0 size: u64,
        }
        /// [`op::GET_VCPU_MSRS`], [`op::SET_VCPU_MSRS`].
        VcpuMsrs "struct xen_domctl_vcpu_msrs" [16] {
            @0 vcpu: u32,
            @4 msr_count: u32,
            @8 msrs: u64,
        }
        /// [`op::GET_CPU_POLICY`], [`op::SET_CPU_POLICY`].
        CpuPolicy "struct xen_domctl_cpu_policy" [40] {
            @0 nr_leaves: u32,
            @4 nr_msrs: u32,
            /// Guest address of [`CpuidLeaf`] values.
            @8 leaves: u64,
            /// Guest address of [`MsrEntry`] values.
            @16 msrs: u64,
            @24 err_leaf: u32,
            @28 err_subleaf: u32,
            @32 err_msr: u32,
            @36 _pad0: u32,
        }
        /// One CPUID leaf of a policy.
        CpuidLeaf "struct xen_cpuid_leaf" [24] {
            @0 leaf: u32,
            /// [`policy::NO_SUBLEAF`] where ECX does not matter.
            @4 subleaf: u32,
            @8 a: u32,
            @12 b: u32,
            @16 c: u32,
            @20 d: u32,
        }
        /// One MSR of a policy.
        MsrEntry "struct xen_msr_entry" [16] {
            @0 idx: u32,
            @4 flags: u32,
            @8 val: u64,
        }
        /// [`op::GSI_PERMISSION`].
        GsiPermission "struct xen_domctl_gsi_permission" [8] skip "newer than Xen 4.17" {
            @0 gsi: u32,
            /// Bit 0: allow.
            @4 flags: u32,
        }
        /// [`op::SET_LLC_COLORS`].
        SetLlcColors "struct xen_domctl_set_llc_colors" [16] skip "newer than Xen 4.17" {
            @0 num_llc_colors: u32,
            @4 _pad: u32,
            @8 llc_colors: u64,
        }
    }
    constants {
        /// Interface versions.
        mod version: u32 {
            /// Xen 4.17.
            XEN_4_17 "XEN_DOMCTL_INTERFACE_VERSION" = 0x15,
            /// Xen 4.18: `getdomaininfo` finds exactly the domain asked for.
            XEN_4_18 "XEN_DOMCTL_INTERFACE_VERSION" = 0x16 => "of Xen 4.18",
            /// Xen 4.19 to 4.21: `createdomain` has grown.
            XEN_4_19 "XEN_DOMCTL_INTERFACE_VERSION" = 0x17 => "of Xen 4.19 and later",
        }
        /// Operations.
        mod op: u32 {
            CREATEDOMAIN "XEN_DOMCTL_createdomain" = 1,
            DESTROYDOMAIN "XEN_DOMCTL_destroydomain" = 2,
            PAUSEDOMAIN "XEN_DOMCTL_pausedomain" = 3,
            UNPAUSEDOMAIN "XEN_DOMCTL_unpausedomain" = 4,
            GETDOMAININFO "XEN_DOMCTL_getdomaininfo" = 5,
            SETVCPUAFFINITY "XEN_DOMCTL_setvcpuaffinity" = 9,
            SHADOW_OP "XEN_DOMCTL_shadow_op" = 10,
            MAX_MEM "XEN_DOMCTL_max_mem" = 11,
            SETVCPUCONTEXT "XEN_DOMCTL_setvcpucontext" = 12,
            GETVCPUCONTEXT "XEN_DOMCTL_getvcpucontext" = 13,
            GETVCPUINFO "XEN_DOMCTL_getvcpuinfo" = 14,
            MAX_VCPUS "XEN_DOMCTL_max_vcpus" = 15,
            SCHEDULER_OP "XEN_DOMCTL_scheduler_op" = 16,
            SETDOMAINHANDLE "XEN_DOMCTL_setdomainhandle" = 17,
            SETDEBUGGING "XEN_DOMCTL_setdebugging" = 18,
            IRQ_PERMISSION "XEN_DOMCTL_irq_permission" = 19,
            IOMEM_PERMISSION "XEN_DOMCTL_iomem_permission" = 20,
            IOPORT_PERMISSION "XEN_DOMCTL_ioport_permission" = 21,
            HYPERCALL_INIT "XEN_DOMCTL_hypercall_init" = 22,
            SETTIMEOFFSET "XEN_DOMCTL_settimeoffset" = 24,
            GETVCPUAFFINITY "XEN_DOMCTL_getvcpuaffinity" = 25,
            RESUMEDOMAIN "XEN_DOMCTL_resumedomain" = 27,
            SENDTRIGGER "XEN_DOMCTL_sendtrigger" = 28,
            SUBSCRIBE "XEN_DOMCTL_subscribe" = 29,
            GETHVMCONTEXT "XEN_DOMCTL_gethvmcontext" = 33,
            SETHVMCONTEXT "XEN_DOMCTL_sethvmcontext" = 34,
            SET_ADDRESS_SIZE "XEN_DOMCTL_set_address_size" = 35,
            GET_ADDRESS_SIZE "XEN_DOMCTL_get_address_size" = 36,
            ASSIGN_DEVICE "XEN_DOMCTL_assign_device" = 37,
            BIND_PT_IRQ "XEN_DOMCTL_bind_pt_irq" = 38,
            MEMORY_MAPPING "XEN_DOMCTL_memory_mapping" = 39,
            IOPORT_MAPPING "XEN_DOMCTL_ioport_mapping" = 40,
            SET_EXT_VCPUCONTEXT "XEN_DOMCTL_set_ext_vcpucontext" = 42,
            GET_EXT_VCPUCONTEXT "XEN_DOMCTL_get_ext_vcpucontext" = 43,
            TEST_ASSIGN_DEVICE "XEN_DOMCTL_test_assign_device" = 45,
            SET_TARGET "XEN_DOMCTL_set_target" = 46,
            DEASSIGN_DEVICE "XEN_DOMCTL_deassign_device" = 47,
            UNBIND_PT_IRQ "XEN_DOMCTL_unbind_pt_irq" = 48,
            GET_DEVICE_GROUP "XEN_DOMCTL_get_device_group" = 50,
            DEBUG_OP "XEN_DOMCTL_debug_op" = 54,
            GETHVMCONTEXT_PARTIAL "XEN_DOMCTL_gethvmcontext_partial" = 55,
            VM_EVENT_OP "XEN_DOMCTL_vm_event_op" = 56,
            MEM_SHARING_OP "XEN_DOMCTL_mem_sharing_op" = 57,
            GETTSCINFO "XEN_DOMCTL_gettscinfo" = 59,
            SETTSCINFO "XEN_DOMCTL_settscinfo" = 60,
            GETPAGEFRAMEINFO3 "XEN_DOMCTL_getpageframeinfo3" = 61,
            SETVCPUEXTSTATE "XEN_DOMCTL_setvcpuextstate" = 62,
            GETVCPUEXTSTATE "XEN_DOMCTL_getvcpuextstate" = 63,
            SET_ACCESS_REQUIRED "XEN_DOMCTL_set_access_required" = 64,
            AUDIT_P2M "XEN_DOMCTL_audit_p2m" = 65,
            SET_VIRQ_HANDLER "XEN_DOMCTL_set_virq_handler" = 66,
            SET_BROKEN_PAGE_P2M "XEN_DOMCTL_set_broken_page_p2m" = 67,
            SETNODEAFFINITY "XEN_DOMCTL_setnodeaffinity" = 68,
            GETNODEAFFINITY "XEN_DOMCTL_getnodeaffinity" = 69,
            CACHEFLUSH "XEN_DOMCTL_cacheflush" = 71,
            GET_VCPU_MSRS "XEN_DOMCTL_get_vcpu_msrs" = 72,
            SET_VCPU_MSRS "XEN_DOMCTL_set_vcpu_msrs" = 73,
            SETVNUMAINFO "XEN_DOMCTL_setvnumainfo" = 74,
            PSR_CMT_OP "XEN_DOMCTL_psr_cmt_op" = 75,
            MONITOR_OP "XEN_DOMCTL_monitor_op" = 77,
            PSR_ALLOC "XEN_DOMCTL_psr_alloc" = 78,
            SOFT_RESET "XEN_DOMCTL_soft_reset" = 79,
            VUART_OP "XEN_DOMCTL_vuart_op" = 81,
            GET_CPU_POLICY "XEN_DOMCTL_get_cpu_policy" = 82,
            SET_CPU_POLICY "XEN_DOMCTL_set_cpu_policy" = 83,
            VMTRACE_OP "XEN_DOMCTL_vmtrace_op" = 84,
            GET_PAGING_MEMPOOL_SIZE "XEN_DOMCTL_get_paging_mempool_size" = 85,
            SET_PAGING_MEMPOOL_SIZE "XEN_DOMCTL_set_paging_mempool_size" = 86,
            GSI_PERMISSION "XEN_DOMCTL_gsi_permission" = 88 => "newer than Xen 4.17",
            SET_LLC_COLORS "XEN_DOMCTL_set_llc_colors" = 89 => "newer than Xen 4.17",
            GDBSX_GUESTMEMIO "XEN_DOMCTL_gdbsx_guestmemio" = 1000,
            GDBSX_PAUSEVCPU "XEN_DOMCTL_gdbsx_pausevcpu" = 1001,
            GDBSX_UNPAUSEVCPU "XEN_DOMCTL_gdbsx_unpausevcpu" = 1002,
            GDBSX_DOMSTATUS "XEN_DOMCTL_gdbsx_domstatus" = 1003,
        }
        /// [`CreateDomain::flags`].
        mod cdf: u32 {
            HVM "XEN_DOMCTL_CDF_hvm" = 1 << 0,
            HAP "XEN_DOMCTL_CDF_hap" = 1 << 1,
            S3_INTEGRITY "XEN_DOMCTL_CDF_s3_integrity" = 1 << 2,
            OOS_OFF "XEN_DOMCTL_CDF_oos_off" = 1 << 3,
            XS_DOMAIN "XEN_DOMCTL_CDF_xs_domain" = 1 << 4,
            IOMMU "XEN_DOMCTL_CDF_iommu" = 1 << 5,
            NESTED_VIRT "XEN_DOMCTL_CDF_nested_virt" = 1 << 6,
            VPMU "XEN_DOMCTL_CDF_vpmu" = 1 << 7,
        }
        /// [`ArchDomainConfig::emulation_flags`].
        mod emu: u32 {
            LAPIC "XEN_X86_EMU_LAPIC" = 1 << 0,
            IOAPIC "XEN_X86_EMU_IOAPIC" = 1 << 4,
            USE_PIRQ "XEN_X86_EMU_USE_PIRQ" = 1 << 9,
            VPCI "XEN_X86_EMU_VPCI" = 1 << 10,
            ALL "XEN_X86_EMU_ALL" = 0x7ff,
        }
        /// [`ArchDomainConfig::misc_flags`].
        mod misc: u32 {
            MSR_RELAXED "XEN_X86_MSR_RELAXED" = 1 << 0,
            /// Local APICs in xAPIC mode are handled by software alone.
            NO_ASSISTED_XAPIC "XENOLITH_X86_NO_ASSISTED_XAPIC" = 1 << 31 => "Xenolith's own: no release of Xen has a switch",
            /// The same for x2APIC mode.
            NO_ASSISTED_X2APIC "XENOLITH_X86_NO_ASSISTED_X2APIC" = 1 << 30 => "Xenolith's own: no release of Xen has a switch",
        }
        /// [`GetDomainInfo::flags`].
        mod dominf: u32 {
            DYING "XEN_DOMINF_dying" = 1 << 0,
            HVM_GUEST "XEN_DOMINF_hvm_guest" = 1 << 1,
            SHUTDOWN "XEN_DOMINF_shutdown" = 1 << 2,
            PAUSED "XEN_DOMINF_paused" = 1 << 3,
            BLOCKED "XEN_DOMINF_blocked" = 1 << 4,
            RUNNING "XEN_DOMINF_running" = 1 << 5,
            DEBUGGED "XEN_DOMINF_debugged" = 1 << 6,
            XS_DOMAIN "XEN_DOMINF_xs_domain" = 1 << 7,
            HAP "XEN_DOMINF_hap" = 1 << 8,
            /// Where the reason of a shutdown stands.
            SHUTDOWN_SHIFT "XEN_DOMINF_shutdownshift" = 16,
        }
        /// [`VcpuAffinity::flags`].
        mod affinity: u32 {
            HARD "XEN_VCPUAFFINITY_HARD" = 1 << 0,
            SOFT "XEN_VCPUAFFINITY_SOFT" = 1 << 1,
            FORCE "XEN_VCPUAFFINITY_FORCE" = 1 << 2,
        }
        /// [`ShadowOp::op`].
        mod shadow: u32 {
            OFF "XEN_DOMCTL_SHADOW_OP_OFF" = 0,
            ENABLE_TEST "XEN_DOMCTL_SHADOW_OP_ENABLE_TEST" = 1,
            ENABLE_LOGDIRTY "XEN_DOMCTL_SHADOW_OP_ENABLE_LOGDIRTY" = 2,
            CLEAN "XEN_DOMCTL_SHADOW_OP_CLEAN" = 11,
            PEEK "XEN_DOMCTL_SHADOW_OP_PEEK" = 12,
            GET_ALLOCATION "XEN_DOMCTL_SHADOW_OP_GET_ALLOCATION" = 30,
            SET_ALLOCATION "XEN_DOMCTL_SHADOW_OP_SET_ALLOCATION" = 31,
            ENABLE "XEN_DOMCTL_SHADOW_OP_ENABLE" = 32,
        }
        /// Schedulers.
        mod scheduler: u32 {
            CREDIT "XEN_SCHEDULER_CREDIT" = 5,
            CREDIT2 "XEN_SCHEDULER_CREDIT2" = 6,
            ARINC653 "XEN_SCHEDULER_ARINC653" = 7,
            RTDS "XEN_SCHEDULER_RTDS" = 8,
            NULL "XEN_SCHEDULER_NULL" = 9,
        }
        /// [`SchedulerOp::cmd`].
        mod schedop: u32 {
            PUTINFO "XEN_DOMCTL_SCHEDOP_putinfo" = 0,
            GETINFO "XEN_DOMCTL_SCHEDOP_getinfo" = 1,
            PUTVCPUINFO "XEN_DOMCTL_SCHEDOP_putvcpuinfo" = 2,
            GETVCPUINFO "XEN_DOMCTL_SCHEDOP_getvcpuinfo" = 3,
        }
        /// [`SendTrigger::trigger`].
        mod trigger: u32 {
            NMI "XEN_DOMCTL_SENDTRIGGER_NMI" = 0,
            RESET "XEN_DOMCTL_SENDTRIGGER_RESET" = 1,
            INIT "XEN_DOMCTL_SENDTRIGGER_INIT" = 2,
            POWER "XEN_DOMCTL_SENDTRIGGER_POWER" = 3,
            SLEEP "XEN_DOMCTL_SENDTRIGGER_SLEEP" = 4,
        }
        /// Values of [`CpuidLeaf`].
        mod policy: u32 {
            NO_SUBLEAF "XEN_CPUID_NO_SUBLEAF" = 0xffff_ffff,
        }
        /// Types in the answer of [`op::GETPAGEFRAMEINFO3`], shifted as in the headers.
        mod pfinfo: u32 {
            NOTAB "XEN_DOMCTL_PFINFO_NOTAB" = 0,
            XTAB "XEN_DOMCTL_PFINFO_XTAB" = 0xf000_0000,
            BROKEN "XEN_DOMCTL_PFINFO_BROKEN" = 0xd000_0000,
        }
    }
}
