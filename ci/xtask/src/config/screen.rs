//! `menuconfig` on a terminal: arrow keys, Enter, `?`.

use super::menu::{Menu, Next};
use anyhow::Result;
use crossterm::event::{Event, KeyCode, KeyEventKind, KeyModifiers, read};
use crossterm::style::{Attribute, Print, SetAttribute};
use crossterm::terminal::{self, Clear, ClearType};
use crossterm::{cursor, execute, queue};
use std::io::{Write, stdout};

const KEYS: &str =
    "Up/Down  Enter or Space: choose  ?: help  Left or Esc: back  s: save and end  q: end";

/// The terminal in raw mode on its other screen; restored when dropped, whatever happens.
struct Raw;

impl Raw {
    fn enter() -> Result<Self> {
        terminal::enable_raw_mode()?;
        execute!(stdout(), terminal::EnterAlternateScreen, cursor::Hide)?;
        Ok(Self)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // If the terminal is gone there is nobody to tell.
        let _ = execute!(stdout(), cursor::Show, terminal::LeaveAlternateScreen);
        let _ = terminal::disable_raw_mode();
    }
}

/// Shows the menus until the person ends it; true if the choices are to be kept.
pub fn run(menu: &mut Menu<'_>) -> Result<bool> {
    let _raw = Raw::enter()?;
    let mut at = 0;
    // Where one was in the menus above.
    let mut above = Vec::new();
    let mut message = String::new();
    loop {
        let rows = menu.rows();
        at = at.min(rows.len().saturating_sub(1));
        let labels: Vec<&str> = rows.iter().map(|r| r.label.as_str()).collect();
        draw(&menu.title(), &labels, at, &message)?;
        let Some(key) = key()? else { return Ok(false) };
        message.clear();
        match key {
            KeyCode::Up | KeyCode::Char('k') => at = at.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => at += 1,
            KeyCode::Home => at = 0,
            KeyCode::End => at = rows.len(),
            KeyCode::Char('s') => return Ok(true),
            KeyCode::Char('q') => return Ok(false),
            KeyCode::Left | KeyCode::Esc => {
                if menu.back() {
                    at = above.pop().unwrap_or(0);
                } else {
                    message = "s saves and ends, q ends".into();
                }
            }
            KeyCode::Char('?' | 'h') => {
                if let Some(row) = rows.get(at) {
                    let text = menu.help(row);
                    let lines: Vec<&str> = text.lines().collect();
                    draw(&row.label, &lines, usize::MAX, "any key")?;
                    if key_any()?.is_none() {
                        return Ok(false);
                    }
                }
            }
            KeyCode::Enter | KeyCode::Right | KeyCode::Char(' ' | 'y' | 'n') => {
                let Some(row) = rows.get(at) else { continue };
                let title = menu.title();
                match menu.choose(row) {
                    Next::Shown => {}
                    Next::Refused(why) => message = why,
                    Next::Ask(index) => match ask(&menu.name(index), menu.config.value(index))? {
                        None => message = "not changed".into(),
                        Some(value) => message = menu.set(index, &value).err().unwrap_or_default(),
                    },
                }
                // Deeper, or back out of a choice.
                let new = menu.title();
                if new.len() > title.len() {
                    above.push(at);
                    at = 0;
                } else if new.len() < title.len() {
                    at = above.pop().unwrap_or(0);
                }
            }
            _ => message = KEYS.into(),
        }
    }
}

/// The next key, or `None` for Ctrl-C.
fn key() -> Result<Option<KeyCode>> {
    loop {
        match read()? {
            Event::Key(k) if k.kind == KeyEventKind::Press => {
                let stop =
                    k.modifiers.contains(KeyModifiers::CONTROL) && k.code == KeyCode::Char('c');
                return Ok((!stop).then_some(k.code));
            }
            Event::Resize(..) => return Ok(Some(KeyCode::Null)),
            _ => {}
        }
    }
}

fn key_any() -> Result<Option<KeyCode>> {
    loop {
        match key()? {
            Some(KeyCode::Null) => {}
            other => return Ok(other),
        }
    }
}

fn draw(title: &str, lines: &[&str], at: usize, foot: &str) -> Result<()> {
    let (columns, height) = terminal::size()?;
    let fit = |text: &str| text.chars().take(usize::from(columns)).collect::<String>();
    let room = usize::from(height).saturating_sub(4).max(1);
    let first = if at == usize::MAX {
        0
    } else {
        (at + 1).saturating_sub(room)
    };
    let mut out = stdout();
    queue!(out, Clear(ClearType::All), cursor::MoveTo(0, 0))?;
    queue!(
        out,
        SetAttribute(Attribute::Bold),
        Print(fit(title)),
        SetAttribute(Attribute::Reset)
    )?;
    for (y, (number, line)) in (2u16..).zip(lines.iter().enumerate().skip(first).take(room)) {
        queue!(out, cursor::MoveTo(0, y))?;
        if number == at {
            queue!(out, SetAttribute(Attribute::Reverse))?;
        }
        queue!(out, Print(fit(line)), SetAttribute(Attribute::Reset))?;
    }
    let foot = if foot.is_empty() { KEYS } else { foot };
    queue!(
        out,
        cursor::MoveTo(0, height.saturating_sub(1)),
        Print(fit(foot))
    )?;
    out.flush()?;
    Ok(())
}

/// Lets a value be typed; `None` for Escape.
fn ask(what: &str, old: &str) -> Result<Option<String>> {
    let mut text = old.to_owned();
    loop {
        draw(
            what,
            &[&format!("{text}_")],
            usize::MAX,
            "Enter: take it  Esc: leave it as it was",
        )?;
        match key()? {
            Some(KeyCode::Enter) => return Ok(Some(text)),
            None | Some(KeyCode::Esc) => return Ok(None),
            Some(KeyCode::Backspace) => {
                text.pop();
            }
            Some(KeyCode::Char(c)) => text.push(c),
            Some(_) => {}
        }
    }
}
