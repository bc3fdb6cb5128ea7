//! The language, the values, the messages.

use crate::build::{cfgs, constants, gzip_stored};
use crate::{Config, DotConfig, Node, Problem, Tree, list};

const SAMPLE: &str = r#"
mainmenu "Sample"
menu "Machine"
config HVM
	bool "Domains on hardware virtualization"
	default y
	help
	  First line.

	    Indented.
	  # no comment
config AMD
	bool "AMD" if HVM
	default y
	depends on HVM
	select TABLES
config TABLES
	bool
config PV
	bool "PV"
	depends on n
config NR_CPUS
	int "CPUs"
	range 1 8 if !HVM
	range 1 4095
	default 64
config BASE
	hex "Base"
	default 0x10
choice
	prompt "Mode"
	default MIXED
	help
	  How.
config PHYSICAL
	bool "Physical"
config CLUSTER
	bool "Cluster"
	depends on NR_CPUS > 1
config MIXED
	bool "Mixed"
endchoice
endmenu
if HVM && \
   AMD
config LINE
	string "Line"
	default "a \"b\" \\"
config CHECK
	def_bool y if NR_CPUS >= 100 || LINE = "x"
endif
comment "The end"
	depends on !HVM
"#;

fn tree(text: &str) -> Result<Tree, Problem> {
    let read = |name: &str| match name {
        "Kconfig" => Ok(text.to_owned()),
        "more" => Ok("config MORE\n\tbool \"More\"\n".to_owned()),
        "open" => Ok("menu \"x\"\n".to_owned()),
        "close" => Ok("endmenu\n".to_owned()),
        other => Err(format!("cannot read {other}")),
    };
    Tree::parse("Kconfig", &read)
}

