//! Whole configs: good ones, odd ones, wrong ones with what is said of them, and any characters at all.

use super::disk::{Backend, Format, device_number};
use super::domain::Action;
use super::*;
use proptest::prelude::*;

const BASE: &str = "name=\"g\"\ntype=\"pvh\"\nkernel=\"/k\"\n";

fn read(more: &str) -> Parsed {
    parse("g.cfg", &format!("{BASE}{more}"), &[]).unwrap_or_else(|e| panic!("{more}: {e}"))
}

fn wrong(more: &str) -> String {
    let result = parse("g.cfg", &format!("{BASE}{more}"), &[]);
    result.expect_err(more).to_string()
}

#[test]
fn a_usual_config() {
    let text = r#"
# A guest.
name = "web"   # its name
type = 'pvh'
kernel = "/boot/vmlinuz"; ramdisk = "/boot/initrd"
extra = "console=hvc0 \"quoted\" \x41\101"
root = "/dev/xvda1"
memory = 0x200
maxmem = 1024
vcpus = "2"
maxvcpus = 4
cpus = [ "0-3,^1",
         "node:0", ]
disk = [ '/dev/vg/web,raw,xvda,rw',
  'format=qcow2, vdev=hdc, access=ro, devtype=cdrom, backendtype=qdisk, target=/iso, with comma' ]
vif = [ 'mac=00:16:3e:00:00:01,bridge=br0,rate=10Mb/s', '' ]
on_crash = "preserve"
uuid = "00112233-4455-6677-8899-aabbccddeeff"
"#;
    let parsed = parse(
        "web.cfg",
        text,
        &["memory=256".into(), "extra+=\" quiet\"".into()],
    )
    .unwrap();
    let c = parsed.config;
    assert_eq!(parsed.warnings, [] as [String; 0]);
    assert_eq!(
        (c.name.as_str(), c.memory, c.maxmem),
        ("web", 256 << 10, 1024 << 10)
    );
    assert_eq!(
        c.cmdline,
        "root=/dev/xvda1 console=hvc0 \"quoted\" AA quiet"
    );
    assert_eq!((c.vcpus, c.maxvcpus, c.cpus.len()), (2, 4, 2));
    assert_eq!(c.disks[0].devid(), Some(51712));
    assert!(c.disks[0].writable && !c.disks[1].writable && c.disks[1].cdrom);
    assert_eq!(c.disks[1].target, "/iso, with comma");
    assert_eq!(
        (c.disks[1].format, c.disks[1].backend),
        (Format::Qcow2, Some(Backend::Qdisk))
    );
    assert_eq!(c.vifs[0].mac, Some([0, 0x16, 0x3e, 0, 0, 1]));
    assert_eq!(c.vifs[0].rate, Some((62500, 50000)));
    assert_eq!((c.vifs[0].devid, c.vifs[1].devid), (Some(0), Some(1)));
    assert_eq!(
        (c.actions.crash, c.actions.reboot),
        (Action::Preserve, Action::Restart)
    );
    assert_eq!(
        c.uuid.map(domain::uuid_text).as_deref(),
        Some("00112233-4455-6677-8899-aabbccddeeff")
    );
}

#[test]
fn oddities_of_the_grammar() {
    // Line ends of other systems, no newline at the end, a comment at the end, `;`, the last one counts.
    let c = parse(
        "x",
        "name='a';type='pvh'\r\nkernel='/k'\r\nname='b' # end",
        &[],
    )
    .unwrap()
    .config;
    assert_eq!(c.name, "b");
    assert_eq!(read("cpus=\"all\"").config.vcpus, 1);
    assert_eq!(read("disk=\"\"\nvif=['']").config.vifs.len(), 1);
    let disk = &read("disk=['phy:/dev/x,xvda,w']").config.disks[0];
    assert_eq!(disk.target, "/dev/x");
    assert_eq!(read("extra='a'\nextra+='b'").config.cmdline, "ab");
    assert_eq!(read("vcpus+=3").config.vcpus, 3);
    assert_eq!(read("memory=010").config.memory, 8 << 10);
}

#[test]
fn unknown_and_idle_settings_are_warned_of() {
    let warnings = read("memroy=3\nzzzzzz=1\nvnc=1\nslice=3").warnings;
    assert_eq!(
        warnings,
        [
            "g.cfg:7:7: 'slice' has no effect: it belongs to schedulers that are not built",
            "g.cfg:4:1: unknown setting 'memroy'; did you mean 'memory'?",
            "g.cfg:6:1: 'vnc' has no effect: only HVM guests have it",
            "g.cfg:5:1: unknown setting 'zzzzzz'",
        ]
    );
}

