//! Commands of `xenstore-control`.

use super::host::Host;
use super::number::decimal;
use super::requests::words;
use super::server::Server;
use std::fmt::Write;
use xen_abi::{DomId, Errno};

/// Commands and their arguments.
const COMMANDS: &[(&str, &str)] = &[
    ("check", ""),
    ("help", ""),
    ("log", "on|off"),
    ("memreport", ""),
    ("print", "<string>"),
    ("quota", "[set <name> <val>|<domid>]"),
];

impl Server {
    /// Does what the control domain's administrator asks for; the reply is text for him.
    pub(super) fn control(
        &mut self,
        payload: &[u8],
        host: &mut dyn Host,
    ) -> Result<Vec<u8>, Errno> {
        let words = words(payload);
        let words: Vec<&str> = words
            .iter()
            .map(|w| str::from_utf8(w))
            .collect::<Result<_, _>>()
            .map_err(|_| Errno::EINVAL)?;
        let mut text = match words[..] {
            ["check"] => {
                let faults = self.tree.faults();
                faults.iter().for_each(|f| host.log(&format!("check: {f}")));
                if faults.is_empty() {
                    "OK".into()
                } else {
                    format!("{} faults, see the log", faults.len())
                }
            }
            ["help"] => COMMANDS
                .iter()
                .map(|(name, args)| format!("{name}\t{args}\n"))
                .collect(),
            ["log", "on"] => self.trace(true),
            ["log", "off"] => self.trace(false),
            ["memreport"] => {
                host.log(&format!(
                    "{} nodes, {} connections, {} watches",
                    self.tree.len(),
                    self.conns.len(),
                    self.watches.all().len()
                ));
                "OK".into()
            }
            ["print", line] => {
                host.log(&format!("print: {}", line.escape_debug()));
                "OK".into()
            }
            ["quota"] => self.quota_table(),
            ["quota", "set", name, limit] => {
                let limit = decimal(limit.as_bytes()).ok_or(Errno::EINVAL)?;
                if !self.quotas.set(name, limit) {
                    return Err(Errno::EINVAL);
                }
                "OK".into()
            }
            ["quota", domid] => {
                self.usage(DomId(decimal(domid.as_bytes()).ok_or(Errno::EINVAL)?))?
            }
            _ => return Err(Errno::EINVAL),
        };
        text.push('\0');
        Ok(text.into())
    }

    fn trace(&mut self, on: bool) -> String {
        self.tracing = on;
        "OK".into()
    }

    fn quota_table(&self) -> String {
        let rows = self.quotas.iter();
        rows.fold("Quota settings:\n".into(), |mut text, (quota, limit)| {
            let _ = writeln!(
                text,
                "{:<17}: {limit:>8} {}",
                quota.name(),
                quota.description()
            );
            text
        })
    }

    fn usage(&self, domid: DomId) -> Result<String, Errno> {
        let known = self.domains.0.get(&domid).ok_or(Errno::ENOENT)?;
        let link = known.as_ref();
        let conn = link.and_then(|l| self.conns.get(&l.conn));
        let owned = self.tree.owned_by(domid);
        let rows = [
            ("nodes", owned.nodes),
            ("watches", link.map_or(0, |l| self.watches.count(l.conn))),
            ("transactions", conn.map_or(0, |c| c.transactions.len())),
            ("outstanding", conn.map_or(0, |c| c.outbox.replies())),
            (
                "memory",
                owned.bytes + conn.map_or(0, |c| c.transactions.values().map(|t| t.bytes()).sum()),
            ),
        ];
        Ok(rows.iter().fold(
            format!("Domain {}:\n", domid.0),
            |mut text, (name, value)| {
                let _ = writeln!(text, "{name:<16}: {value:>8}");
                text
            },
        ))
    }
}
