//! Trace records and the pages that they are in (`trace.h`).

use crate::layout::abi_header;

abi_header! {
    header "trace.h";
    structs {
        /// Start of a CPU's buffer. Both places go from 0 to twice the room behind it, so that full and empty differ.
        Buffer "struct t_buf" [8] {
            /// Up to where the reader has read.
            @0 cons: u32,
            /// Up to where records have been written.
            @4 prod: u32,
        }
    }
    constants {
        /// Of a record's first word, besides the event.
        mod head: u32 {
            /// Most words behind the head and the time stamp.
            EXTRA_MAX "TRACE_EXTRA_MAX" = 7,
            /// Where their number stands.
            EXTRA_SHIFT "TRACE_EXTRA_SHIFT" = 28,
            /// A time stamp (two words) follows.
            CYCLES "TRC_HD_CYCLE_FLAG" = 1 << 31,
        }
        /// Classes of events, all their subclasses included.
        mod class: u32 {
            SHIFT "TRC_CLS_SHIFT" = 16,
            GUEST "TRC_GUEST" = 0x0800_f000,
            ALL "TRC_ALL" = 0x0fff_f000,
        }
        /// Where the subclasses stand.
        mod subclass: u32 {
            SHIFT "TRC_SUBCLS_SHIFT" = 12,
        }
        /// Events of the buffers themselves.
        mod general: u32 {
            /// Records were lost: how many, vCPU and domain, time stamp of the first.
            LOST "TRC_LOST_RECORDS" = 0x0001_f001,
            /// Fills the buffer up to its end.
            WRAP "TRC_TRACE_WRAP_BUFFER" = 0x0001_f002,
            /// Written by the reader: whose records follow.
            CPU "TRC_TRACE_CPU_CHANGE" = 0x0001_f003,
        }
        /// Events of the scheduler.
        mod sched: u32 {
            /// A vCPU's run state changed; the old one is added at bit 8, the new one at bit 4.
            RUNSTATE "TRC_SCHED_RUNSTATE_CHANGE" = 0x0002_1001,
            /// From one vCPU to another.
            SWITCH "TRC_SCHED_SWITCH" = 0x0002_800a,
        }
        /// Events of guests with hardware virtualization.
        mod hvm: u32 {
            ENTRY "TRC_HVM_VMENTRY" = 0x0008_1001,
            /// With its number and RIP.
            EXIT "TRC_HVM_VMEXIT64" = 0x0008_1102,
            INJ_VIRQ "TRC_HVM_INJ_VIRQ" = 0x0008_2004,
            MSR_READ "TRC_HVM_MSR_READ" = 0x0008_200c,
            MSR_WRITE "TRC_HVM_MSR_WRITE" = 0x0008_200d,
            CPUID "TRC_HVM_CPUID" = 0x0008_200e,
            INTR "TRC_HVM_INTR" = 0x0008_200f,
            NMI "TRC_HVM_NMI" = 0x0008_2010,
            VMMCALL "TRC_HVM_VMMCALL" = 0x0008_2012,
            HLT "TRC_HVM_HLT" = 0x0008_2013,
            PORT_READ "TRC_HVM_IOPORT_READ" = 0x0008_2016,
            PORT_WRITE "TRC_HVM_IOPORT_WRITE" = 0x0008_2216,
            INTR_WINDOW "TRC_HVM_INTR_WINDOW" = 0x0008_2020,
            NPF "TRC_HVM_NPF" = 0x0008_2021,
            XCR_WRITE "TRC_HVM_XCR_WRITE64" = 0x0008_2127,
        }
    }
}
