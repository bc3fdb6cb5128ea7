//! From exit reasons to the neutral [`Exit`]. Exits that concern nobody above (exceptions that are only intercepted to be put
//! back, writes to CR0) are settled here, and the guest goes on.

use core::arch::asm;

use x86_model::Gpa;
use x86_model::apic::DEFAULT_BASE;
use x86_model::virt::vmx::error::Failure;
use x86_model::virt::vmx::event::Raised;
use x86_model::virt::vmx::exit::{self as reason, ControlRegister};
use x86_model::virt::vmx::field::*;
use x86_model::virt::vmx::{cr0, delivery, ept, event};

use super::instr::{read, write};
use super::vcpu::VmxVcpu;
use super::{entry, state};
use crate::error;
use crate::machine::{Exit, GuestContext, IoExit, Stage2Fault};
use crate::x86::cpu::percpu;

/// First number of [`Exit::Unsupported`] for entries that the CPU refused; the instruction error is added.
const REFUSED: u64 = 1 << 32;
const DB: u8 = 1;
const DF: u8 = 8;
const GP: u8 = 13;
const PF: u8 = 14;
const AC: u8 = 17;
const MC: u8 = 18;
const DR7_GENERAL_DETECT: u64 = 1 << 13;
const DR6_BD: u64 = 1 << 13;

/// Length of the instruction that exited.
#[inline]
fn length() -> u8 {
    read(EXIT_LENGTH) as u8
}

impl VmxVcpu {
    /// The entry did not happen: says why, once and for all for this guest.
    #[cold]
    pub(super) fn refused(&self, how: u64) -> Exit {
        let why = if how == entry::FAILED_INVALID {
            Failure::Invalid
        } else {
            Failure::Numbered(read(INSTRUCTION_ERROR))
        };
        error!("Entry refused: {why}");
        let number = match why {
            Failure::Invalid => 0,
            Failure::Numbered(n) => n.into(),
        };
        Exit::Unsupported {
            code: REFUSED | number,
            info1: 0,
            info2: 0,
        }
    }

    #[cold]
    pub(super) fn entry_failed(&self, exit: u32) -> Exit {
        let detail = read(EXIT_QUALIFICATION);
        error!("Entry failed: {} (detail {detail:#x})", reason::name(exit));
        Exit::Unsupported {
            code: exit.into(),
            info1: detail,
            info2: read(GUEST_INTERRUPTIBILITY).into(),
        }
    }

    /// What the last exit was; `None` if the guest just goes on.
    #[inline]
    pub(super) fn decode(&mut self, why: u32) -> Option<Exit> {
        Some(match why {
            reason::CPUID => Exit::Cpuid { len: length() },
            reason::VMCALL => Exit::Hypercall { len: length() },
            reason::RDMSR | reason::WRMSR => Exit::Msr {
                write: why == reason::WRMSR,
                len: length(),
            },
            reason::INTERRUPT => {
                if self.target.is_some() {
                    acknowledged();
                }
                Exit::Interrupt
            }
            reason::EPT_VIOLATION => {
                let fault = ept::violation(read(EXIT_QUALIFICATION));
                if fault.nmi_unblocked && !self.injecting() {
                    self.set_nmi_mask(true);
                }
                Exit::Stage2(Stage2Fault {
                    gpa: Gpa(read(GUEST_PHYSICAL_ADDRESS)),
                    write: fault.write,
                    fetch: fault.fetch,
                    walk: fault.walk,
                })
            }
            reason::IO => {
                let port = reason::port(read(EXIT_QUALIFICATION));
                Exit::Io(IoExit {
                    port: port.port,
                    width: port.width,
                    input: port.input,
                    string: port.string,
                    rep: port.rep,
                    next_rip: read(GUEST_RIP).wrapping_add(length().into()),
                })
            }
            reason::APIC_WRITE => self.written(read(EXIT_QUALIFICATION)),
            reason::APIC_ACCESS => {
                let access = delivery::page_access(read(EXIT_QUALIFICATION));
                Exit::Stage2(Stage2Fault {
                    gpa: Gpa(DEFAULT_BASE + u64::from(access.offset)),
                    write: access.write,
                    fetch: access.fetch,
                    walk: access.indirect,
                })
            }
            reason::HLT => Exit::Hlt { len: length() },
            reason::INTERRUPT_WINDOW => return self.window_opened(),
            _ => return self.decode_rare(why),
        })
    }