#[test]
fn errors_name_the_place_and_the_cause() {
    for (more, expected) in [
        (
            "memory=512M",
            "g.cfg:4:11: 'M' cannot stand here: names of settings are lower case, and strings need quotes",
        ),
        (
            "memory=-1",
            "g.cfg:4:8: '-' cannot stand here: only strings may contain it, and numbers have no sign",
        ),
        (
            "extra=quiet",
            "g.cfg:4:7: 'quiet' needs quotes: extra=\"quiet\"",
        ),
        ("extra=\"quiet", "g.cfg:4:7: this string has no closing \""),
        ("extra=\"a\nb\"", "g.cfg:4:7: this string has no closing \""),
        (
            "extra='\\q'",
            "g.cfg:4:8: unknown escape: a backslash goes before a b f n r t v, a quote, a backslash or a number from 1 to octal 177",
        ),
        (
            "disk=[ 'a' 'b' ]",
            "g.cfg:4:12: ',' or ']' expected instead of \"b\"",
        ),
        ("disk=[ , ]", "g.cfg:4:8: a value is missing before ','"),
        (
            "disk=[ 'a',\n",
            "g.cfg:5:1: a number, a string or a list expected instead of the end of the line",
        ),
        (
            "memory",
            "g.cfg:4:7: '=' or '+=' after 'memory' expected instead of the end of the line",
        ),
        (
            "memory=1 2",
            "g.cfg:4:10: the end of the line after 'memory' expected instead of '2'",
        ),
        (
            "= 3",
            "g.cfg:4:1: a line begins with the name of a setting, not with '='",
        ),
        (
            "memory=[1]",
            "g.cfg:4:8: 'memory' must be a number, not a list",
        ),
        (
            "memory='x'",
            "g.cfg:4:8: 'memory' must be a number, not 'x'",
        ),
        (
            "memory=0",
            "g.cfg:4:8: memory=0 is out of range: 1 to 12582912",
        ),
        (
            "vcpus=129",
            "g.cfg:4:7: vcpus=129 is out of range: 1 to 128",
        ),
        (
            "vcpus=4\nmaxvcpus=2",
            "g.cfg:5:10: maxvcpus=2 is less than vcpus=4",
        ),
        (
            "memory=64\nmaxmem=32",
            "g.cfg:5:8: maxmem=32 is less than memory=64",
        ),
        (
            "name=['a']",
            "g.cfg:4:6: 'name' must be a string, not a list",
        ),
        (
            "name='12'",
            "g.cfg:4:6: '12' is no name of a domain: no '/', not only digits",
        ),
        (
            "type='hvm'",
            "g.cfg:4:6: type=\"hvm\" cannot be built: only \"pvh\"",
        ),
        (
            "on_crash='explode'",
            "g.cfg:4:10: unknown action on_crash=\"explode\": destroy, restart, rename-restart, preserve, coredump-destroy, coredump-restart, soft-reset",
        ),
        (
            "disk=['/dev/x']",
            "g.cfg:4:7: disk '/dev/x' has no name in the guest: write target,format,vdev,access, for example /dev/vg/guest,raw,xvda,rw",
        ),
        (
            "disk=['/a,raw,zzz,rw']",
            "g.cfg:4:7: 'zzz' is no disk name: xvda, sda1, hdc or d0p1 are",
        ),
        (
            "disk=['/a,foo,xvda,rw']",
            "g.cfg:4:7: unknown disk format 'foo': raw, qcow2, qcow, vhd, qed or empty",
        ),
        (
            "disk=['/a,raw,xvda','/b,raw,xvda']",
            "g.cfg:4:21: two disks are called xvda",
        ),
        (
            "vif=['mac=1']",
            "g.cfg:4:6: '1' is no hardware address such as 00:16:3e:01:23:45",
        ),
        (
            "vif=['mac=01:00:00:00:00:00']",
            "g.cfg:4:6: 01:00:00:00:00:00 is the address of a group, not of a card",
        ),
        (
            "vif=['speed=1']",
            "g.cfg:4:6: unknown setting 'speed' of a network interface",
        ),
        (
            "cpus='3-1'",
            "g.cfg:4:6: cpus: the range '3-1' ends before it begins",
        ),
        (
            "pci=['01:00.0']",
            "g.cfg:4:5: leave 'pci' out: PVH guests get no PCI devices, their ports and memory",
        ),
        (
            "bootloader='pygrub'",
            "g.cfg:4:12: 'bootloader' looks for the kernel on the first disk: add disk=[\"...\"]",
        ),
        ("uuid='1-2'", "g.cfg:4:6: '1-2' is no UUID"),
        (
            "extra=[1]\nextra+='x'",
            "g.cfg:5:1: 'extra' is a list, to which a string cannot be appended",
        ),
    ] {
        assert_eq!(wrong(more), expected);
    }
}

