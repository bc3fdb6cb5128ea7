//! Segments as an entry takes them. The neutral form of a segment's rights is already that of VT-x; an entry only insists on
//! more consistency than other hardware does (SDM vol. 3, 28.3.1.2), so that states from outside are put right first.

/// The segment is unusable.
pub const UNUSABLE: u32 = 1 << 16;
/// 64-bit code.
pub const LONG: u32 = 1 << 13;
const ACCESSED: u32 = 1 << 0;
const NOT_SYSTEM: u32 = 1 << 4;
const PRESENT: u32 = 1 << 7;
const GRANULAR: u32 = 1 << 15;
const RESERVED: u32 = 0xf << 8 | 0xfffe_0000;
const TYPE: u32 = 0xf;
const BUSY_TSS_16: u32 = 3;
const BUSY_TSS: u32 = 11;
const LDT: u32 = 2;

/// Which register a segment is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// ES, DS, FS or GS.
    Data,
    /// SS.
    Stack,
    /// CS.
    Code,
    /// LDTR.
    Table,
    /// TR.
    Task,
}

/// Rights with which an entry succeeds, the same as `access` wherever that is consistent.
pub const fn settle(role: Role, access: u32, limit: u32) -> u32 {
    let access = access & !RESERVED;
    let absent = access & (UNUSABLE | PRESENT) != PRESENT;
    let access = match role {
        Role::Data | Role::Stack | Role::Table if absent => return access | UNUSABLE,
        Role::Data | Role::Stack => access | NOT_SYSTEM | ACCESSED,
        Role::Code => (access | NOT_SYSTEM | ACCESSED | PRESENT) & !UNUSABLE,
        Role::Table => access & !(NOT_SYSTEM | TYPE) | LDT,
        Role::Task => {
            let kind = if access & TYPE & !2 == 1 {
                BUSY_TSS_16
            } else {
                BUSY_TSS
            };
            access & !(NOT_SYSTEM | UNUSABLE | TYPE) | PRESENT | kind
        }
    };
    // The limit in bytes must be one that the granularity can express.
    if limit >> 20 != 0 {
        access | GRANULAR
    } else if limit & 0xfff != 0xfff {
        access & !GRANULAR
    } else {
        access
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consistent_segments_stay() {
        for (role, access, limit) in [
            (Role::Code, 0xc09b, 0xffff_ffff),
            (Role::Code, 0xa09b, 0xffff_ffff),
            (Role::Code, 0x9b, 0xffff),
            (Role::Data, 0xc093, 0xffff_ffff),
            (Role::Stack, 0x93, 0xffff),
            (Role::Data, 0xf3, 0xffff),
            (Role::Data, UNUSABLE, 0),
            (Role::Stack, UNUSABLE | 0x60, 0),
            (Role::Table, 0x82, 0xffff),
            (Role::Table, UNUSABLE, 0),
            (Role::Task, 0x8b, 0x67),
            (Role::Task, 0x83, 0x67),
        ] {
            assert_eq!(settle(role, access, limit), access, "{role:?} {access:#x}");
        }
    }

    #[test]
    fn others_are_put_right() {
        // Available TSS, and none at all.
        assert_eq!(settle(Role::Task, 0x89, 0x67), 0x8b);
        assert_eq!(settle(Role::Task, 0x81, 0x67), 0x83);
        assert_eq!(settle(Role::Task, UNUSABLE, 0), 0x8b);
        // Not accessed, not present, reserved bits, granularity.
        assert_eq!(settle(Role::Data, 0xc092, 0xffff_ffff), 0xc093);
        assert_eq!(settle(Role::Data, 0x13, 0), UNUSABLE | 0x13);
        assert_eq!(settle(Role::Code, 0xffff_ff9b, 0xffff_ffff), 0xf09b);
        assert_eq!(settle(Role::Data, 0x4093, 0xffff_ffff), 0xc093);
        assert_eq!(settle(Role::Data, 0xc093, 0x1000), 0x4093);
    }
}
