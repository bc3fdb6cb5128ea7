//! `create` as far as it goes without a hypervisor, and the commands that hold or end domains, on a machine of numbers.

use super::fixture::{Fixture, printed, run};
use kernel_image::samples::{Builder, lz4, wrap};
use std::fs;
use std::path::PathBuf;

/// A directory of a test's own, removed with it.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Dir {
        let dir = std::env::temp_dir().join(format!("xl-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        Dir(dir)
    }

    fn file(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.0.join(name);
        fs::write(&path, bytes).unwrap();
        path.display().to_string()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_dry_run_shows_the_config() {
    let dir = Dir::new("dry");
    let elf = Builder::small().build();
    let mut packed = lz4(&elf);
    packed.extend((elf.len() as u32).to_le_bytes());
    let kernel = dir.file("vmlinuz", &wrap(&packed));
    let text = format!("type='pvh'\nname='g'\nkernel='{kernel}'\nmemory=64\n");
    let config = dir.file("g.cfg", text.as_bytes());
    for line in [
        format!("create -qn {config} vcpus=3"),
        format!("-N create vcpus=3 -q -f {config}"),
    ] {
        let value: serde_json::Value = serde_json::from_str(&printed(&line)).unwrap();
        assert_eq!(value["b_info"]["kernel"], kernel);
        assert_eq!(value["b_info"]["avail_vcpus"], serde_json::json!([0, 1, 2]));
        assert_eq!(value["b_info"]["target_memkb"], 65536);
    }
    let (code, text) = run(&format!("create -n {config} memory=16"));
    assert_eq!(
        (code, text.as_str()),
        (3, "g: the kernel needs at least memory=17")
    );
    let (code, text) = run(&format!("create -n {config} kernel='/none'"));
    assert_eq!(code, 3);
    assert!(text.starts_with("/none: "), "{text}");
    let script = dir.file("script", b"#!/bin/sh\n");
    let (code, text) = run(&format!("create -n {config} kernel='{script}'"));
    assert_eq!(
        (code, text),
        (
            3,
            format!("{script}: neither a Linux bzImage nor an ELF file")
        )
    );
}

#[test]
fn a_dry_run_asks_the_boot_loader() {
    use std::os::unix::fs::PermissionsExt;
    let dir = Dir::new("loader");
    let kernel = dir.file("kernel", &Builder::small().build());
    let script = format!(
        "#!/bin/sh\nfor w; do case $w in --output=*) printf 'kernel {kernel}\\0args a' >${{w#*=}};; esac; done\n"
    );
    let loader = dir.file("loader", b"");
    crate::bootloader::program(loader.as_ref(), &script);
    let text = format!(
        "type='pvh'\nname='g'\nmemory=64\nbootloader='{loader}'\ndisk=['/x.img,raw,xvda,w']\n"
    );
    let config = dir.file("g.cfg", text.as_bytes());
    let value: serde_json::Value =
        serde_json::from_str(&printed(&format!("create -qn {config}"))).unwrap();
    assert_eq!(value["b_info"]["bootloader"], loader);
    // Its kernel is looked at.
    let (code, text) = run(&format!("create -qn {config} memory=16"));
    assert!(code != 0 && text.contains("memory=17"), "{text}");
    fs::set_permissions(&loader, fs::Permissions::from_mode(0o644)).unwrap();
    let (code, text) = run(&format!("create -qn {config}"));
    assert!(code != 0 && text.starts_with("bootloader "), "{text}");
}

#[test]
fn what_is_wrong_with_a_create_is_one_line() {
    let dir = Dir::new("wrong");
    let config = dir.file("g.cfg", b"type='pvh'\nname='g'\nmemory=x\n");
    assert_eq!(
        run(&format!("create {config}")),
        (1, format!("{config}:3:8: 'x' needs quotes: memory=\"x\""))
    );
    let (code, text) = run(&format!("create {config} other.cfg"));
    assert_eq!(
        (code, text.contains("two config files")),
        (2, true),
        "{text}"
    );
    assert_eq!(run("create").0, 2);
    assert_eq!(run("create --nope x").0, 2);
    assert_eq!(run("create -q /none/x.cfg").0, 3);
}

#[test]
fn a_domain_is_asked_held_and_let_go() {
    let fixture = Fixture::new();
    fixture.store.set("/local/domain/3/control/shutdown", "");
    printed("shutdown web");
    assert_eq!(
        fixture
            .store
            .get("/local/domain/3/control/shutdown")
            .as_deref(),
        Some("poweroff")
    );
    printed("reboot 3");
    assert_eq!(
        fixture
            .store
            .get("/local/domain/3/control/shutdown")
            .as_deref(),
        Some("reboot")
    );
    let (code, text) = run("shutdown old");
    assert_eq!(
        (code, text.contains("cannot be asked")),
        (1, true),
        "{text}"
    );
    printed("shutdown -F old");
    assert_eq!(fixture.machine.borrow().log, ["trigger 3 of d12v0"]);
    assert_eq!(run("shutdown").0, 2);
    assert_eq!(run("shutdown -a web").0, 2);
    assert_eq!(run("shutdown 0"), (1, "cannot shutdown domain 0".into()));
    // All but dom0; the one that cannot be asked is named.
    let (code, text) = run("shutdown -a");
    assert_eq!(
        (code, text.starts_with("domain 12 cannot be asked")),
        (1, true),
        "{text}"
    );

    let paused = || fixture.machine.borrow().domains[&3].info.flags & 8 != 0;
    printed("pause web");
    assert!(paused());
    printed("unpause web");
    assert!(!paused());
    assert_eq!(run("destroy 0"), (1, "cannot destroy domain 0".into()));
    assert_eq!(run("pause nobody").0, 1);
}
