//! Times off the CPU, and what a thread waits for in a system call.

use crate::event::OffCpuEvent;
use crate::wire::{OffCpuFlag, OffCpuWire};
use gctrace_event::{OffCpu, OffCpuReason};

/// `None` of a time that ends before it starts.
pub(crate) fn off_cpu(wire: &OffCpuWire) -> Option<OffCpuEvent> {
    (wire.start_ns <= wire.end_ns).then(|| OffCpuEvent {
        off: OffCpu {
            pid: wire.pid,
            tid: wire.tid,
            at_ns: wire.start_ns,
            reason: reason(wire),
            times: vec![(0, wire.end_ns - wire.start_ns)],
            in_pause: wire.flags & OffCpuFlag::OFF_CPU_IN_PAUSE.0 != 0,
            stack: None,
        },
        stack: (wire.stack != 0).then_some(wire.stack),
    })
}

fn reason(wire: &OffCpuWire) -> OffCpuReason {
    let by_flag = [
        (OffCpuFlag::OFF_CPU_STOPPED, OffCpuReason::Stopped),
        (OffCpuFlag::OFF_CPU_RUNNABLE, OffCpuReason::Cpu),
        (OffCpuFlag::OFF_CPU_ON_GIL, OffCpuReason::Gil),
        (OffCpuFlag::OFF_CPU_AT_LAUNCH, OffCpuReason::Driver),
    ];
    let flagged = by_flag.iter().find(|(flag, _)| wire.flags & flag.0 != 0);
    let on_io = wire.flags & OffCpuFlag::OFF_CPU_ON_IO.0 != 0;
    match flagged {
        Some((_, reason)) => *reason,
        None if wire.system_call < 0 => OffCpuReason::PageFault,
        None if on_io => OffCpuReason::Disk,
        None => waits_for(wire.system_call.into(), wire.first_argument.into()),
    }
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

    #[test]
    fn reasons_by_flag_and_call() {
        let none = OffCpuFlag(0);
        for (flag, call, reason) in [
            (none, libc::SYS_futex, OffCpuReason::Lock),
            (OffCpuFlag::OFF_CPU_ON_GIL, libc::SYS_futex, OffCpuReason::Gil),
            (none, libc::SYS_read, OffCpuReason::Pipe),
            (OffCpuFlag::OFF_CPU_ON_IO, libc::SYS_read, OffCpuReason::Disk),
            (OffCpuFlag::OFF_CPU_ON_IO, -1, OffCpuReason::PageFault),
            (OffCpuFlag::OFF_CPU_RUNNABLE, -1, OffCpuReason::Cpu),
            (OffCpuFlag::OFF_CPU_STOPPED, libc::SYS_read, OffCpuReason::Stopped),
            (none, libc::SYS_getpid, OffCpuReason::Other),
        ] {
            let system_call = i32::try_from(call).unwrap();
            let wire = OffCpuWire { flags: flag.0, system_call, ..OffCpuWire::default() };
            assert_eq!(super::reason(&wire), reason, "{call}");
        }
    }
}
