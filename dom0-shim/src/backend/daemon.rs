//! The daemon: one thread that waits for the store and for signals.

use super::glue::Glue;
use super::linux::Linux;
use super::options::Options;
use crate::signals::{Signal, Signals};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};
use xen_sys::xenstore::{Client, Error};

/// How often a store that is gone is looked for.
const STORE_EVERY: Duration = Duration::from_secs(1);
/// How long the store may take to be there at the start.
const STORE_PATIENCE: Duration = Duration::from_secs(30);
/// How often an interface is looked for that the kernel is about to make.
const SOON: Duration = Duration::from_millis(20);

/// Runs until SIGTERM or SIGINT. `ready` is called once devices are served.
///
/// # Errors
/// Why it cannot start or go on.
pub fn run(
    options: Options,
    say: Box<dyn FnMut(&str)>,
    ready: impl FnOnce(),
) -> Result<(), String> {
    let mut signals =
        Signals::catch(&[Signal::End]).map_err(|e| format!("signals cannot be caught: {e}"))?;
    let say = Rc::new(RefCell::new(say));
    let ours = say.clone();
    let system = Linux::open().map_err(|e| format!("no network: {e}"))?;
    let mut glue = Glue::new(
        system,
        options.manner,
        Box::new(move |line| ours.borrow_mut()(line)),
    );
    let start = Instant::now();
    let mut store = loop {
        match Client::open_within(STORE_EVERY) {
            Ok(store) => break Some(store),
            Err(error) if start.elapsed() > STORE_PATIENCE => return Err(error.to_string()),
            Err(_) => std::thread::sleep(STORE_EVERY / 10),
        }
    };
    if let Some(store) = &mut store {
        glue.begin(store).map_err(|e| e.to_string())?;
    }
    if let Some(path) = &options.pid_file {
        std::fs::write(path, format!("{}\n", std::process::id()))
            .map_err(|e| format!("{}: {e}", path.display()))?;
    }
    ready();
    loop {
        let signal = wait(&signals, store.as_ref(), glue.waits());
        let signal = signal.map_err(|e| format!("poll: {e}"))?;
        if signal && signals.take().contains(&Signal::End) {
            break;
        }
        let result = match &mut store {
            Some(store) => turn(&mut glue, store),
            None => match Client::open_within(STORE_EVERY) {
                Ok(mut client) => {
                    let result = glue.begin(&mut client);
                    say.borrow_mut()("xenstored is back");
                    store = Some(client);
                    result
                }
                Err(_) => Ok(()),
            },
        };
        if let Err(error) = result {
            say.borrow_mut()(&format!(
                "xenstored is gone ({error}); devices stay as they are, and it is looked for"
            ));
            store = None;
        }
    }
    if let Some(path) = &options.pid_file {
        // Gone already if somebody tidied up.
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}

fn turn(glue: &mut Glue<Linux>, store: &mut Client) -> Result<(), Error> {
    while let Some(event) = store.event(Some(Duration::ZERO))? {
        glue.event(&event.path, store)?;
    }
    glue.tick(store)
}

/// Waits for the store or a signal; whether it was a signal.
fn wait(signals: &Signals, store: Option<&Client>, soon: bool) -> rustix::io::Result<bool> {
    let timeout = match store {
        Some(store) if store.has_event() => Some(Duration::ZERO),
        Some(_) => soon.then_some(SOON),
        None => Some(STORE_EVERY),
    };
    let timeout = timeout.and_then(|t| Timespec::try_from(t).ok());
    let mut fds = vec![PollFd::new(signals, PollFlags::IN)];
    let fd = store.and_then(Client::fd);
    fds.extend(fd.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
    match poll(&mut fds, timeout.as_ref()) {
        Ok(_) => Ok(!fds[0].revents().is_empty()),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error),
    }
}
