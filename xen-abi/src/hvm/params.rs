//! Parameters of hardware-assisted guests (`hvm/params.h`).

use crate::layout::abi_header;

abi_header! {
    header "hvm/params.h";
    structs {}
    constants {
        /// Parameter numbers.
        mod index: u32 {
            /// How events are signalled; [`super::callback`].
            CALLBACK_IRQ "HVM_PARAM_CALLBACK_IRQ" = 0,
            STORE_PFN "HVM_PARAM_STORE_PFN" = 1,
            STORE_EVTCHN "HVM_PARAM_STORE_EVTCHN" = 2,
            PAE_ENABLED "HVM_PARAM_PAE_ENABLED" = 4,
            IOREQ_PFN "HVM_PARAM_IOREQ_PFN" = 5,
            BUFIOREQ_PFN "HVM_PARAM_BUFIOREQ_PFN" = 6,
            VIRIDIAN "HVM_PARAM_VIRIDIAN" = 9,
            TIMER_MODE "HVM_PARAM_TIMER_MODE" = 10,
            HPET_ENABLED "HVM_PARAM_HPET_ENABLED" = 11,
            IDENT_PT "HVM_PARAM_IDENT_PT" = 12,
            DM_DOMAIN "HVM_PARAM_DM_DOMAIN" = 13,
            ACPI_S_STATE "HVM_PARAM_ACPI_S_STATE" = 14,
            VM86_TSS "HVM_PARAM_VM86_TSS" = 15,
            VPT_ALIGN "HVM_PARAM_VPT_ALIGN" = 16,
            CONSOLE_PFN "HVM_PARAM_CONSOLE_PFN" = 17,
            CONSOLE_EVTCHN "HVM_PARAM_CONSOLE_EVTCHN" = 18,
            ACPI_IOPORTS_LOCATION "HVM_PARAM_ACPI_IOPORTS_LOCATION" = 19,
            MEMORY_EVENT_CR0 "HVM_PARAM_MEMORY_EVENT_CR0" = 20,
            MEMORY_EVENT_CR3 "HVM_PARAM_MEMORY_EVENT_CR3" = 21,
            MEMORY_EVENT_CR4 "HVM_PARAM_MEMORY_EVENT_CR4" = 22,
            MEMORY_EVENT_INT3 "HVM_PARAM_MEMORY_EVENT_INT3" = 23,
            NESTEDHVM "HVM_PARAM_NESTEDHVM" = 24,
            MEMORY_EVENT_SINGLE_STEP "HVM_PARAM_MEMORY_EVENT_SINGLE_STEP" = 25,
            BUFIOREQ_EVTCHN "HVM_PARAM_BUFIOREQ_EVTCHN" = 26,
            PAGING_RING_PFN "HVM_PARAM_PAGING_RING_PFN" = 27,
            MONITOR_RING_PFN "HVM_PARAM_MONITOR_RING_PFN" = 28,
            SHARING_RING_PFN "HVM_PARAM_SHARING_RING_PFN" = 29,
            MEMORY_EVENT_MSR "HVM_PARAM_MEMORY_EVENT_MSR" = 30,
            TRIPLE_FAULT_REASON "HVM_PARAM_TRIPLE_FAULT_REASON" = 31,
            IOREQ_SERVER_PFN "HVM_PARAM_IOREQ_SERVER_PFN" = 32,
            NR_IOREQ_SERVER_PAGES "HVM_PARAM_NR_IOREQ_SERVER_PAGES" = 33,
            VM_GENERATION_ID_ADDR "HVM_PARAM_VM_GENERATION_ID_ADDR" = 34,
            ALTP2M "HVM_PARAM_ALTP2M" = 35,
            X87_FIP_WIDTH "HVM_PARAM_X87_FIP_WIDTH" = 36,
            VM86_TSS_SIZED "HVM_PARAM_VM86_TSS_SIZED" = 37,
            MCA_CAP "HVM_PARAM_MCA_CAP" = 38,
            /// One past the last.
            COUNT "HVM_NR_PARAMS" = 39,
        }
        /// Bits 63:56 of [`index::CALLBACK_IRQ`].
        mod callback: u64 {
            TYPE_MASK "HVM_PARAM_CALLBACK_IRQ_TYPE_MASK" = 0xff00_0000_0000_0000,
            TYPE_GSI "HVM_PARAM_CALLBACK_TYPE_GSI" = 0,
            TYPE_PCI_INTX "HVM_PARAM_CALLBACK_TYPE_PCI_INTX" = 1,
            /// The vector is in the low byte.
            TYPE_VECTOR "HVM_PARAM_CALLBACK_TYPE_VECTOR" = 2,
        }
    }
}
