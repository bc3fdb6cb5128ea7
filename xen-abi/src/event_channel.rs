//! Event channels (`event_channel.h`): `event_channel_op` and the two guest-shared formats.

use crate::DomId;
use crate::layout::abi_header;

abi_header! {
    header "event_channel.h";
    structs {
        /// [`op::ALLOC_UNBOUND`].
        EvtchnAllocUnbound "struct evtchn_alloc_unbound" [8] {
            /// Domain that gets the port.
            @0 dom: DomId,
            /// Domain that may bind to it.
            @2 remote_dom: DomId,
            /// Out: the new port.
            @4 port: u32,
        }
        /// [`op::BIND_INTERDOMAIN`].
        EvtchnBindInterdomain "struct evtchn_bind_interdomain" [12] {
            @0 remote_dom: DomId,
            @2 _pad0: u16,
            @4 remote_port: u32,
            /// Out: the new port of the caller.
            @8 local_port: u32,
        }
        /// [`op::BIND_VIRQ`].
        EvtchnBindVirq "struct evtchn_bind_virq" [12] {
            /// One of [`crate::virq::nr`].
            @0 virq: u32,
            @4 vcpu: u32,
            /// Out: the new port.
            @8 port: u32,
        }
        /// [`op::BIND_PIRQ`].
        EvtchnBindPirq "struct evtchn_bind_pirq" [12] {
            @0 pirq: u32,
            /// [`bind_pirq::WILL_SHARE`].
            @4 flags: u32,
            /// Out: the new port.
            @8 port: u32,
        }
        /// [`op::BIND_IPI`].
        EvtchnBindIpi "struct evtchn_bind_ipi" [8] {
            @0 vcpu: u32,
            /// Out: the new port.
            @4 port: u32,
        }
        /// [`op::CLOSE`].
        EvtchnClose "struct evtchn_close" [4] {
            @0 port: u32,
        }
        /// [`op::SEND`].
        EvtchnSend "struct evtchn_send" [4] {
            @0 port: u32,
        }
        /// [`op::STATUS`].
        EvtchnStatus "struct evtchn_status" [24] {
            @0 dom: DomId,
            @2 _pad0: u16,
            @4 port: u32,
            /// Out: one of [`status`].
            @8 status: u32,
            /// Out: the vCPU that the port notifies.
            @12 vcpu: u32,
            /// Out: by status; see the `set_` functions.
            @16 u: [u32; 2],
        }
        /// [`op::BIND_VCPU`].
        EvtchnBindVcpu "struct evtchn_bind_vcpu" [8] {
            @0 port: u32,
            @4 vcpu: u32,
        }
        /// [`op::UNMASK`].
        EvtchnUnmask "struct evtchn_unmask" [4] {
            @0 port: u32,
        }
        /// [`op::RESET`].
        EvtchnReset "struct evtchn_reset" [2] {
            @0 dom: DomId,
        }
        /// [`op::INIT_CONTROL`].
        EvtchnInitControl "struct evtchn_init_control" [24] {
            /// Frame with the control block.
            @0 control_gfn: u64,
            /// Offset of the control block in it (bytes).
            @8 offset: u32,
            @12 vcpu: u32,
            /// Out: [`fifo::LINK_BITS`].
            @16 link_bits: u8,
            @17 _pad: [u8; 7] as "_pad",
        }
        /// [`op::EXPAND_ARRAY`].
        EvtchnExpandArray "struct evtchn_expand_array" [8] {
            /// Frame with the next 1024 event words.
            @0 array_gfn: u64,
        }
        /// [`op::SET_PRIORITY`].
        EvtchnSetPriority "struct evtchn_set_priority" [8] {
            @0 port: u32,
            /// 0 (highest) to 15.
            @4 priority: u32,
        }
        /// A vCPU's FIFO control block, shared with the guest.
        EvtchnFifoControlBlock "struct evtchn_fifo_control_block" [72] {
            /// Bit per priority: its queue is not empty.
            @0 ready: u32,
            @4 _rsvd: u32 as "_rsvd",
            /// First port of each priority's queue.
            @8 head: [u32; 16],
        }
    }
    constants {
        /// Sub-operations of `event_channel_op`.
        mod op: u32 {
            BIND_INTERDOMAIN "EVTCHNOP_bind_interdomain" = 0,
            BIND_VIRQ "EVTCHNOP_bind_virq" = 1,
            BIND_PIRQ "EVTCHNOP_bind_pirq" = 2,
            CLOSE "EVTCHNOP_close" = 3,
            SEND "EVTCHNOP_send" = 4,
            STATUS "EVTCHNOP_status" = 5,
            ALLOC_UNBOUND "EVTCHNOP_alloc_unbound" = 6,
            BIND_IPI "EVTCHNOP_bind_ipi" = 7,
            BIND_VCPU "EVTCHNOP_bind_vcpu" = 8,
            UNMASK "EVTCHNOP_unmask" = 9,
            RESET "EVTCHNOP_reset" = 10,
            INIT_CONTROL "EVTCHNOP_init_control" = 11,
            EXPAND_ARRAY "EVTCHNOP_expand_array" = 12,
            SET_PRIORITY "EVTCHNOP_set_priority" = 13,
        }
        /// Flags of [`EvtchnBindPirq`].
        mod bind_pirq: u32 {
            WILL_SHARE "BIND_PIRQ__WILL_SHARE" = 1,
        }
        /// Values of [`EvtchnStatus::status`].
        mod status: u32 {
            CLOSED "EVTCHNSTAT_closed" = 0,
            UNBOUND "EVTCHNSTAT_unbound" = 1,
            INTERDOMAIN "EVTCHNSTAT_interdomain" = 2,
            PIRQ "EVTCHNSTAT_pirq" = 3,
            VIRQ "EVTCHNSTAT_virq" = 4,
            IPI "EVTCHNSTAT_ipi" = 5,
        }
        /// The 2-level format.
        mod two_level: u32 {
            /// Ports that the bitmaps in the shared page hold.
            NR_CHANNELS "EVTCHN_2L_NR_CHANNELS" = 4096,
        }
        /// The FIFO format: priorities, bit numbers of the event word, sizes.
        mod fifo: u32 {
            PRIORITY_MAX "EVTCHN_FIFO_PRIORITY_MAX" = 0,
            PRIORITY_DEFAULT "EVTCHN_FIFO_PRIORITY_DEFAULT" = 7,
            PRIORITY_MIN "EVTCHN_FIFO_PRIORITY_MIN" = 15,
            MAX_QUEUES "EVTCHN_FIFO_MAX_QUEUES" = 16,
            PENDING_BIT "EVTCHN_FIFO_PENDING" = 31,
            MASKED_BIT "EVTCHN_FIFO_MASKED" = 30,
            LINKED_BIT "EVTCHN_FIFO_LINKED" = 29,
            BUSY_BIT "EVTCHN_FIFO_BUSY" = 28,
            LINK_BITS "EVTCHN_FIFO_LINK_BITS" = 17,
            LINK_MASK "EVTCHN_FIFO_LINK_MASK" = (1 << 17) - 1,
            NR_CHANNELS "EVTCHN_FIFO_NR_CHANNELS" = 1 << 17,
        }
    }
}

impl EvtchnStatus {
    /// Fills in the result for an unbound port.
    pub fn set_unbound(&mut self, dom: DomId) {
        self.status = status::UNBOUND;
        self.u = [dom.0.into(), 0];
    }

    /// Fills in the result for a connected port.
    pub fn set_interdomain(&mut self, dom: DomId, port: u32) {
        self.status = status::INTERDOMAIN;
        self.u = [dom.0.into(), port];
    }

    /// Fills in the result for a port bound to a physical interrupt.
    pub fn set_pirq(&mut self, pirq: u32) {
        self.status = status::PIRQ;
        self.u = [pirq, 0];
    }

    /// Fills in the result for a port bound to a virtual interrupt.
    pub fn set_virq(&mut self, virq: u32) {
        self.status = status::VIRQ;
        self.u = [virq, 0];
    }
}
