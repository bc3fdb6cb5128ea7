//! From exit codes to the neutral [`Exit`]. Exits that concern nobody above (exceptions that are only intercepted to be put
//! back) are settled here, and the guest goes on.

use core::arch::asm;

use x86_model::Gpa;
use x86_model::virt::svm::{event, exit_code as code, exit_info};

use super::vcpu::SvmVcpu;
use crate::machine::{Exit, IoExit, Stage2Fault};

const DB: u64 = 1;
const AC: u64 = 17;
const MC: u64 = 18;
const GP: u8 = 13;

impl SvmVcpu {
    /// What the last exit was; `None` if the guest just goes on.
    #[inline]
    pub(super) fn decode(&mut self) -> Option<Exit> {
        let c = &self.vmcb.get().control;
        let info = c.exit_info_1;
        Some(match c.exit_code {
            code::CPUID => Exit::Cpuid { len: self.length() },
            code::VMMCALL => Exit::Hypercall { len: self.length() },
            code::MSR => Exit::Msr {
                write: info & 1 != 0,
                len: self.length(),
            },
            code::INTR => Exit::Interrupt,
            code::NPF => Exit::Stage2(Stage2Fault {
                gpa: Gpa(c.exit_info_2),
                write: info & exit_info::NPF_WRITE != 0,
                fetch: info & exit_info::NPF_FETCH != 0,
                walk: info & exit_info::NPF_WALK != 0,
            }),
            code::IOIO => {
                let port = exit_info::port(info);
                Exit::Io(IoExit {
                    port: port.port,
                    width: port.width,
                    input: port.input,
                    string: port.string,
                    rep: port.rep,
                    next_rip: c.exit_info_2,
                })
            }
            code::HLT => Exit::Hlt { len: self.length() },
            code::VINTR => {
                self.close_window();
                Exit::InterruptWindow
            }
            _ => return self.decode_rare(),
        })
    }

    #[cold]
    fn decode_rare(&mut self) -> Option<Exit> {
        let c = &self.vmcb.get().control;
        let info = c.exit_info_1;
        Some(match c.exit_code {
            code::NMI => Exit::Nmi,
            // It stays pending, and resets this CPU as soon as the global interrupt flag allows.
            code::INIT => Exit::Interrupt,
            // Decode assists name the GPR; without them the instruction is looked at above.
            code @ (code::CR4_WRITE | code::CR8_WRITE) => Exit::Cr {
                reg: (code - code::CR_WRITE) as u8,
                write: true,
                gpr: (info & 15) as u8,
                len: if info & exit_info::CR_GPR_VALID != 0 {
                    self.length()
                } else {
                    0
                },
            },
            code::XSETBV => Exit::Xsetbv { len: self.length() },
            code::INVD | code::WBINVD => Exit::CacheFlush { len: self.length() },
            code::SHUTDOWN => Exit::Shutdown,
            code::VMRUN
            | code::VMLOAD
            | code::VMSAVE
            | code::STGI
            | code::CLGI
            | code::SKINIT
            | code::INVLPGA
            | code::MONITOR
            | code::MWAIT
            | code::MWAIT_ARMED
            | code::RDPRU
            | code::INVLPGB
            | code::INVLPGB_ILLEGAL
            | code::MCOMMIT
            | code::TLBSYNC => Exit::Undefined,
            // As on a CPU whose CR4.PCE is clear; no counters are offered.
            code::RDPMC => {
                self.put_back(event::exception(GP, Some(0)));
                return None;
            }
            // A handler is about to return: the NMI mask ends, and a waiting interrupt gets its window.
            code::IRET => {
                self.reached_iret();
                Exit::InterruptWindow
            }
            code::ICEBP => {
                let rip = self.vmcb.get().save.rip + u64::from(self.length().max(1));
                self.vmcb.get_mut().save.rip = rip;
                self.put_back(event::exception(DB as u8, None));
                return None;
            }
            vector @ code::EXCEPTION..=code::EXCEPTION_LAST => match vector - code::EXCEPTION {
                DB => {
                    self.put_back(event::exception(DB as u8, None));
                    return None;
                }
                AC => {
                    self.put_back(event::exception(AC as u8, Some(0)));
                    return None;
                }
                MC => {
                    // SAFETY: runs the machine-check handler of this CPU's IDT as the hardware would have done in host
                    // mode; the handler keeps all registers.
                    unsafe { asm!("int 18") };
                    Exit::Nmi
                }
                _ => self.unsupported(),
            },
            _ => self.unsupported(),
        })
    }

    pub(super) fn unsupported(&self) -> Exit {
        let c = &self.vmcb.get().control;
        Exit::Unsupported {
            code: c.exit_code,
            info1: c.exit_info_1,
            info2: c.exit_info_2,
        }
    }

    /// Makes an exception the next event. It takes the place of an event whose delivery raised it, as on hardware.
    fn put_back(&mut self, event: u64) {
        self.vmcb.get_mut().control.event_inj = event;
    }

    /// Length of the instruction that exited; 0 if this CPU does not tell.
    #[inline]
    fn length(&self) -> u8 {
        if !self.has_next_rip {
            return 0;
        }
        let vmcb = self.vmcb.get();
        let length = vmcb.control.next_rip.wrapping_sub(vmcb.save.rip);
        if length <= 15 { length as u8 } else { 0 }
    }
}
