//! `top`: what domains use, live.

mod sample;
mod screen;

use super::failure::{Failure, Outcome};
use super::host::{Host, Versioned};
use super::{Args, Command, Context, Opt, output};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sample::{Linux, Sample};
use screen::{Order, View};
use std::io::{self, Write};
use std::time::Duration;

/// The rows.
pub const ROWS: &[Command] = &[Command {
    name: "top",
    options: &[
        Opt::flag(
            Some('b'),
            &["batch"],
            "print one list after another instead of a screen",
        ),
        Opt::with(
            Some('d'),
            &["delay"],
            "SECONDS",
            "time between two looks; 3",
        ),
        Opt::with(Some('i'), &["iterations"], "COUNT", "looks before it ends"),
        Opt::flag(Some('v'), &["vcpus"], "also the time of each vCPU"),
        Opt::flag(Some('n'), &["networks"], "also each network interface"),
        Opt::flag(Some('x'), &["vbds"], "also each disk"),
        Opt::flag(Some('f'), &["full-name"], "names as long as they are"),
    ],
    usage: "[options]",
    help: "Show what domains use, live",
    min: 0,
    dry_run: false,
    run: top,
}];

fn top(context: &Context, args: &Args) -> Outcome {
    let delay = positive(args, "delay", 3.0)?;
    let batch = args.has("batch") || context.json;
    let limit = match args.value("iterations") {
        Some(_) => Some(positive(args, "iterations", 1.0)? as u64),
        // As JSON it is a measurement: two looks.
        None if context.json => Some(1),
        None => None,
    };
    let view = View {
        vcpus: args.has("vcpus"),
        networks: args.has("networks"),
        disks: args.has("vbds"),
        full_names: args.has("full-name"),
        order: Order::Name,
    };
    let host = &mut Host::open()?;
    let delay = Duration::from_secs_f64(delay);
    if batch {
        return list_after_list(host, context, &view, delay, limit);
    }
    live(host, view, delay, limit)
}

fn positive(args: &Args, name: &str, default: f64) -> Result<f64, Failure> {
    let Some(text) = args.value(name) else {
        return Ok(default);
    };
    let number: f64 = text.parse().unwrap_or(0.0);
    if (0.01..1e6).contains(&number) {
        return Ok(number);
    }
    Err(Failure::usage(format!(
        "--{name}: '{text}' is not a number above 0"
    )))
}

fn list_after_list(
    host: &mut Host,
    context: &Context,
    view: &View,
    delay: Duration,
    limit: Option<u64>,
) -> Outcome {
    let mut before = Sample::take(host, &Linux)?;
    let mut done = 0;
    if context.json {
        // Shares need two looks.
        std::thread::sleep(delay.min(Duration::from_secs(1)));
    }
    loop {
        let now = Sample::take(host, &Linux)?;
        if context.json {
            output::json(&Versioned::new(screen::to_json(&before, &now)))?;
        } else {
            output::print(&screen::render(&before, &now, view))?;
        }
        before = now;
        done += 1;
        if limit.is_some_and(|most| done >= most) {
            return Ok(());
        }
        std::thread::sleep(delay);
    }
}

/// Redraws the screen until the user leaves.
fn live(host: &mut Host, mut view: View, delay: Duration, limit: Option<u64>) -> Outcome {
    let _raw = super::console::Raw::new()?;
    let _screen = Screen::enter()?;
    let end = super::console::ending()?;
    let stdin = io::stdin();
    let mut before = Sample::take(host, &Linux)?;
    let mut now = Sample::take(host, &Linux)?;
    let (mut done, mut input) = (0, true);
    loop {
        let (rows, columns) = size();
        draw(&screen::render(&before, &now, &view), rows, columns)?;
        let timeout = Timespec::try_from(delay).ok();
        let mut fds = vec![PollFd::new(&end, PollFlags::IN)];
        if input {
            fds.push(PollFd::new(&stdin, PollFlags::IN));
        }
        let woken = match poll(&mut fds, timeout.as_ref()) {
            // A change of the window's size.
            Err(rustix::io::Errno::INTR) => continue,
            other => other.map_err(io::Error::from)?,
        };
        if !fds[0].revents().is_empty() {
            return Ok(());
        }
        if woken > 0 {
            let mut key = [0];
            match rustix::io::read(&stdin, &mut key).map_err(io::Error::from)? {
                0 => input = false,
                _ => match key[0] {
                    b'q' | b'Q' | 0x03 | 0x1b => return Ok(()),
                    b'v' | b'V' => view.vcpus ^= true,
                    b'n' | b'N' => view.networks ^= true,
                    b'b' | b'B' | b'x' | b'X' => view.disks ^= true,
                    b's' | b'S' => view.order = view.order.next(),
                    _ => {}
                },
            }
            continue;
        }
        before = std::mem::replace(&mut now, Sample::take(host, &Linux)?);
        done += 1;
        if limit.is_some_and(|most| done >= most) {
            return Ok(());
        }
    }
}

/// The terminal's second screen; the first one is back when this is dropped.
struct Screen;

impl Screen {
    fn enter() -> io::Result<Screen> {
        write("\x1b[?1049h\x1b[?25l")?;
        Ok(Screen)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // There is nobody left to tell.
        let _ = write("\x1b[?25h\x1b[?1049l");
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

fn size() -> (usize, usize) {
    let size = rustix::termios::tcgetwinsize(io::stdout());
    let size = size.map_or((24, 80), |s| (s.ws_row.into(), s.ws_col.into()));
    if size.0 == 0 || size.1 == 0 {
        (24, 80)
    } else {
        size
    }
}

/// As much of the text as fits, over what was there.
fn draw(text: &str, rows: usize, columns: usize) -> io::Result<()> {
    let mut page = String::from("\x1b[H");
    for line in text.lines().take(rows.saturating_sub(1)) {
        page.extend(line.chars().take(columns));
        page.push_str("\x1b[K\r\n");
    }
    page.push_str("\x1b[J\x1b[7mq quit  s sort  v vCPUs  n networks  b disks\x1b[0m");
    write(&page)
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Fixture, json, printed, run};

    #[test]
    fn one_list() {
        let _f = Fixture::new();
        let text = printed("top -b -i 1");
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("xentop - "), "{text}");
        assert!(lines[3].contains("NAME  STATE   CPU(sec) CPU(%)"), "{text}");
        assert_eq!(lines.len(), 7);
        assert_eq!(
            printed("top -b -i 2 -d 0.01").matches("xentop - ").count(),
            2
        );
    }

    #[test]
    fn as_json() {
        let _f = Fixture::new();
        let all = json("top -d 0.01");
        assert_eq!(all["domains"][1]["name"], "web");
        assert_eq!(all["memory_kib"]["total"], 4_194_304);
    }

    #[test]
    fn wrong_numbers() {
        let _f = Fixture::new();
        for line in ["top -d 0", "top -i x", "top -d -1"] {
            assert_eq!(run(line).0, 2, "{line}");
        }
    }
}
