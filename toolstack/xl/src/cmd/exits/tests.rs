//! Whole command lines against files of the hypervisor's.

use crate::cmd::fixture::{Fixture, json, printed, run};

const DOM0: &str = "format 1\ntsc_khz 2400000\nexit schedule 12 24000 10:11 11:1\nexit cpuid 260 130000 8:200 9:60\n\
                    exit halt 34638 700000000 14:34638\ninject 0xf3 64067\ninject 0x02 1\n";
const DOM0_1: &str = "format 1\ntsc_khz 2400000\nexit halt 2 4096 10:1 11:1\nnews of a later version\ninject 0xf3 3\n";
const UNTIMED: &str = "format 1\ntsc_khz 1000000\nexit hypercall 140998 0\nexit interrupt-window 82733 0\n\
                       inject 0xf3 64067\n";

fn fixture() -> Fixture {
    let f = Fixture::new();
    let files = [
        ("/exits/0/0", DOM0),
        ("/exits/0/1", DOM0_1),
        ("/exits/3/0", UNTIMED),
        (
            "/interrupts/0",
            "format 1\nvectors_used 5\nvectors 176\nspurious 1\nicr_writes 77\nposted_notifications 10\n\
             posted_turns 32\nposted_interrupts 160\nposted_stray 0\nexits_settled 25\nexits_repaired 2\n",
        ),
    ];
    for (path, text) in files {
        f.machine
            .borrow_mut()
            .files
            .insert(path.into(), text.into());
    }
    f
}

/// A file with what a command prints as JSON.
fn saved(name: &str, line: &str) -> String {
    let path = std::env::temp_dir().join(format!("xl-exits-{}-{name}.json", std::process::id()));
    std::fs::write(&path, printed(&format!("{line} --json"))).unwrap();
    path.to_str().unwrap().into()
}

#[test]
fn text_with_and_without_times() {
    let _f = fixture();
    assert_eq!(
        printed("exits"),
        "\
Domain-0 (0), 2 vCPUs
       count  mean cycles   50 % below   99 % below  event
         260          500          512         1024  cpuid
       34640        20207        32768        32768  halt
          12         2000         2048         4096  schedule
           1                                         injected 0x02
       64070                                         injected 0xf3
       64071                                         all injections
       34900                                         all exits

web (3), 1 vCPU
       count  event
      140998  hypercall
       82733  interrupt-window
       64067  injected 0xf3
       64067  all injections
      223731  all exits
"
    );
    assert_eq!(printed("exits 3"), printed("exits web"));
    assert_eq!(
        printed("exits 0 --vcpus --histogram")
            .split("\n\n")
            .last()
            .unwrap(),
        "\
Domain-0 (0), vCPU 1
       count  mean cycles   50 % below   99 % below  event
           2         2048         2048         4096  halt
           1                                           of them below 2048
           1                                           of them below 4096
           3                                         injected 0xf3
           3                                         all injections
           2                                         all exits
"
    );
}

#[test]
fn json_has_everything() {
    let _f = fixture();
    let all = json("exits");
    assert_eq!(
        (&all["version"], &all["tsc_khz"]),
        (&1.into(), &1_000_000.into())
    );
    let dom0 = &all["domains"][0];
    let expected = serde_json::json!({
        "vcpu": 1, "exits_total": 2, "injected_total": 3,
        "exits": [{
            "reason": "halt", "count": 2, "cycles": 4096,
            "histogram": [{"log2": 10, "count": 1}, {"log2": 11, "count": 1}],
        }],
        "schedule": null,
        "injected": [{"vector": 243, "count": 3}],
    });
    assert_eq!(dom0["vcpus"][1], expected);
    assert_eq!(
        (&dom0["name"], &dom0["exits_total"]),
        (&"Domain-0".into(), &34_900.into())
    );
    assert_eq!(dom0["schedule"]["count"], 12);
    let untimed = &all["domains"][1]["exits"][0];
    assert_eq!(
        (&untimed["cycles"], &untimed["histogram"]),
        (&serde_json::Value::Null, &serde_json::Value::Null)
    );
}