#[test]
fn what_is_missing_is_said() {
    let error = |text: &str| parse("g.cfg", text, &[]).unwrap_err().to_string();
    assert!(error("").starts_with("g.cfg: only PVH guests can be built: add type=\"pvh\""));
    assert_eq!(
        error("type='pvh'"),
        "g.cfg: the domain has no name: add name=\"...\""
    );
    assert!(error("type='pvh'\nname='x'").contains("has no kernel"));
}

#[test]
fn a_word_of_the_command_line_is_named() {
    let error = parse("g.cfg", BASE, &["memory=x".into()]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "command line, 'memory=x':1:8: 'x' needs quotes: memory=\"x\""
    );
}

#[test]
fn numbers_of_disks() {
    for (name, number) in [
        ("xvda", Some(0xca00)),
        ("xvdb1", Some(0xca11)),
        ("xvdp15", Some(0xcaff)),
        ("xvdq", Some(0x1000_1000)),
        ("xvda16", Some(0x1000_0010)),
        ("xvdaa", Some(0x1000_1a00)),
        ("sda", Some(0x800)),
        ("sdp15", Some(0x8ff)),
        ("sdq", None),
        ("hda", Some(0x300)),
        ("hdd1", Some(0x1641)),
        ("d0", Some(0xca00)),
        ("d2p3", Some(0xca23)),
        ("51712", Some(0xca00)),
        ("0xca00", Some(0xca00)),
        ("xvda0", None),
        ("xvd", None),
        ("", None),
        ("xvdzzzzzzzzzzzzzz", None),
        ("xvda99999999999", None),
    ] {
        assert_eq!(device_number(name), number, "{name}");
    }
}

/// A quick slice by default, a long run with `XENOLITH_CASES`.
fn cases(quick: u32) -> ProptestConfig {
    let wanted = std::env::var("XENOLITH_CASES").ok();
    ProptestConfig::with_cases(wanted.and_then(|n| n.parse().ok()).unwrap_or(quick))
}

/// Words and marks that configs are made of, in any order.
fn soup() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        Just("name"),
        Just("type"),
        Just("kernel"),
        Just("disk"),
        Just("vif"),
        Just("memory"),
        Just("cpus"),
        Just("="),
        Just("+="),
        Just("["),
        Just("]"),
        Just(","),
        Just("\n"),
        Just(";"),
        Just("#"),
        Just("'pvh'"),
        Just("'x'"),
        Just("12"),
        Just("0x1f"),
        Just("'a,raw,xvda,rw'"),
        Just("\"mac=00:16:3e:00:00:01,rate=1Mb/s@1ms\""),
        Just("'0-3,^1'"),
        Just(" "),
        Just("\\"),
        Just("'"),
        Just("name='n'\ntype='pvh'\nkernel='/k'\n"),
    ];
    proptest::collection::vec(part, 0..40).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(cases(200))]

    /// Whatever is in the file, the answer is a config or an error with a place in it.
    #[test]
    fn any_text_is_answered(text in prop_oneof![soup(), any::<String>()], word in soup()) {
        if let Err(error) = parse("f", &text, &[word]) {
            let error = error.to_string();
            prop_assert!(!error.contains('\n'), "{error}");
            prop_assert!(error.starts_with("f:") || error.starts_with("command line, "));
        }
    }

    #[test]
    fn any_disk_and_interface_is_answered(text in "[a-z0-9:=,./ -]{0,40}") {
        let _ = disk::parse(&text);
        let _ = vif::parse(&text);
        let _ = pins::parse(&text);
        let _ = device_number(&text);
    }

    /// A string comes out as it went in, whatever is in it.
    #[test]
    fn strings_survive(text in "[^\0]{1,40}") {
        let quoted: String = text.chars().map(|c| match c {
            '\n' => "\\n".to_owned(),
            '"' | '\\' => format!("\\{c}"),
            c => c.to_string(),
        }).collect();
        let parsed = parse("f", &format!("{BASE}extra=\"{quoted}\"\n"), &[]).unwrap();
        prop_assert_eq!(parsed.config.cmdline, text);
    }
}

#[test]
fn a_prefix_takes_the_place_of_the_format() {
    for text in [
        "phy:/dev/x,xvda,w",
        "file:/x.img,xvda,rw",
        "tap:aio:/x.img,xvda",
        "format=raw,/x.img,xvda,w",
        "/x.img,,xvda,w",
    ] {
        let disk = super::disk::parse(text).unwrap();
        assert_eq!(
            (disk.vdev.as_str(), disk.format),
            ("xvda", Format::Raw),
            "{text}"
        );
        assert!(disk.writable);
    }
    assert_eq!(
        super::disk::parse("qcow2:/x,hda,r").unwrap().format,
        Format::Qcow2
    );
    assert!(super::disk::parse("phy:/dev/x,raw,xvda,w").is_err());
}
