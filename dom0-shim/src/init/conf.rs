//! `/etc/dom0-init.conf`: steps in the order in which they are done, one a line.

use std::net::Ipv4Addr;

/// Where the file is.
pub const PATH: &str = "/etc/dom0-init.conf";
/// What is done without such a file.
pub const DEFAULT: &str = "hostname dom0\nservices\nshell /bin/sh -l\n";
/// The services of a `services` line without names.
pub const SERVICES: [&str; 3] = ["xenstored", "xenconsoled", "devd"];

/// A step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Name the machine.
    Hostname(String),
    /// Load a module.
    Module(String),
    /// Make a bridge, with an address and the length of its prefix, and these ports.
    Bridge(String, Option<(Ipv4Addr, u32)>, Vec<String>),
    /// Start services, and prepare domain 0 once the store is there. Name and arguments of each.
    Services(Vec<Vec<String>>),
    /// Run a program and wait for it.
    Run(Vec<String>),
    /// A shell on the console, again and again.
    Shell(Vec<String>),
}

/// Reads the file.
///
/// # Errors
/// The number of a line and what is wrong with it.
pub fn parse(text: &str) -> Result<Vec<Step>, String> {
    let mut steps = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let Some((word, rest)) = words.split_first().filter(|(w, _)| !w.starts_with('#')) else {
            continue;
        };
        steps.push(step(word, rest).map_err(|what| format!("line {}: {what}", number + 1))?);
    }
    Ok(steps)
}

fn step(word: &str, rest: &[String]) -> Result<Step, String> {
    let one = || match rest {
        [one] => Ok(one.clone()),
        _ => Err(format!("{word} takes one word")),
    };
    let some = || match rest {
        [] => Err(format!("{word} needs a program")),
        rest => Ok(rest.to_vec()),
    };
    Ok(match word {
        "hostname" => Step::Hostname(one()?),
        "module" => Step::Module(one()?),
        "bridge" => bridge(rest)?,
        "services" => Step::Services(services(rest)),
        "run" => Step::Run(some()?),
        "shell" => Step::Shell(some()?),
        _ => {
            return Err(format!(
                "{word}: there are hostname, module, bridge, services, run, shell"
            ));
        }
    })
}

fn bridge(words: &[String]) -> Result<Step, String> {
    let (name, mut ports) = words.split_first().ok_or("bridge needs a name")?;
    let mut address = None;
    if let Some((first, rest)) = ports.split_first()
        && let Some((host, bits)) = first.split_once('/')
    {
        let bits = bits.parse().ok().filter(|b| *b <= 32);
        let both = host.parse().ok().zip(bits);
        address = Some(both.ok_or_else(|| format!("{first} is no address like 192.168.1.1/24"))?);
        ports = rest;
    }
    Ok(Step::Bridge(name.clone(), address, ports.to_vec()))
}

/// Words that begin with a dash belong to the service before them.
fn services(words: &[String]) -> Vec<Vec<String>> {
    let mut services: Vec<Vec<String>> = Vec::new();
    for word in words {
        match services.last_mut().filter(|_| word.starts_with('-')) {
            Some(service) => service.push(word.clone()),
            None => services.push(vec![word.clone()]),
        }
    }
    if services.is_empty() {
        services = SERVICES.map(|s| vec![s.to_owned()]).to_vec();
    }
    services
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn all_steps() {
        let text = "# dom0\n\nhostname box\nmodule virtio_net\nbridge xenbr0 192.168.77.1/24 eth0 eth1\nbridge b\n\
            services xenstored -V xenconsoled --log=none\nrun /bin/true x\nshell /bin/sh -l\n";
        let expected = [
            Step::Hostname("box".into()),
            Step::Module("virtio_net".into()),
            Step::Bridge(
                "xenbr0".into(),
                Some((Ipv4Addr::new(192, 168, 77, 1), 24)),
                words("eth0 eth1"),
            ),
            Step::Bridge("b".into(), None, vec![]),
            Step::Services(vec![words("xenstored -V"), words("xenconsoled --log=none")]),
            Step::Run(words("/bin/true x")),
            Step::Shell(words("/bin/sh -l")),
        ];
        assert_eq!(parse(text).unwrap(), expected);
        assert!(parse(DEFAULT).unwrap().contains(&Step::Services(
            SERVICES.map(|s| vec![s.to_owned()]).to_vec()
        )));
    }

    #[test]
    fn wrong_lines() {
        for (text, what) in [
            ("a\nb", "line 1: a: there are"),
            ("hostname x\nhostname", "line 2: hostname takes one word"),
            ("run", "line 1: run needs a program"),
            ("bridge", "line 1: bridge needs a name"),
            ("bridge b 1.2.3/24", "line 1: 1.2.3/24 is no address"),
            ("bridge b 1.2.3.4/33", "line 1: 1.2.3.4/33 is no address"),
        ] {
            assert!(parse(text).unwrap_err().starts_with(what), "{text}");
        }
    }
}