/// The table of the series that began it: one domain before and after a change.
#[test]
fn before_and_after() {
    let f = fixture();
    let before = saved("before", "exits web");
    f.machine.borrow_mut().files.insert(
        "/exits/3/0".into(),
        "format 1\ntsc_khz 1000000\nexit cpuid 260 0\nexit hypercall 77208 0\nexit interrupt-window 222 0\n\
         inject 0xf3 174\n"
            .into(),
    );
    let after = saved("after", "exits web");
    let diff = format!("exits --diff {before} {after}");
    assert_eq!(
        printed(&diff),
        "\
web (3), 1 vCPU
      before        after     change  event
           0          260             cpuid
      140998        77208    -45.2 %  hypercall
       82733          222    -99.7 %  interrupt-window
       64067          174    -99.7 %  injected 0xf3
       64067          174    -99.7 %  all injections
      223731        77690    -65.3 %  all exits
"
    );
    let value = json(&diff);
    assert_eq!(value["comparison"][0]["events"][1]["change_percent"], -45.2);
    assert_eq!(
        value["comparison"][0]["events"][0]["change_percent"],
        serde_json::Value::Null
    );
    // With several domains in the files, those that are in both.
    let all = saved("all", "exits");
    let both = printed(&format!("exits --diff {all} {all}"));
    assert!(
        both.contains("Domain-0 (0)") && both.contains("web (3)"),
        "{both}"
    );
    let (code, text) = run(&format!("exits --diff {all} {after} nobody"));
    assert!(code == 1 && text.contains("no domain is in both"), "{text}");
    for file in [before, after, all] {
        std::fs::remove_file(file).unwrap();
    }
}

#[test]
fn since_a_file_and_for_a_time() {
    let f = fixture();
    let file = saved("since", "exits");
    f.machine.borrow_mut().files.insert(
        "/exits/0/1".into(),
        DOM0_1.replace("halt 2 4096 10:1 11:1", "halt 5 10096 10:1 11:4"),
    );
    let since = printed(&format!("exits --since {file} Domain-0"));
    assert_eq!(
        since,
        "\
Domain-0 (0), 2 vCPUs
       count  mean cycles   50 % below   99 % below  event
           3         2000         4096         4096  halt
           0                                         all injections
           3                                         all exits
"
    );
    // Fewer than before: it was started anew under the same number.
    f.machine.borrow_mut().files.insert(
        "/exits/3/0".into(),
        "format 1\ntsc_khz 1\nexit hypercall 9 0\n".into(),
    );
    assert!(printed(&format!("exits --since {file} web")).contains("           9  hypercall"));
    std::fs::remove_file(file).unwrap();
    assert!(printed("exits -T 0.01 web").ends_with("           0  all exits\n"));
}

#[test]
fn interrupts_of_cpus() {
    let _f = fixture();
    assert_eq!(
        printed("exits --cpus"),
        "\
CPU  vectors  spurious  ICR writes  posted messages  notifications     turns     stray    settled  repaired
  0    5/176         1          77              160             10        32         0         25         2
"
    );
    assert_eq!(json("exits --cpus")["cpus"][0]["posted_turns"], 32);
}

#[test]
fn what_cannot_be_read() {
    let f = fixture();
    for (line, code, word) in [
        ("exits 9", 1, "'9' does not exist"),
        ("exits nobody", 1, "nobody is an invalid domain identifier"),
        ("exits -T 0", 2, "above 0"),
        ("exits -T 1 --since x", 2, "exclude"),
        ("exits --since /nonexistent", 1, "/nonexistent"),
        ("exits --diff /dev/null", 2, "two files"),
        (
            "exits --diff /dev/null /dev/null",
            1,
            "made by 'xl exits --json'",
        ),
    ] {
        let (got, text) = run(line);
        assert!(
            got == code && text.contains(word),
            "xl {line}: {got} {text}"
        );
    }
    let put = |text: &str| {
        let mut machine = f.machine.borrow_mut();
        machine.files.insert("/exits/3/0".into(), text.into());
    };
    for (text, word) in [
        ("format 2\n", "format 2"),
        ("", "format (none)"),
        ("format 1\nexit cpuid many 0\n", "'exit cpuid many 0'"),
        ("format 1\nexit cpuid 1 1 99:1\n", "99:1"),
        ("format 1\ninject f3 1\n", "'inject f3 1'"),
    ] {
        put(text);
        let (code, said) = run("exits web");
        assert!(code == 1 && said.contains(word), "{text}: {said}");
    }
    f.machine.borrow_mut().files.clear();
    let (code, text) = run("exits");
    assert!(code == 1 && text.contains("Xenolith has it"), "{text}");
}
