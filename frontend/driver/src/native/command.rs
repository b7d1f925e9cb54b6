//! Runs commands such as compilers and linkers, which can be stopped.

use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

/// How a command ended.
pub enum Exit {
    Succeeded,
    /// The command failed; its standard error.
    Failed(Vec<u8>),
    /// It was stopped on request.
    Stopped,
}

/// The interval in milliseconds between checks of `stop`.
const POLL_MS: i32 = 20;

/// Runs a command to its end. Once `stop` is set, the command and its child processes get SIGTERM.
/// They run in their own process group, so that Ctrl-C does not reach them.
///
/// Errors: it cannot be started.
pub fn run(command: &mut Command, stop: &AtomicBool) -> io::Result<Exit> {
    let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.process_group(0).spawn()?;
    let mut errors = child.stderr.take().expect("it is piped");
    let (mut said, mut part) = (Vec::new(), [0; 4096]);
    let mut stopped = false;
    // Child processes of the command also keep the pipe open, so this waits for them too.
    loop {
        if stop.load(Ordering::Relaxed) && !stopped {
            stopped = true;
            // SAFETY: the group exists as long as the child, which has not been waited for.
            unsafe { libc::kill(-(child.id() as libc::pid_t), libc::SIGTERM) };
        }
        let mut ready = libc::pollfd { fd: errors.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: there is one descriptor, and it is open.
        if unsafe { libc::poll(&raw mut ready, 1, POLL_MS) } > 0 {
            match errors.read(&mut part)? {
                0 => break,
                count => said.extend(&part[..count]),
            }
        }
    }
    let status = child.wait()?;
    Ok(match (stopped, status.success()) {
        (true, _) => Exit::Stopped,
        (_, true) => Exit::Succeeded,
        _ => Exit::Failed(said),
    })
}
