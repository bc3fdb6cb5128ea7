//! Virtual interrupt numbers (`xen.h`).

use crate::layout::abi_header;

abi_header! {
    header "xen.h";
    structs {}
    constants {
        /// Virtual interrupts. "V" ones are bound once per vCPU, "G" ones once in the system.
        mod nr: u32 {
            /// V: one-shot and periodic timers.
            TIMER "VIRQ_TIMER" = 0,
            /// V: the guest should dump its state.
            DEBUG "VIRQ_DEBUG" = 1,
            /// G: bytes arrived on the emergency console.
            CONSOLE "VIRQ_CONSOLE" = 2,
            /// G: a domain changed its state.
            DOM_EXC "VIRQ_DOM_EXC" = 3,
            /// G: trace records.
            TBUF "VIRQ_TBUF" = 4,
            /// G: a domain stopped for its debugger.
            DEBUGGER "VIRQ_DEBUGGER" = 6,
            /// V: profiling sample.
            XENOPROF "VIRQ_XENOPROF" = 7,
            /// G: bytes in the console ring.
            CON_RING "VIRQ_CON_RING" = 8,
            /// G: a physical CPU went on or off line.
            PCPU_STATE "VIRQ_PCPU_STATE" = 9,
            /// G: memory event.
            MEM_EVENT "VIRQ_MEM_EVENT" = 10,
            /// G, in any domain: Argo message.
            ARGO "VIRQ_ARGO" = 11,
            /// G: the hypervisor runs out of memory.
            ENOMEM "VIRQ_ENOMEM" = 12,
            /// V: performance counter.
            XENPMU "VIRQ_XENPMU" = 13,
            /// First of eight for the architecture; on x86 this one is G, machine check.
            ARCH_0 "VIRQ_ARCH_0" = 16,
            ARCH_7 "VIRQ_ARCH_7" = 23,
            /// One past the last.
            COUNT "NR_VIRQS" = 24,
        }
    }
}