    #[cold]
    fn decode_rare(&mut self, why: u32) -> Option<Exit> {
        Some(match why {
            reason::EXCEPTION => return self.exception(),
            // It stays pending for this CPU.
            reason::INIT => Exit::Interrupt,
            reason::PREEMPTION_TIMER => Exit::Interrupt,
            reason::VIRTUAL_EOI => return self.ended(read(EXIT_QUALIFICATION) as u8),
            reason::TPR_THRESHOLD => {
                self.tpr_watch = 0;
                Exit::InterruptWindow
            }
            reason::NMI_WINDOW => self.nmi_window_opened(),
            reason::CONTROL_REGISTER => match reason::control_register(read(EXIT_QUALIFICATION)) {
                ControlRegister::Write { register: 0, gpr } => {
                    self.write_cr0(self.gprs().0[usize::from(gpr)]);
                    return None;
                }
                ControlRegister::Write { register: 4, gpr } => Exit::Cr {
                    reg: 4,
                    write: true,
                    gpr,
                    len: length(),
                },
                _ => unsupported(why),
            },
            reason::XSETBV => Exit::Xsetbv { len: length() },
            reason::INVD | reason::WBINVD => Exit::CacheFlush { len: length() },
            reason::TRIPLE_FAULT => Exit::Shutdown,
            reason::GETSEC
            | reason::VMCLEAR
            | reason::VMLAUNCH
            | reason::VMPTRLD
            | reason::VMPTRST
            | reason::VMREAD
            | reason::VMRESUME
            | reason::VMWRITE
            | reason::VMXOFF
            | reason::VMXON
            | reason::INVEPT
            | reason::INVVPID
            | reason::VMFUNC
            | reason::ENCLS
            | reason::MONITOR
            | reason::MWAIT => Exit::Undefined,
            // As on a CPU whose CR4.PCE is clear; no counters are offered.
            reason::RDPMC => {
                self.put_back(event::exception(GP, true), 0);
                return None;
            }
            reason::EPT_MISCONFIGURED => {
                error!(
                    "EPT misconfiguration at {:#x}",
                    read(GUEST_PHYSICAL_ADDRESS)
                );
                unsupported(why)
            }
            _ => unsupported(why),
        })
    }

    fn exception(&mut self) -> Option<Exit> {
        let event = read(EXIT_EVENT);
        if event::is_nmi(event) {
            // SAFETY: runs the NMI handler of this CPU's IDT, as the hardware would have done in host mode; the handler
            // keeps all registers, and its IRET ends the mask that the NMI set.
            unsafe { asm!("int 2") };
            return Some(Exit::Nmi);
        }
        if event & event::NMI_UNBLOCKED != 0 && !self.injecting() {
            self.set_nmi_mask(true);
        }
        match event::exception_vector(event) {
            Some(MC) => {
                // SAFETY: as above, with the machine-check handler.
                unsafe { asm!("int 18") };
                Some(Exit::Nmi)
            }
            Some(DB) => {
                let causes = read(EXIT_QUALIFICATION);
                self.resident
                    .set_dr6(reason::dr6_after(self.resident.dr6(), causes));
                // SAFETY: guest state, and the length of the instruction, for the kinds of event that need it.
                unsafe {
                    if causes & DR6_BD != 0 {
                        write(GUEST_DR7, read(GUEST_DR7) & !DR7_GENERAL_DETECT);
                    }
                    write(ENTRY_LENGTH, read(EXIT_LENGTH));
                }
                self.put_back(event::for_entry(event), 0);
                None
            }
            Some(AC) => {
                self.put_back(event::for_entry(event), read(EXIT_ERROR_CODE));
                None
            }
            Some(vector) if self.on_bochs() => self.pass_on(vector, event),
            _ => Some(unsupported(reason::EXCEPTION)),
        }
    }

    /// An exception that is the guest's own affair.
    fn pass_on(&mut self, vector: u8, event: u32) -> Option<Exit> {
        if vector == PF {
            self.resident.set_cr2(read(EXIT_QUALIFICATION));
        }
        match event::raised(read(VECTORING_EVENT), vector) {
            Raised::Itself => self.put_back(event::for_entry(event), read(EXIT_ERROR_CODE)),
            Raised::Double => self.put_back(event::exception(DF, true), 0),
            Raised::Shutdown => return Some(Exit::Shutdown),
        }
        None
    }

    /// A write to CR0 that changes one of the host's bits; what it does otherwise is done here too.
    fn write_cr0(&mut self, value: u64) {
        let efer = read(GUEST_EFER);
        let before = cr0::Before {
            cr0: state::guest_cr0(),
            cr4: state::guest_cr4(),
            efer,
            cs_long: state::code_is_long(efer),
        };
        let value = if before.cs_long {
            value
        } else {
            value & 0xffff_ffff
        };
        match cr0::write(before, value) {
            cr0::Outcome::Fault => self.put_back(event::exception(GP, true), 0),
            cr0::Outcome::Set { real, shadow, efer } => {
                // SAFETY: guest state; NE stays set, CD and NW clear.
                unsafe {
                    write(GUEST_CR0, real);
                    write(CR0_SHADOW, shadow);
                }
                state::set_guest_efer(efer);
                self.paging_changed();
                self.skip();
            }
        }
    }
}

/// The exit took an interrupt from the local APIC: it is in service, and waits to be served.
fn acknowledged() {
    if let Some(vector) = event::interrupt_vector(read(EXIT_EVENT)) {
        percpu::this().acknowledged(vector);
    }
}

#[cold]
fn unsupported(why: u32) -> Exit {
    Exit::Unsupported {
        code: why.into(),
        info1: read(EXIT_QUALIFICATION),
        info2: read(EXIT_EVENT).into(),
    }
}