/// Values and problems of `set` in the sample.
fn with(set: &str, look: impl FnOnce(&Config<'_>, String)) {
    let tree = tree(SAMPLE).expect("the sample is right");
    let (dot, mut problems) = DotConfig::parse(".config", set);
    let (config, more) = Config::new(&tree, &dot);
    problems.extend(more);
    look(&config, list(&problems));
}

/// The one problem that `set` has in the sample.
fn problem(set: &str) -> String {
    let mut found = String::new();
    with(set, |_, problems| found = problems);
    found
}

#[test]
fn defaults() {
    with("", |c, problems| {
        assert_eq!(problems, "");
        let get = |name| c.get(name).expect(name).to_owned();
        assert_eq!(
            get("HVM") + &get("AMD") + &get("TABLES") + &get("PV"),
            "yyyn"
        );
        assert_eq!((get("NR_CPUS"), get("BASE")), ("64".into(), "0x10".into()));
        assert_eq!(get("PHYSICAL") + &get("CLUSTER") + &get("MIXED"), "nny");
        assert_eq!(get("LINE"), "a \"b\" \\");
        assert_eq!(get("CHECK"), "n");
        let s = &c.tree.symbols[0];
        assert_eq!(s.help, "First line.\n\nIndented.\n# no comment");
        assert!(matches!(c.tree.nodes[0], Node::Menu(..)));
    });
}

#[test]
fn dependencies_choices_and_ranges() {
    with("# CONFIG_HVM is not set\n", |c, problems| {
        assert_eq!(problems, "");
        assert_eq!(c.get("AMD"), Some("n"));
        assert_eq!(c.get("TABLES"), Some("n"));
        assert_eq!(c.get("LINE"), Some(""));
        assert_eq!(c.get("NR_CPUS"), Some("8"), "a default is kept in range");
    });
    with("CONFIG_NR_CPUS=1\nCONFIG_CLUSTER=y", |c, problems| {
        assert_eq!(c.get("MIXED"), Some("y"));
        assert!(problems.starts_with(
            ".config:2: CONFIG_CLUSTER=y, but it depends on `NR_CPUS > 1`, and NR_CPUS=1"
        ));
    });
    with("CONFIG_PHYSICAL=y\nCONFIG_NR_CPUS=100\n", |c, problems| {
        assert_eq!(problems, "");
        assert_eq!(c.get("MIXED"), Some("n"));
        assert_eq!(c.get("CHECK"), Some("y"));
    });
}

#[test]
fn every_mistake_names_its_line() {
    let cases = [
        (
            "CONFIG_AMDD=y",
            ".config:1: CONFIG_AMDD: there is no such symbol; did you mean CONFIG_AMD?",
        ),
        (
            "\nCONFIG_FLUX=y",
            ".config:2: CONFIG_FLUX: there is no such symbol",
        ),
        (
            "CONFIG_HVM=maybe",
            ".config:1: CONFIG_HVM=maybe: it must be y or n",
        ),
        (
            "CONFIG_HVM=m",
            ".config:1: CONFIG_HVM=m: there are no modules here",
        ),
        (
            "CONFIG_NR_CPUS=many",
            ".config:1: CONFIG_NR_CPUS=many: it must be a number",
        ),
        (
            "CONFIG_NR_CPUS=0",
            ".config:1: CONFIG_NR_CPUS=0 is outside of 1 to 4095",
        ),
        (
            "# CONFIG_HVM is not set\nCONFIG_NR_CPUS=9",
            ".config:2: CONFIG_NR_CPUS=9 is outside of 1 to 8",
        ),
        (
            "CONFIG_BASE=-1",
            ".config:1: CONFIG_BASE=-1: it must be a number like 0x1f",
        ),
        ("HVM=y", ".config:1: \"HVM\" does not start with CONFIG_"),
        (
            "nonsense",
            ".config:1: \"nonsense\" is neither CONFIG_NAME=value nor a comment",
        ),
        (
            "CONFIG_LINE=\"a",
            ".config:1: a text without its closing quote",
        ),
        (
            "CONFIG_LINE=\"a\"b",
            ".config:1: unexpected \"b\" after the closing quote",
        ),
        (
            "CONFIG_HVM=y\n# CONFIG_HVM is not set",
            ".config:2: CONFIG_HVM: line 1 sets it to y already",
        ),
        (
            "CONFIG_PV=y",
            ".config:1: CONFIG_PV=y, but it depends on `n`",
        ),
        (
            "# CONFIG_TABLES is not set",
            ".config:1: CONFIG_TABLES is not set, but CONFIG_AMD=y selects it",
        ),
        (
            "# CONFIG_HVM is not set\nCONFIG_AMD=y",
            ".config:2: CONFIG_AMD=y, but it depends on `HVM`, and HVM=n",
        ),
        (
            "CONFIG_CHECK=y",
            ".config:1: CONFIG_CHECK=y, but it cannot be set: it follows from others, and is n",
        ),
        (
            "CONFIG_PHYSICAL=y\nCONFIG_MIXED=y",
            ".config:2: CONFIG_MIXED=y, but of CONFIG_PHYSICAL, CONFIG_CLUSTER, CONFIG_MIXED only one can be y, and CONFIG_PHYSICAL is (line 1)",
        ),
        (
            "# CONFIG_MIXED is not set",
            ".config:1: CONFIG_MIXED is not set, but one of the choice must be y: set one of CONFIG_PHYSICAL, CONFIG_CLUSTER",
        ),
    ];
    for (set, expected) in cases {
        assert_eq!(problem(set), expected, "{set}");
    }
}

#[test]
fn full_and_minimal_files_lead_back() {
    for set in [
        "",
        "CONFIG_PHYSICAL=y",
        "# CONFIG_HVM is not set\nCONFIG_NR_CPUS=8\n",
        "CONFIG_LINE=\"c\\\\d \\\"e\\\"\"\nCONFIG_NR_CPUS=200\nCONFIG_BASE=0xff\nCONFIG_CLUSTER=y",
    ] {
        with(set, |config, problems| {
            assert_eq!(problems, "");
            for text in [config.full(), config.minimal()] {
                let (dot, bad) = DotConfig::parse("again", &text);
                let (again, worse) = Config::new(config.tree, &dot);
                assert_eq!((bad, worse), (vec![], vec![]), "{text}");
                assert_eq!(again.full(), config.full());
            }
        });
    }
    with("CONFIG_HVM=y\nCONFIG_MIXED=y\nCONFIG_NR_CPUS=64", |c, _| {
        assert_eq!(c.minimal(), "");
    });
    with(
        "CONFIG_NR_CPUS=65\nCONFIG_PHYSICAL=y\nCONFIG_AMD=y",
        |c, _| {
            assert_eq!(c.minimal(), "CONFIG_NR_CPUS=65\nCONFIG_PHYSICAL=y\n");
        },
    );
}

#[test]
fn wrong_kconfig_files() {
    let cases = [
        (
            "config A\n\tbool\n\tdepends on B",
            "Kconfig:1: A: it names B, which is not defined",
        ),
        (
            "config A\n\tbool\n\tselect B",
            "Kconfig:1: A: it selects B, which is not defined",
        ),
        (
            "config A\n\tint \"a\"",
            "Kconfig:1: A: a number needs a default without a condition",
        ),
        (
            "config A\n\tbool\nconfig A\n\tbool",
            "Kconfig:3: A is defined at Kconfig:1 already",
        ),
        (
            "config a\n",
            "Kconfig:1: a: a name is made of A to Z, 0 to 9 and _",
        ),
        (
            "config A\n\ttristate \"a\"",
            "Kconfig:2: there are no modules here: use bool",
        ),
        (
            "config A\n\tboool \"a\"",
            "Kconfig:2: unknown keyword boool",
        ),
        (
            "config A\n\tbool \"a\" extra",
            "Kconfig:2: unexpected Word(\"extra\") at the end of the line",
        ),
        (
            "config A\n\tbool \"a",
            "Kconfig:2: a text without its closing quote",
        ),
        (
            "config A\n\tbool\n\tdepends on (A",
            "Kconfig:3: a closing bracket is missing",
        ),
        (
            "menu \"x\"\nconfig A\n\tbool\nendif",
            "Kconfig:4: endif does not end the block of line 1",
        ),
        ("endmenu", "Kconfig:1: endmenu ends nothing"),
        ("menu \"x\"", "Kconfig:1: this block is never closed"),
        (
            "source \"open\"\nendmenu",
            "open:1: this block is never closed",
        ),
        (
            "menu \"x\"\nsource \"close\"",
            "close: it ends a block of the file that sources it",
        ),
        ("source \"gone\"", "Kconfig:1: cannot read gone"),
        (
            "source \"Kconfig\"",
            "Kconfig:1: files are nested more than 8 deep",
        ),
        (
            "choice\n\tprompt \"x\"\nendchoice",
            "Kconfig:1: a choice needs a prompt and members",
        ),
        (
            "config A\n\tbool\n\tdepends on !B\nconfig B\n\tbool\n\tdefault A",
            "Kconfig:1: A: its value depends on itself, by way of A",
        ),
        (
            "config A\n\tbool\n\tselect B\n\tdepends on B\nconfig B\n\tbool",
            "Kconfig:1: A: its value depends on itself, by way of A",
        ),
        (
            "help\n  x",
            "Kconfig:1: a help text that belongs to nothing",
        ),
        ("depends on A", "Kconfig:1: `depends on` belongs to nothing"),
    ];
    for (text, expected) in cases {
        let found = tree(text).expect_err(text);
        assert_eq!(found.to_string(), expected, "{text}");
    }
}

#[test]
fn files_and_blocks_nest() {
    let t = tree("config X\n\tbool \"x\"\nmenu \"m\"\n\tdepends on X\nif !X\nsource \"more\"\nendif\nendmenu").expect("right");
    assert_eq!(t.symbols[1].depends.to_string(), "X && !X");
    assert_eq!(t.symbols[1].file, "more");
}

#[test]
fn a_select_against_dependencies_is_the_kconfig_files_mistake() {
    let t = tree("config A\n\tbool \"a\"\n\tselect B\nconfig B\n\tbool\n\tdepends on C\nconfig C\n\tbool \"c\"").expect("right");
    let (dot, _) = DotConfig::parse(".config", "CONFIG_A=y");
    let (config, problems) = Config::new(&t, &dot);
    assert_eq!(
        list(&problems),
        "Kconfig:1: A selects B, which depends on `C`, and C=n"
    );
    assert_eq!(config.get("B"), Some("y"));
}

#[test]
fn the_compiler_gets_cfgs_and_constants() {
    with("CONFIG_NR_CPUS=7", |c, _| {
        let lines = cfgs(c);
        assert!(lines.contains(&"cargo::rustc-check-cfg=cfg(CONFIG_PV)".to_owned()));
        assert!(!lines.contains(&"cargo::rustc-cfg=CONFIG_PV".to_owned()));
        assert!(lines.contains(&"cargo::rustc-cfg=CONFIG_AMD".to_owned()));
        assert_eq!(lines.iter().filter(|l| l.contains("NR_CPUS")).count(), 0);
        assert!(constants(c).contains("pub const NR_CPUS: u32 = 7;"));
        assert!(constants(c).contains(r#"pub const LINE: &str = "a \"b\" \\";"#));
    });
}

/// The checksum is that of `printf xenolith | gzip`.
#[test]
fn a_stored_gzip_file() {
    let file = gzip_stored(b"xenolith").expect("short");
    assert_eq!(file[..3], [0x1f, 0x8b, 8]);
    assert_eq!(file[10..15], [1, 8, 0, 0xf7, 0xff]);
    assert_eq!(&file[15..23], b"xenolith");
    assert_eq!(file[27..], [8, 0, 0, 0]);
    assert_eq!(file[23..27], CRC_OF_XENOLITH.to_le_bytes());
    assert_eq!(gzip_stored(&[0; 65536]), None);
}

const CRC_OF_XENOLITH: u32 = 0xd4495534;
