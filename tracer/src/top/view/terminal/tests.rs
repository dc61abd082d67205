//! The terminal on a pseudoterminal, read from its master side.

use super::*;
use crate::top::view::terminal_device::TermEvent;
use nix::pty::{OpenptyResult, openpty};
use nix::sys::eventfd::EventFd;
use std::fs::File;
use std::io::Read as _;

/// The output of the terminal so far.
fn shown(other_side: &mut File) -> Vec<u8> {
    let mut bytes = vec![0; 65536];
    let length = other_side.read(&mut bytes).expect("bytes");
    bytes.truncate(length);
    bytes
}

fn pseudo_terminal() -> (File, TerminalDevice) {
    let OpenptyResult { master, slave } = openpty(None, None).expect("a pseudo terminal");
    let device = TerminalDevice::of(slave).expect("a device");
    (File::from(master), device)
}

fn locked_for_test<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn holds(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// A single test, because the taken terminal is global.
#[test]
fn given_back_on_leaving_and_before_a_panic_is_told() {
    let (mut other_side, device) = pseudo_terminal();
    let before = device.mode().expect("a mode");
    let again = device.duplicate().expect("a device");
    let terminal = Terminal::enter_guarded(device, None).expect("a terminal");
    assert!(holds(&shown(&mut other_side), ENTER));
    assert_ne!(again.mode().expect("a mode"), before);
    drop(terminal);
    assert!(holds(&shown(&mut other_side), LEAVE));
    assert_eq!(again.mode().expect("a mode"), before);

    let device = again.duplicate().expect("a device");
    let terminal = Terminal::enter_guarded(device, None).expect("a terminal");
    shown(&mut other_side);
    // The previous panic hook runs after the terminal has been restored.
    let (sender, receiver) = std::sync::mpsc::channel();
    let (checked, usual) = (again.duplicate().expect("a device"), std::panic::take_hook());
    let sender = Mutex::new((sender, checked));
    std::panic::set_hook(Box::new(move |_| {
        let (sender, checked) = &*locked_for_test(&sender);
        let _ = sender.send(checked.mode());
    }));
    give_back_before_panics();
    let panicked = std::thread::spawn(move || {
        let _terminal = terminal;
        panic!("on purpose");
    });
    assert!(panicked.join().is_err());
    std::panic::set_hook(usual);
    assert_eq!(receiver.recv().expect("sent").expect("a mode"), before);
    assert!(holds(&shown(&mut other_side), LEAVE));
    assert_eq!(again.mode().expect("a mode"), before);
}

#[test]
fn a_terminal_that_takes_nothing_is_left() {
    let (_other_side, device) = pseudo_terminal();
    let wake = EventFd::from_value(1).expect("an event");
    let wake: OwnedFd = wake.as_fd().try_clone_to_owned().expect("a descriptor");
    let mut writer = FrameWriter::new(&device, Arc::new(wake)).expect("a writer");
    writer.write_all(&vec![b'x'; 1 << 20]).expect("kept");
    let error = writer.flush().expect_err("no reader");
    assert_eq!(error.kind(), io::ErrorKind::Interrupted);
}

#[test]
fn keys_and_the_end_of_the_terminal() {
    let (mut other_side, device) = pseudo_terminal();
    device.set_mode(&raw(&device.mode().expect("a mode"))).expect("set");
    let wake = EventFd::from_value(0).expect("an event");
    let wait = |limit| device.wait(wake.as_fd(), Duration::from_millis(limit));
    assert_eq!(wait(1), TermEvent::Nothing);
    other_side.write_all(b"q").expect("typed");
    assert_eq!(wait(10_000), TermEvent::Bytes(b"q".to_vec()));
    wake.write(1).expect("woken");
    assert_eq!(wait(10_000), TermEvent::Wake);
    drop(other_side);
    assert_eq!(wait(10_000), TermEvent::Gone);
}
