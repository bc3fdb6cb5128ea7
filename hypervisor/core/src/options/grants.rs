//! `gnttab=`, `gnttab_max_frames=` and `gnttab_max_maptrack_frames=`.

use alloc::format;
use alloc::string::String;

use super::Options;
use super::list;
use super::value::Arg;
use crate::grant::HANDLES_PER_FRAME;

/// Most shared frames that can be asked for. With entries of version 1 these are half a million grants, 24 times what a guest
/// with hundreds of disks uses; Xen takes more, and nothing there works with it.
const MAX_FRAMES: u32 = 1024;
/// Most maptrack frames: 4 million mappings. A handle needs memory when it is first used.
const MAX_MAPTRACK: u32 = 16384;

/// `gnttab=`: the highest version; what Xen allows beside plain grants is not there, so that only its refusal can be asked for.
pub fn kinds(o: &mut Options, arg: Arg<'_>) -> Result<(), String> {
    list::each(arg.text()?, |item| {
        if let Some(version) = item.name.strip_prefix("max-ver:") {
            o.grants.max_version = match version {
                "1" => 1,
                "2" => 2,
                _ => return Err(format!("{version:?} is not a version of grants (1 or 2)")),
            };
            return Ok(true);
        }
        match item.name {
            "transitive" | "transfer" if item.on => {
                Err(format!("{} grants are not supported", item.name))
            }
            "transitive" | "transfer" => Ok(true),
            _ => Ok(false),
        }
    })
}

/// `gnttab_max_frames=`.
pub fn frames(o: &mut Options, arg: Arg<'_>) -> Result<(), String> {
    o.grants.max_frames = within(arg, 1, MAX_FRAMES)?;
    Ok(())
}

/// `gnttab_max_maptrack_frames=`.
pub fn maptrack(o: &mut Options, arg: Arg<'_>) -> Result<(), String> {
    o.grants.max_handles = within(arg, 0, MAX_MAPTRACK)? * HANDLES_PER_FRAME;
    Ok(())
}

fn within(arg: Arg<'_>, least: u32, most: u32) -> Result<u32, String> {
    let n = arg.number()?;
    if (least..=most).contains(&n) {
        Ok(n)
    } else {
        Err(format!("{n} is not in {least} to {most}"))
    }
}
