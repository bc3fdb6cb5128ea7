//! `xen_version` (17): who we are. Layouts in `version.h`.

use xen_abi::version::{BuildId, op};
use xen_abi::{Errno, features};

use super::{Call, HcResult, ptr};

/// Feature bits of submap 0 for a domain whose physical map is translated (`features.h`), as Xen 4.17 reports them.
pub const fn feature_word(privileged: bool) -> u32 {
    use features::feature as f;
    let common = 1 << f::WRITABLE_PAGE_TABLES
        | 1 << f::AUTO_TRANSLATED_PHYSMAP
        | 1 << f::HVM_CALLBACK_VECTOR
        | 1 << f::HVM_SAFE_PVCLOCK
        | 1 << f::MEMORY_OP_VNODE_SUPPORTED;
    // dom0 is identity mapped, unlike Xen's: it says so.
    if privileged {
        common | 1 << f::DOM0 | 1 << f::DIRECT_MAPPED
    } else {
        common | 1 << f::NOT_DIRECT_MAPPED
    }
}

/// Start of Xen's own area in a PV guest's address space, which HVM guests are told, too; they have no such area.
const VIRT_START: u64 = 0xffff_8000_0000_0000;
/// What 32-bit callers are told in its place.
const VIRT_START_32: u32 = 0;

/// Copies `text` into a fixed field, always NUL-terminated.
fn field<const N: usize>(text: &str) -> [u8; N] {
    let mut out = [0u8; N];
    let n = text.len().min(N - 1);
    out[..n].copy_from_slice(&text.as_bytes()[..n]);
    out
}

/// `xen_version(sub, buffer)`.
pub fn handle(call: &mut Call<'_, '_>, [sub, buffer, ..]: [u64; 5]) -> HcResult {
    let id = &call.hv().identity;
    let at = ptr(buffer);
    let out = |bytes: &[u8]| call.memory().copy_out(at, bytes).map(|()| 0);
    match sub as u32 {
        op::VERSION => Ok(u64::from(id.major) << 16 | u64::from(id.minor)),
        op::EXTRAVERSION => out(&field::<16>(&id.extra)),
        op::COMPILE_INFO => {
            let mut info = [0u8; 144];
            let [compiler, by, domain, date] = &id.compile;
            info[0..64].copy_from_slice(&field::<64>(compiler));
            info[64..80].copy_from_slice(&field::<16>(by));
            info[80..112].copy_from_slice(&field::<32>(domain));
            info[112..144].copy_from_slice(&field::<32>(date));
            out(&info)
        }
        op::CAPABILITIES => out(&field::<1024>(CAPABILITIES)),
        op::CHANGESET => out(&field::<64>(&id.changeset)),
        op::PLATFORM_PARAMETERS if !call.is_long() => out(&VIRT_START_32.to_le_bytes()),
        op::PLATFORM_PARAMETERS => out(&VIRT_START.to_le_bytes()),
        op::GET_FEATURES => features(call, buffer),
        op::PAGESIZE => Ok(4096),
        op::GUEST_HANDLE => {
            let handle = *call.domain().handle.lock();
            out(&handle)
        }
        // Others get a text in its place, as on Xen, and nothing behind it.
        op::COMMANDLINE if !call.domain().privileged => out(b"<denied>\0"),
        op::COMMANDLINE => out(&field::<1024>(&id.command_line)),
        op::BUILD_ID => {
            call.privileged()?;
            if buffer != 0 && call.memory().read::<BuildId>(ptr(buffer))?.len == 0 {
                return Err(Errno::EINVAL);
            }
            if id.build_id.is_empty() {
                return Err(Errno::ENODATA);
            }
            sized(call, buffer, &id.build_id)
        }
        // A guest tells Xen 4.17 and earlier by their absence.
        op::EXTRAVERSION2..=op::COMMANDLINE2 if (id.major, id.minor) < (4, 18) => {
            Err(Errno::ENOSYS)
        }
        op::EXTRAVERSION2 => text(call, buffer, &id.extra),
        op::CAPABILITIES2 => text(call, buffer, CAPABILITIES),
        op::CHANGESET2 => text(call, buffer, &id.changeset),
        op::COMMANDLINE2 if !call.domain().privileged => text(call, buffer, "<denied>"),
        op::COMMANDLINE2 => text(call, buffer, &id.command_line),
        _ => Err(Errno::ENOSYS),
    }
}

/// A text of any length; no NUL follows.
fn text(call: &Call<'_, '_>, buffer: u64, text: &str) -> HcResult {
    sized(call, buffer, text.as_bytes())
}

/// Bytes into a buffer that begins with its size; returns how many they are. ENOBUFS: they do not fit. Without a buffer only
/// the number is told.
fn sized(call: &Call<'_, '_>, buffer: u64, bytes: &[u8]) -> HcResult {
    if buffer != 0 {
        let room: BuildId = call.memory().read(ptr(buffer))?;
        if bytes.len() > room.len as usize {
            return Err(Errno::ENOBUFS);
        }
        let at = buffer.checked_add(size_of::<BuildId>() as u64);
        call.memory()
            .copy_out(ptr(at.ok_or(Errno::EFAULT)?), bytes)?;
    }
    Ok(bytes.len() as u64)
}

/// Guest types that can be built. The version in these names has been 3.0 since there are HVM guests.
const CAPABILITIES: &str = "hvm-3.0-x86_32 hvm-3.0-x86_32p hvm-3.0-x86_64 ";

fn features(call: &mut Call<'_, '_>, buffer: u64) -> HcResult {
    let mut info: xen_abi::version::FeatureInfo = call.memory().read(ptr(buffer))?;
    // Submap 0 is the only one.
    if info.submap_idx != 0 {
        return Err(Errno::EINVAL);
    }
    info.submap = feature_word(call.domain().privileged);
    if call.domain().pirqs.is_some() {
        info.submap |= 1 << features::feature::HVM_PIRQS;
    }
    call.memory().write(ptr(buffer), &info)?;
    Ok(0)
}
