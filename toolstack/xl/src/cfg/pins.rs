//! Lists of CPUs in words: `0-3,^1`, `all`, `node:0-1` (Xen's `xl.cfg(5)`, `cpus`).

/// A part of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Every CPU.
    All,
    /// CPUs with these numbers.
    Cpus(u32, u32),
    /// CPUs of nodes with these numbers.
    Nodes(u32, u32),
}

/// CPUs to use; the parts count in order, later ones override.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuList(
    /// Whether a part is taken away, and the part.
    pub Vec<(bool, Part)>,
);

/// Highest number of a CPU or node that makes sense.
const MOST: u32 = 0xffff;

/// Reads a list.
///
/// # Errors
/// What is wrong.
pub fn parse(text: &str) -> Result<CpuList, String> {
    let mut parts = Vec::new();
    for word in text.split(',').map(str::trim) {
        let (minus, rest) = match word.strip_prefix('^') {
            Some(rest) => (true, rest.trim_start()),
            None => (false, word),
        };
        let (nodes, rest) = match rest
            .strip_prefix("nodes:")
            .or_else(|| rest.strip_prefix("node:"))
        {
            Some(rest) => (true, rest),
            None => (false, rest),
        };
        // A hat may also stand behind the colon.
        let (minus, rest) = match rest.strip_prefix('^') {
            Some(rest) if nodes && !minus => (true, rest),
            _ => (minus, rest),
        };
        if rest == "all" {
            parts.push((minus, Part::All));
            continue;
        }
        let (first, last) = rest.split_once('-').unwrap_or((rest, rest));
        let number = |t: &str| t.trim().parse::<u32>().ok().filter(|n| *n <= MOST);
        let (Some(first), Some(last)) = (number(first), number(last)) else {
            return Err(format!(
                "'{word}' is neither a CPU nor a range such as 0-3, ^1, node:0 or all"
            ));
        };
        if first > last {
            return Err(format!("the range '{word}' ends before it begins"));
        }
        let part = if nodes {
            Part::Nodes(first, last)
        } else {
            Part::Cpus(first, last)
        };
        parts.push((minus, part));
    }
    Ok(CpuList(parts))
}

impl CpuList {
    /// The CPUs of a machine; `node_of[n]` is the node of CPU n.
    pub fn cpus(&self, node_of: &[u32]) -> Vec<u32> {
        let mut chosen = vec![false; node_of.len()];
        // A list that only takes away starts from all.
        if self.0.first().is_some_and(|(minus, _)| *minus) {
            chosen.fill(true);
        }
        for (minus, part) in &self.0 {
            for (cpu, node) in node_of.iter().enumerate() {
                let hit = match part {
                    Part::All => true,
                    Part::Cpus(first, last) => (*first..=*last).contains(&(cpu as u32)),
                    Part::Nodes(first, last) => (first..=last).contains(&node),
                };
                if hit {
                    chosen[cpu] = !minus;
                }
            }
        }
        let numbers = chosen.iter().enumerate().filter(|(_, c)| **c);
        numbers.map(|(cpu, _)| cpu as u32).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists() {
        let nodes = [0, 0, 1, 1];
        for (text, cpus) in [
            ("0-3,^1", vec![0, 2, 3]),
            ("all", vec![0, 1, 2, 3]),
            ("node:1", vec![2, 3]),
            ("nodes:0-1,^node:0", vec![2, 3]),
            ("all,^nodes:1,3", vec![0, 1, 3]),
            ("^2", vec![0, 1, 3]),
            ("2", vec![2]),
            ("9", vec![]),
        ] {
            assert_eq!(parse(text).unwrap().cpus(&nodes), cpus, "{text}");
        }
        for bad in ["", "x", "3-1", "1-", "-1", "0,,1", "node:", "70000"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
