//! Times off the CPU, and what a thread waits for in a system call.

use crate::event::OffCpuEvent;
use crate::wire::{OffCpuFlag, OffCpuWire};
use gctrace_event::{OffCpu, OffCpuReason};

/// `None` of a time that ends before it starts.
pub(crate) fn off_cpu(wire: &OffCpuWire) -> Option<OffCpuEvent> {
    if wire.start_ns > wire.end_ns {
        return None;
    }
    Some(OffCpuEvent {
        off: OffCpu {
            pid: wire.pid,
            tid: wire.tid,
            at_ns: wire.start_ns,
            reason: reason(wire.reason),
            times: vec![(0, wire.end_ns - wire.start_ns)],
            in_pause: wire.flags & OffCpuFlag::OFF_CPU_IN_PAUSE.0 != 0,
            woken_by: Some(wire.woken_by).filter(|pid| *pid != 0 && *pid != wire.pid),
            stack: None,
        },
        stack: if wire.stack != 0 { Some(wire.stack) } else { None },
    })
}

/// The reason of this number, as the kernel's programs number them; any other is something else.
pub(crate) fn reason(number: u32) -> OffCpuReason {
    let index = usize::try_from(number).ok();
    index.and_then(|index| OffCpuReason::ALL.get(index)).copied().unwrap_or_default()
}

/// Reason for a thread's wait in a system call, by the numbers of this machine.
pub fn waits_for(number: i64, first_argument: u64) -> OffCpuReason {
    match number {
        // No files to select: time.sleep() until Python 3.10.
        libc::SYS_pselect6 if first_argument == 0 => OffCpuReason::Sleep,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_select if first_argument == 0 => OffCpuReason::Sleep,
        libc::SYS_futex => OffCpuReason::Lock,
        libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 | libc::SYS_ppoll | libc::SYS_pselect6 => {
            OffCpuReason::Poll
        }
        #[cfg(target_arch = "x86_64")]
        libc::SYS_vfork => OffCpuReason::Process,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_epoll_wait | libc::SYS_poll | libc::SYS_select => OffCpuReason::Poll,
        libc::SYS_read
        | libc::SYS_readv
        | libc::SYS_write
        | libc::SYS_writev
        | libc::SYS_recvfrom
        | libc::SYS_recvmsg
        | libc::SYS_recvmmsg
        | libc::SYS_sendto
        | libc::SYS_sendmsg
        | libc::SYS_accept
        | libc::SYS_accept4
        | libc::SYS_connect
        | libc::SYS_splice
        | libc::SYS_sendfile => OffCpuReason::Pipe,
        libc::SYS_nanosleep | libc::SYS_clock_nanosleep => OffCpuReason::Sleep,
        libc::SYS_wait4 | libc::SYS_waitid | libc::SYS_clone | libc::SYS_clone3 => {
            OffCpuReason::Process
        }
        libc::SYS_fsync | libc::SYS_fdatasync | libc::SYS_pread64 | libc::SYS_pwrite64 => {
            OffCpuReason::Disk
        }
        libc::SYS_ioctl => OffCpuReason::Driver,
        _ => OffCpuReason::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::WaitReason;

    #[test]
    fn reasons_have_the_numbers_of_the_programs() {
        for (number, expected) in [
            (WaitReason::WAIT_GIL, OffCpuReason::Gil),
            (WaitReason::WAIT_LOCK, OffCpuReason::Lock),
            (WaitReason::WAIT_POLL, OffCpuReason::Poll),
            (WaitReason::WAIT_PIPE, OffCpuReason::Pipe),
            (WaitReason::WAIT_SLEEP, OffCpuReason::Sleep),
            (WaitReason::WAIT_PROCESS, OffCpuReason::Process),
            (WaitReason::WAIT_DISK, OffCpuReason::Disk),
            (WaitReason::WAIT_PAGE_FAULT, OffCpuReason::PageFault),
            (WaitReason::WAIT_DRIVER, OffCpuReason::Driver),
            (WaitReason::WAIT_CPU, OffCpuReason::Cpu),
            (WaitReason::WAIT_STOPPED, OffCpuReason::Stopped),
            (WaitReason::WAIT_OTHER, OffCpuReason::Other),
        ] {
            assert_eq!(reason(number.0), expected);
        }
        assert_eq!(WaitReason::WAIT_REASONS.0, u32::try_from(OffCpuReason::ALL.len()).unwrap());
        assert_eq!(reason(u32::MAX), OffCpuReason::Other);
        assert_eq!(waits_for(libc::SYS_read, 3), OffCpuReason::Pipe);
        assert_eq!(waits_for(libc::SYS_getpid, 0), OffCpuReason::Other);
    }
}
