//! Sets of CPUs as users write them: `0-3,^1,node:0,all`.

use xen_sys::bits::BitSet;

/// Reads a set. `nodes` has the memory node of each CPU number. CPUs that the machine does not have are left out, as by
/// Xen's `xl`; so the set may be empty.
///
/// # Errors
/// Which part cannot be understood, or names no node of this machine.
pub fn parse(text: &str, nodes: &[Option<u32>]) -> Result<BitSet, String> {
    let cpus = nodes.len() as u32;
    let mut set = BitSet::new(cpus);
    for part in text.split(',') {
        let part = part.trim();
        let (without, word) = match part.strip_prefix('^') {
            Some(word) => (true, word),
            None => (false, part),
        };
        let node = word
            .strip_prefix("nodes:")
            .or_else(|| word.strip_prefix("node:"));
        let chosen: Vec<u32> = match node {
            Some(range) => {
                let (first, last) = bounds(range, part)?;
                let on =
                    |cpu: &u32| nodes[*cpu as usize].is_some_and(|n| (first..=last).contains(&n));
                let found: Vec<u32> = (0..cpus).filter(on).collect();
                if found.is_empty() && range != "all" {
                    return Err(format!("'{part}': no CPU of this machine is on that node"));
                }
                found
            }
            None => {
                let (first, last) = bounds(word, part)?;
                (first..=last.min(cpus.saturating_sub(1))).collect()
            }
        };
        for cpu in chosen {
            if without {
                set.remove(cpu);
            } else {
                set.insert(cpu);
            }
        }
    }
    Ok(set)
}

/// `3`, `3-5` or `all`.
fn bounds(word: &str, part: &str) -> Result<(u32, u32), String> {
    if word == "all" {
        return Ok((0, u32::MAX));
    }
    let wrong = || format!("'{part}' is not a set of CPUs; 0-3,^1 or node:0 or all would be");
    let number = |text: &str| text.trim().parse::<u32>().map_err(|_| wrong());
    let (first, last) = match word.split_once('-') {
        Some((first, last)) => (number(first)?, number(last)?),
        None => (number(word)?, number(word)?),
    };
    if first > last {
        return Err(wrong());
    }
    Ok((first, last))
}

#[cfg(test)]
mod tests {
    use super::parse;

    const NODES: [Option<u32>; 6] = [Some(0), Some(0), Some(1), Some(1), None, Some(3)];

    #[test]
    fn sets() {
        for (text, expected) in [
            ("0", "0"),
            ("0-3", "0-3"),
            ("0-3,^1", "0,2-3"),
            ("all", "0-5"),
            ("all,^node:1", "0-1,4-5"),
            ("node:0", "0-1"),
            ("nodes:0-1,5", "0-3,5"),
            ("nodes:all", "0-3,5"),
            (" 1 , 2 ", "1-2"),
            ("4-900", "4-5"),
            ("77", ""),
            ("^1,1", "1"),
        ] {
            assert_eq!(parse(text, &NODES).unwrap().to_string(), expected, "{text}");
        }
    }

    #[test]
    fn errors_name_the_part() {
        for text in [
            "x", "", "1,,2", "3-1", "1-", "-1", "node:", "node:2", "^", "1 2", "all0",
        ] {
            assert!(parse(text, &NODES).is_err(), "{text}");
        }
        assert!(parse("0,1x", &NODES).unwrap_err().contains("'1x'"));
    }
}
