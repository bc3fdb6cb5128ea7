//! Physical devices.

use crate::DomId;
use crate::layout::abi_header;

use zerocopy::little_endian::U64;

abi_header! {
    header "physdev.h";
    structs {
        /// [`crate::physdev::PhysdevMapPirq`].
        PhysdevMapPirq "struct physdev_map_pirq" [36] {
            @0 domid: DomId,
            @2 _pad0: u16,
            @4 kind: i32 as "type",
            @8 index: i32,
            @12 pirq: i32,
            @16 bus: i32,
            @20 devfn: i32,
            @24 entry_nr: i32,
            @28 table_base: U64,
        }
    }
    constants {}
}
