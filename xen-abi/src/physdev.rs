//! Physical devices and their interrupts (`physdev.h`).

use crate::DomId;
use crate::layout::abi_header;

abi_header! {
    header "physdev.h";
    structs {
        /// [`op::EOI`].
        PhysdevEoi "struct physdev_eoi" [4] {
            @0 irq: u32,
        }
        /// [`op::PIRQ_EOI_GMFN_V1`], [`op::PIRQ_EOI_GMFN_V2`].
        PhysdevPirqEoiGmfn "struct physdev_pirq_eoi_gmfn" [8] {
            @0 gmfn: u64,
        }
        /// [`op::IRQ_STATUS_QUERY`].
        PhysdevIrqStatusQuery "struct physdev_irq_status_query" [8] {
            @0 irq: u32,
            /// Out: [`irq_status`].
            @4 flags: u32,
        }
        /// [`op::SET_IOPL`].
        PhysdevSetIopl "struct physdev_set_iopl" [4] {
            @0 iopl: u32,
        }
        /// [`op::SET_IOBITMAP`].
        PhysdevSetIobitmap "struct physdev_set_iobitmap" [16] {
            /// Guest address.
            @0 bitmap: u64,
            @8 nr_ports: u32,
            @12 _pad0: u32,
        }
        /// [`op::APIC_READ`], [`op::APIC_WRITE`].
        PhysdevApic "struct physdev_apic" [16] {
            @0 apic_physbase: u64,
            @8 reg: u32,
            @12 value: u32,
        }
        /// [`op::ALLOC_IRQ_VECTOR`], [`op::FREE_IRQ_VECTOR`].
        PhysdevIrq "struct physdev_irq" [8] {
            @0 irq: u32,
            @4 vector: u32,
        }
        /// [`op::MAP_PIRQ`].
        PhysdevMapPirq "struct physdev_map_pirq" [40] {
            @0 domid: DomId,
            @2 _pad0: u16,
            /// [`map_pirq`].
            @4 kind: i32 as "type",
            @8 index: i32,
            /// In and out.
            @12 pirq: i32,
            /// High half: segment.
            @16 bus: i32,
            @20 devfn: i32,
            @24 entry_nr: i32,
            @28 _pad1: u32,
            @32 table_base: u64,
        }
        /// [`op::UNMAP_PIRQ`].
        PhysdevUnmapPirq "struct physdev_unmap_pirq" [8] {
            @0 domid: DomId,
            @2 _pad0: u16,
            @4 pirq: i32,
        }
        /// [`op::MANAGE_PCI_ADD`], [`op::MANAGE_PCI_REMOVE`].
        PhysdevManagePci "struct physdev_manage_pci" [2] {
            @0 bus: u8,
            @1 devfn: u8,
        }
        /// [`op::RESTORE_MSI`].
        PhysdevRestoreMsi "struct physdev_restore_msi" [2] {
            @0 bus: u8,
            @1 devfn: u8,
        }
        /// [`op::MANAGE_PCI_ADD_EXT`].
        PhysdevManagePciExt "struct physdev_manage_pci_ext" [16] {
            @0 bus: u8,
            @1 devfn: u8,
            @2 _pad0: u16,
            @4 is_extfn: u32,
            @8 is_virtfn: u32,
            @12 physfn_bus: u8 as "physfn.bus",
            @13 physfn_devfn: u8 as "physfn.devfn",
            @14 _pad1: u16,
        }
        /// [`op::SETUP_GSI`].
        PhysdevSetupGsi "struct physdev_setup_gsi" [8] {
            @0 gsi: i32,
            /// 1: level.
            @4 triggering: u8,
            /// 1: active low.
            @5 polarity: u8,
            @6 _pad0: u16,
        }
        /// [`op::GET_FREE_PIRQ`].
        PhysdevGetFreePirq "struct physdev_get_free_pirq" [8] {
            /// [`map_pirq`].
            @0 kind: i32 as "type",
            /// Out.
            @4 pirq: u32,
        }
        /// [`op::PCI_MMCFG_RESERVED`].
        PhysdevPciMmcfgReserved "struct physdev_pci_mmcfg_reserved" [16] {
            @0 address: u64,
            @8 segment: u16,
            @10 start_bus: u8,
            @11 end_bus: u8,
            /// [`mmcfg`].
            @12 flags: u32,
        }
        /// [`op::PCI_DEVICE_ADD`], without the optional words that may follow (proximity domain first).
        PhysdevPciDeviceAdd "struct physdev_pci_device_add" [12] {
            @0 seg: u16,
            @2 bus: u8,
            @3 devfn: u8,
            /// [`pci_dev`].
            @4 flags: u32,
            @8 physfn_bus: u8 as "physfn.bus",
            @9 physfn_devfn: u8 as "physfn.devfn",
            @10 _pad0: u16,
        }
        /// [`op::PCI_DEVICE_REMOVE`], [`op::RESTORE_MSI_EXT`], [`op::PREPARE_MSIX`], [`op::RELEASE_MSIX`].
        PhysdevPciDevice "struct physdev_pci_device" [4] {
            @0 seg: u16,
            @2 bus: u8,
            @3 devfn: u8,
        }
        /// [`op::DBGP_OP`].
        PhysdevDbgpOp "struct physdev_dbgp_op" [6] {
            /// [`dbgp`].
            @0 op: u8,
            /// [`dbgp`].
            @1 bus: u8,
            @2 pci: PhysdevPciDevice as "u.pci",
        }
        /// [`op::PCI_DEVICE_RESET`].
        PciDeviceReset "struct pci_device_reset" [8] skip "newer than the reference headers (Xen 4.17)" {
            @0 dev: PhysdevPciDevice,
            @4 flags: u32,
        }
    }
    constants {
        /// Sub-operations of `physdev_op`.
        mod op: u32 {
            IRQ_UNMASK_NOTIFY "PHYSDEVOP_IRQ_UNMASK_NOTIFY" = 4,
            IRQ_STATUS_QUERY "PHYSDEVOP_irq_status_query" = 5,
            SET_IOPL "PHYSDEVOP_set_iopl" = 6,
            SET_IOBITMAP "PHYSDEVOP_set_iobitmap" = 7,
            APIC_READ "PHYSDEVOP_apic_read" = 8,
            APIC_WRITE "PHYSDEVOP_apic_write" = 9,
            ALLOC_IRQ_VECTOR "PHYSDEVOP_alloc_irq_vector" = 10,
            FREE_IRQ_VECTOR "PHYSDEVOP_free_irq_vector" = 11,
            EOI "PHYSDEVOP_eoi" = 12,
            MAP_PIRQ "PHYSDEVOP_map_pirq" = 13,
            UNMAP_PIRQ "PHYSDEVOP_unmap_pirq" = 14,
            MANAGE_PCI_ADD "PHYSDEVOP_manage_pci_add" = 15,
            MANAGE_PCI_REMOVE "PHYSDEVOP_manage_pci_remove" = 16,
            PIRQ_EOI_GMFN_V1 "PHYSDEVOP_pirq_eoi_gmfn_v1" = 17,
            RESTORE_MSI "PHYSDEVOP_restore_msi" = 19,
            MANAGE_PCI_ADD_EXT "PHYSDEVOP_manage_pci_add_ext" = 20,
            SETUP_GSI "PHYSDEVOP_setup_gsi" = 21,
            GET_FREE_PIRQ "PHYSDEVOP_get_free_pirq" = 23,
            PCI_MMCFG_RESERVED "PHYSDEVOP_pci_mmcfg_reserved" = 24,
            PCI_DEVICE_ADD "PHYSDEVOP_pci_device_add" = 25,
            PCI_DEVICE_REMOVE "PHYSDEVOP_pci_device_remove" = 26,
            RESTORE_MSI_EXT "PHYSDEVOP_restore_msi_ext" = 27,
            PIRQ_EOI_GMFN_V2 "PHYSDEVOP_pirq_eoi_gmfn_v2" = 28,
            DBGP_OP "PHYSDEVOP_dbgp_op" = 29,
            PREPARE_MSIX "PHYSDEVOP_prepare_msix" = 30,
            RELEASE_MSIX "PHYSDEVOP_release_msix" = 31,
            PCI_DEVICE_RESET "PHYSDEVOP_pci_device_reset" = 32 => "newer than the reference headers (Xen 4.17)",
        }
        /// Flags of [`PhysdevIrqStatusQuery`].
        mod irq_status: u32 {
            NEEDS_EOI "XENIRQSTAT_needs_eoi" = 1 << 0,
            SHARED "XENIRQSTAT_shared" = 1 << 1,
        }
        /// Types of [`PhysdevMapPirq`].
        mod map_pirq: i32 {
            MSI "MAP_PIRQ_TYPE_MSI" = 0,
            GSI "MAP_PIRQ_TYPE_GSI" = 1,
            UNKNOWN "MAP_PIRQ_TYPE_UNKNOWN" = 2,
            MSI_SEG "MAP_PIRQ_TYPE_MSI_SEG" = 3,
            MULTI_MSI "MAP_PIRQ_TYPE_MULTI_MSI" = 4,
        }
        /// Flags of [`PhysdevPciMmcfgReserved`].
        mod mmcfg: u32 {
            /// The window is reserved in the memory map or in ACPI.
            RESERVED "XEN_PCI_MMCFG_RESERVED" = 1,
        }
        /// Flags of [`PhysdevPciDeviceAdd`].
        mod pci_dev: u32 {
            EXTFN "XEN_PCI_DEV_EXTFN" = 1,
            VIRTFN "XEN_PCI_DEV_VIRTFN" = 2,
            PXM "XEN_PCI_DEV_PXM" = 4,
        }
        /// Values of [`PhysdevDbgpOp`].
        mod dbgp: u8 {
            RESET_PREPARE "PHYSDEVOP_DBGP_RESET_PREPARE" = 1,
            RESET_DONE "PHYSDEVOP_DBGP_RESET_DONE" = 2,
            BUS_UNKNOWN "PHYSDEVOP_DBGP_BUS_UNKNOWN" = 0,
            BUS_PCI "PHYSDEVOP_DBGP_BUS_PCI" = 1,
        }
    }
}
