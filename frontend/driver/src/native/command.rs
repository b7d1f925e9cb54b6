//! Commands, such as compilers and linkers, that may be told to end.

use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

/// How a command ended.
pub enum Ended {
    Well,
    /// With what it said on its standard error.
    Badly(Vec<u8>),
    /// As it was told to.
    Stopped,
}

/// Milliseconds between two looks whether to stop.
const PATIENCE: i32 = 20;

/// Runs a command to its end. Once `stop` is set, it and what it has started are told to end; they
/// have their own process group, so that they do not hear of it otherwise.
///
/// Errors: it cannot be started.
pub fn run(command: &mut Command, stop: &AtomicBool) -> io::Result<Ended> {
    let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.process_group(0).spawn()?;
    let mut errors = child.stderr.take().expect("it is piped");
    let (mut said, mut part) = (Vec::new(), [0; 4096]);
    let mut told = false;
    // What it has started keeps the pipe open as well.
    loop {
        if stop.load(Ordering::Relaxed) && !told {
            told = true;
            // SAFETY: the group is there as long as the child, which nobody has waited for.
            unsafe { libc::kill(-(child.id() as libc::pid_t), libc::SIGTERM) };
        }
        let mut ready = libc::pollfd { fd: errors.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: there is one, and it is open.
        if unsafe { libc::poll(&raw mut ready, 1, PATIENCE) } > 0 {
            match errors.read(&mut part)? {
                0 => break,
                count => said.extend(&part[..count]),
            }
        }
    }
    let status = child.wait()?;
    Ok(match (told, status.success()) {
        (true, _) => Ended::Stopped,
        (_, true) => Ended::Well,
        _ => Ended::Badly(said),
    })
}
