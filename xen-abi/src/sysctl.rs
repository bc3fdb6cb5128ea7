//! Control of the whole machine by the toolstack (`sysctl.h`). Versioned like [`crate::domctl`].

use crate::DomId;
use crate::domctl::CtlBitmap;
use crate::layout::abi_header;

abi_header! {
    header "sysctl.h";
    structs {
        /// The argument of every operation.
        Sysctl "struct xen_sysctl" [136] {
            /// [`op`].
            @0 cmd: u32,
            /// [`version`].
            @4 interface_version: u32,
            /// The operation's own structure.
            @8 u: [u8; 128] as "u",
        }
        /// [`op::READCONSOLE`].
        ReadConsole "struct xen_sysctl_readconsole" [24] {
            @0 clear: u8,
            @1 incremental: u8,
            @2 _pad0: u8 as "pad0",
            @3 _pad1: u8 as "pad1",
            @4 index: u32,
            @8 buffer: u64,
            @16 count: u32,
            @20 _pad2: u32,
        }
        /// [`op::TBUF_OP`].
        TbufOp "struct xen_sysctl_tbuf_op" [48] {
            /// [`tbufop`].
            @0 cmd: u32,
            @4 _pad0: u32,
            @8 cpu_mask: CtlBitmap,
            @24 evt_mask: u32,
            @28 _pad1: u32,
            /// Out: the first of the pages that tell where the buffers are.
            @32 buffer_mfn: u64,
            /// In: pages of a buffer. Out: bytes of the pages that tell where they are.
            @40 size: u32,
            @44 _pad2: u32,
        }
        /// [`op::PHYSINFO`].
        PhysInfo "struct xen_sysctl_physinfo" [112] {
            @0 threads_per_core: u32,
            @4 cores_per_socket: u32,
            @8 nr_cpus: u32,
            @12 max_cpu_id: u32,
            @16 nr_nodes: u32,
            @20 max_node_id: u32,
            @24 cpu_khz: u32,
            /// [`physcap`].
            @28 capabilities: u32,
            @32 arch_capabilities: u32,
            @36 _pad: u32 as "pad",
            @40 total_pages: u64,
            @48 free_pages: u64,
            @56 scrub_pages: u64,
            @64 outstanding_pages: u64,
            @72 max_mfn: u64,
            @80 hw_cap: [u32; 8],
        }
        /// [`op::SCHED_ID`].
        SchedId "struct xen_sysctl_sched_id" [4] {
            @0 sched_id: u32,
        }
        /// [`op::GETDOMAININFOLIST`].
        GetDomainInfoList "struct xen_sysctl_getdomaininfolist" [24] {
            @0 first_domain: DomId,
            @2 _pad0: u16,
            @4 max_domains: u32,
            /// Guest address of [`crate::domctl::GetDomainInfo`] values.
            @8 buffer: u64,
            @16 num_domains: u32,
            @20 _pad1: u32,
        }
        /// [`op::DEBUG_KEYS`].
        DebugKeys "struct xen_sysctl_debug_keys" [16] {
            @0 keys: u64,
            @8 nr_keys: u32,
            @12 _pad0: u32,
        }
        /// [`op::GETCPUINFO`].
        GetCpuInfo "struct xen_sysctl_getcpuinfo" [24] {
            @0 max_cpus: u32,
            @4 _pad0: u32,
            /// Guest address of idle times (u64, ns).
            @8 info: u64,
            @16 nr_cpus: u32,
            @20 _pad1: u32,
        }
        /// [`op::AVAILHEAP`].
        AvailHeap "struct xen_sysctl_availheap" [24] {
            @0 min_bitwidth: u32,
            @4 max_bitwidth: u32,
            @8 node: i32,
            @12 _pad0: u32,
            @16 avail_bytes: u64,
        }
        /// An element of [`CpuTopoInfo`].
        CpuTopo "struct xen_sysctl_cputopo" [12] {
            @0 core: u32,
            @4 socket: u32,
            @8 node: u32,
        }
        /// [`op::CPUTOPOINFO`].
        CpuTopoInfo "struct xen_sysctl_cputopoinfo" [16] {
            @0 num_cpus: u32,
            @4 _pad0: u32,
            /// Guest address of [`CpuTopo`] values; null asks for the count.
            @8 cputopo: u64,
        }
        /// An element of [`NumaInfo`], in bytes.
        MemInfo "struct xen_sysctl_meminfo" [16] {
            @0 memsize: u64,
            @8 memfree: u64,
        }
        /// [`op::NUMAINFO`].
        NumaInfo "struct xen_sysctl_numainfo" [24] {
            @0 num_nodes: u32,
            @4 _pad0: u32,
            /// Guest address of [`MemInfo`] values.
            @8 meminfo: u64,
            /// Guest address of a square of u32.
            @16 distance: u64,
        }
        /// [`op::CPUPOOL_OP`].
        CpupoolOp "struct xen_sysctl_cpupool_op" [40] {
            /// [`cpupool`].
            @0 op: u32,
            @4 cpupool_id: u32,
            @8 sched_id: u32,
            @12 domid: u32,
            @16 cpu: u32,
            @20 n_dom: u32,
            @24 cpumap: CtlBitmap,
        }
        /// [`op::SCHEDULER_OP`].
        SchedulerOp "struct xen_sysctl_scheduler_op" [32] {
            @0 cpupool_id: u32,
            @4 sched_id: u32,
            /// [`schedop`].
            @8 cmd: u32,
            @12 _pad0: u32,
            @16 u: [u8; 16],
        }
        /// Parameters of credit.
        CreditSchedule "struct xen_sysctl_credit_schedule" [12] {
            @0 tslice_ms: u32,
            @4 ratelimit_us: u32,
            @8 vcpu_migr_delay_us: u32,
        }
        /// Parameters of credit2.
        Credit2Schedule "struct xen_sysctl_credit2_schedule" [4] {
            @0 ratelimit_us: u32,
        }
        /// [`op::PCITOPOINFO`].
        PciTopoInfo "struct xen_sysctl_pcitopoinfo" [24] {
            @0 num_devs: u32,
            @4 _pad0: u32,
            @8 devs: u64,
            @16 nodes: u64,
        }
        /// [`op::GET_CPU_LEVELLING_CAPS`].
        CpuLevellingCaps "struct xen_sysctl_cpu_levelling_caps" [4] {
            @0 caps: u32,
        }
        /// [`op::GET_CPU_FEATURESET`].
        CpuFeatureset "struct xen_sysctl_cpu_featureset" [16] {
            /// [`featureset`].
            @0 index: u32,
            @4 nr_features: u32,
            @8 features: u64,
        }
        /// [`op::GET_CPU_POLICY`].
        CpuPolicy "struct xen_sysctl_cpu_policy" [32] {
            /// [`cpu_policy`].
            @0 index: u32,
            @4 nr_leaves: u32,
            @8 nr_msrs: u32,
            @12 _rsvd: u32 as "_rsvd",
            @16 leaves: u64,
            @24 msrs: u64,
        }
    }
    constants {
        /// Interface versions.
        mod version: u32 {
            /// Xen 4.17 to 4.20.
            XEN_4_17 "XEN_SYSCTL_INTERFACE_VERSION" = 0x15,
            /// Xen 4.21: without [`op::GET_CPU_LEVELLING_CAPS`].
            XEN_4_21 "XEN_SYSCTL_INTERFACE_VERSION" = 0x16 => "of Xen 4.21",
        }
        /// Operations on trace buffers.
        mod tbufop: u32 {
            GET_INFO "XEN_SYSCTL_TBUFOP_get_info" = 0,
            SET_CPU_MASK "XEN_SYSCTL_TBUFOP_set_cpu_mask" = 1,
            SET_EVT_MASK "XEN_SYSCTL_TBUFOP_set_evt_mask" = 2,
            SET_SIZE "XEN_SYSCTL_TBUFOP_set_size" = 3,
            ENABLE "XEN_SYSCTL_TBUFOP_enable" = 4,
            DISABLE "XEN_SYSCTL_TBUFOP_disable" = 5,
        }
        /// Operations.
        mod op: u32 {
            READCONSOLE "XEN_SYSCTL_readconsole" = 1,
            TBUF_OP "XEN_SYSCTL_tbuf_op" = 2,
            PHYSINFO "XEN_SYSCTL_physinfo" = 3,
            SCHED_ID "XEN_SYSCTL_sched_id" = 4,
            PERFC_OP "XEN_SYSCTL_perfc_op" = 5,
            GETDOMAININFOLIST "XEN_SYSCTL_getdomaininfolist" = 6,
            DEBUG_KEYS "XEN_SYSCTL_debug_keys" = 7,
            GETCPUINFO "XEN_SYSCTL_getcpuinfo" = 8,
            AVAILHEAP "XEN_SYSCTL_availheap" = 9,
            GET_PMSTAT "XEN_SYSCTL_get_pmstat" = 10,
            CPU_HOTPLUG "XEN_SYSCTL_cpu_hotplug" = 11,
            PM_OP "XEN_SYSCTL_pm_op" = 12,
            PAGE_OFFLINE_OP "XEN_SYSCTL_page_offline_op" = 14,
            LOCKPROF_OP "XEN_SYSCTL_lockprof_op" = 15,
            CPUTOPOINFO "XEN_SYSCTL_cputopoinfo" = 16,
            NUMAINFO "XEN_SYSCTL_numainfo" = 17,
            CPUPOOL_OP "XEN_SYSCTL_cpupool_op" = 18,
            SCHEDULER_OP "XEN_SYSCTL_scheduler_op" = 19,
            COVERAGE_OP "XEN_SYSCTL_coverage_op" = 20,
            PSR_CMT_OP "XEN_SYSCTL_psr_cmt_op" = 21,
            PCITOPOINFO "XEN_SYSCTL_pcitopoinfo" = 22,
            PSR_ALLOC "XEN_SYSCTL_psr_alloc" = 23,
            GET_CPU_LEVELLING_CAPS "XEN_SYSCTL_get_cpu_levelling_caps" = 25,
            GET_CPU_FEATURESET "XEN_SYSCTL_get_cpu_featureset" = 26,
            LIVEPATCH_OP "XEN_SYSCTL_livepatch_op" = 27,
            GET_CPU_POLICY "XEN_SYSCTL_get_cpu_policy" = 29,
        }
        /// [`PhysInfo::capabilities`].
        mod physcap: u32 {
            HVM "XEN_SYSCTL_PHYSCAP_hvm" = 1 << 0,
            PV "XEN_SYSCTL_PHYSCAP_pv" = 1 << 1,
            DIRECTIO "XEN_SYSCTL_PHYSCAP_directio" = 1 << 2,
            HAP "XEN_SYSCTL_PHYSCAP_hap" = 1 << 3,
            SHADOW "XEN_SYSCTL_PHYSCAP_shadow" = 1 << 4,
            IOMMU_HAP_PT_SHARE "XEN_SYSCTL_PHYSCAP_iommu_hap_pt_share" = 1 << 5,
            VMTRACE "XEN_SYSCTL_PHYSCAP_vmtrace" = 1 << 6,
            VPMU "XEN_SYSCTL_PHYSCAP_vpmu" = 1 << 7,
            GNTTAB_V1 "XEN_SYSCTL_PHYSCAP_gnttab_v1" = 1 << 8,
            GNTTAB_V2 "XEN_SYSCTL_PHYSCAP_gnttab_v2" = 1 << 9,
        }
        /// [`CpupoolOp::op`].
        mod cpupool: u32 {
            CREATE "XEN_SYSCTL_CPUPOOL_OP_CREATE" = 1,
            DESTROY "XEN_SYSCTL_CPUPOOL_OP_DESTROY" = 2,
            INFO "XEN_SYSCTL_CPUPOOL_OP_INFO" = 3,
            ADDCPU "XEN_SYSCTL_CPUPOOL_OP_ADDCPU" = 4,
            RMCPU "XEN_SYSCTL_CPUPOOL_OP_RMCPU" = 5,
            MOVEDOMAIN "XEN_SYSCTL_CPUPOOL_OP_MOVEDOMAIN" = 6,
            FREEINFO "XEN_SYSCTL_CPUPOOL_OP_FREEINFO" = 7,
            ANY "XEN_SYSCTL_CPUPOOL_PAR_ANY" = 0xffff_ffff,
        }
        /// [`SchedulerOp::cmd`].
        mod schedop: u32 {
            PUTINFO "XEN_SYSCTL_SCHEDOP_putinfo" = 0,
            GETINFO "XEN_SYSCTL_SCHEDOP_getinfo" = 1,
        }
        /// Bounds of scheduler parameters.
        mod limit: u32 {
            RATELIMIT_MAX_US "XEN_SYSCTL_SCHED_RATELIMIT_MAX" = 500_000,
            RATELIMIT_MIN_US "XEN_SYSCTL_SCHED_RATELIMIT_MIN" = 100,
            TSLICE_MAX_MS "XEN_SYSCTL_CSCHED_TSLICE_MAX" = 1000,
            TSLICE_MIN_MS "XEN_SYSCTL_CSCHED_TSLICE_MIN" = 1,
            MIGRATION_DELAY_MAX_US "XEN_SYSCTL_CSCHED_MGR_DLY_MAX_US" = 100_000,
        }
        /// Numbers that stand for none.
        mod invalid: u32 {
            CORE "XEN_INVALID_CORE_ID" = u32::MAX,
            SOCKET "XEN_INVALID_SOCKET_ID" = u32::MAX,
            NODE "XEN_INVALID_NODE_ID" = u32::MAX,
            DEV "XEN_INVALID_DEV" = u32::MAX - 1,
        }
        /// [`CpuFeatureset::index`].
        mod featureset: u32 {
            RAW "XEN_SYSCTL_cpu_featureset_raw" = 0,
            HOST "XEN_SYSCTL_cpu_featureset_host" = 1,
            PV "XEN_SYSCTL_cpu_featureset_pv" = 2,
            HVM "XEN_SYSCTL_cpu_featureset_hvm" = 3,
            PV_MAX "XEN_SYSCTL_cpu_featureset_pv_max" = 4,
            HVM_MAX "XEN_SYSCTL_cpu_featureset_hvm_max" = 5,
        }
        /// [`CpuPolicy::index`].
        mod cpu_policy: u32 {
            RAW "XEN_SYSCTL_cpu_policy_raw" = 0,
            HOST "XEN_SYSCTL_cpu_policy_host" = 1,
            PV_MAX "XEN_SYSCTL_cpu_policy_pv_max" = 2,
            HVM_MAX "XEN_SYSCTL_cpu_policy_hvm_max" = 3,
            PV_DEFAULT "XEN_SYSCTL_cpu_policy_pv_default" = 4,
            HVM_DEFAULT "XEN_SYSCTL_cpu_policy_hvm_default" = 5,
        }
    }
}
