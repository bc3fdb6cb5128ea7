//! `platform_op` (7): the control domain's view of the physical platform.

use hv_hw::Machine;
use hv_hw::machine::CpuId;
use xen_abi::Errno;
use xen_abi::platform::{
    PfCpuOl, PfFirmwareInfo, PfPcpuinfo, PfSettime32, PfSettime64, PlatformOp, firmware, interface,
    op, pcpu,
};
use zerocopy::{FromBytes, IntoBytes};

use super::{Call, HcResult, platform_screen, ptr};
use crate::hotplug::Progress;
use crate::hypervisor::Wallclock;

/// `platform_op(pointer)`.
pub fn handle(call: &mut Call<'_, '_>, args: [u64; 5]) -> HcResult {
    let [arg, ..] = args;
    call.privileged()?;
    let mut a: PlatformOp = call.memory().read(ptr(arg))?;
    if a.interface_version != interface::VERSION {
        return Err(Errno::EACCES);
    }
    match a.cmd {
        op::SETTIME32 => {
            let (t, _) = PfSettime32::read_from_prefix(&a.u).map_err(|_| Errno::EFAULT)?;
            set_time(call, u64::from(t.secs), t.nsecs, t.system_time)
        }
        op::SETTIME64 => {
            let (t, _) = PfSettime64::read_from_prefix(&a.u).map_err(|_| Errno::EFAULT)?;
            if t.mbz != 0 {
                return Err(Errno::EINVAL);
            }
            set_time(call, t.secs, t.nsecs, t.system_time)
        }
        op::GET_CPUINFO => {
            let (mut info, _) = PfPcpuinfo::read_from_prefix(&a.u).map_err(|_| Errno::EFAULT)?;
            cpu_info(call, &mut info);
            a.u[..size_of::<PfPcpuinfo>()].copy_from_slice(info.as_bytes());
            call.memory().write(ptr(arg), &a)?;
            Ok(0)
        }
        op::CPU_ONLINE | op::CPU_OFFLINE => {
            let (a_cpu, _) = PfCpuOl::read_from_prefix(&a.u).map_err(|_| Errno::EFAULT)?;
            hotplug(call, CpuId(a_cpu.cpuid), a.cmd == op::CPU_ONLINE, args)
        }
        op::FIRMWARE_INFO => {
            let (info, _) = PfFirmwareInfo::read_from_prefix(&a.u).map_err(|_| Errno::EFAULT)?;
            firmware_info(info.kind)
        }
        // Newer than the presented release, but the only way for a PVH dom0 to learn of the screen.
        op::GET_DOM0_CONSOLE => {
            let identity = &call.hv().identity;
            let info =
                platform_screen::describe(identity.screen, identity.efi).ok_or(Errno::ENODEV)?;
            a.u[..info.len()].copy_from_slice(&info);
            call.memory().write(ptr(arg), &a)?;
            Ok(info.len() as u64)
        }
        _ => Err(Errno::ENOSYS),
    }
}

/// Nothing is kept of what a BIOS tells in real mode, and the EFI services are not passed on: dom0 sees a machine with
/// neither disks nor EFI.
fn firmware_info(kind: u32) -> HcResult {
    Err(match kind {
        firmware::DISK_INFO | firmware::DISK_MBR_SIGNATURE => Errno::ESRCH,
        firmware::VBEDDC_INFO | firmware::EFI_INFO | firmware::KBD_SHIFT_FLAGS => Errno::ENOSYS,
        _ => Errno::EINVAL,
    })
}

/// A pCPU comes or goes; nothing happens if it is there already. EOPNOTSUPP: the boot CPU stays.
fn hotplug(call: &mut Call<'_, '_>, cpu: CpuId, online: bool, args: [u64; 5]) -> HcResult {
    let hv = call.hv();
    let result = match online {
        true => hv.cpu_up(cpu).map(|()| Progress::Done),
        false if cpu.0 == 0 => Err(Errno::EOPNOTSUPP),
        false => hv.cpu_down(cpu),
    };
    match result {
        Ok(Progress::Again) => call.restart(args),
        Ok(Progress::Done) | Err(Errno::EEXIST) => Ok(0),
        Err(e) => Err(e),
    }
}

fn cpu_info(call: &Call<'_, '_>, info: &mut PfPcpuinfo) {
    let hw = &call.hv().hw;
    info.max_present = hw.cpu_count() - 1;
    match hw.cpu_ids(CpuId(info.xen_cpuid)) {
        Some((apic, acpi)) => {
            info.flags = if hw.is_online(CpuId(info.xen_cpuid)) {
                pcpu::ONLINE
            } else {
                0
            };
            info.apic_id = apic;
            info.acpi_id = acpi;
        }
        // The identifiers stay as the caller passed them.
        None => info.flags = pcpu::INVALID,
    }
}

/// The wall time `secs.nsecs` was at `system_time`; stored as the wall time at system time 0.
fn set_time(call: &mut Call<'_, '_>, secs: u64, nsecs: u32, system_time: u64) -> HcResult {
    const GIGA: u128 = 1_000_000_000;
    let then = u128::from(secs) * GIGA + u128::from(nsecs);
    let base = then
        .checked_sub(u128::from(system_time))
        .ok_or(Errno::EINVAL)?;
    let wall = Wallclock {
        secs: (base / GIGA) as u64,
        nsecs: (base % GIGA) as u32,
    };
    call.hv().set_wallclock(wall);
    Ok(0)
}
