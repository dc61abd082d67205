//! Errors and remedies by facts.

use super::*;

fn ordinary_user() -> PrivilegeFacts {
    PrivilegeFacts {
        user: "alice".into(),
        group: "users".into(),
        effective: Capabilities(0),
        bounding: Capabilities(0x1ff_ffff_ffff),
        newest_capability: Some(40),
        no_new_privileges: false,
        foreign_user_namespace: false,
        foreign_pid_namespace: false,
        container: None,
        lockdown: Lockdown::Off,
        executable: "/opt/my tools/gctrace".into(),
        on_nosuid_mount: false,
        arguments: ["-o", "it's.json", "--", "python", "train.py"].map(Into::into).to_vec(),
    }
}

/// Alice's case.
pub fn denied() -> PrivilegeError {
    PrivilegeError::from_facts(ordinary_user()).expect("denied")
}

fn rendered(facts: PrivilegeFacts) -> String {
    let denied = PrivilegeError::from_facts(facts).expect("denied");
    format!("gctrace: {denied}\n{}", denied.remedy())
}

#[test]
fn enough() {
    let needed = NEEDED.iter().fold(0, |set, needed| set | 1 << needed.bit);
    for effective in [needed, 0x1ff_ffff_ffff, 1 << 21] {
        let facts = PrivilegeFacts { effective: Capabilities(effective), ..ordinary_user() };
        assert_eq!(PrivilegeError::from_facts(facts), None, "{effective:x}");
    }
    let lacking = Capabilities(needed | 1 << 19).lacking(FOR_OTHERS);
    assert_eq!(lacking.iter().map(cap).collect::<Vec<_>>(), ["CAP_DAC_READ_SEARCH"]);
}

#[test]
fn the_bits_are_those_of_the_kernel() {
    // capsh(1) and the kernel's header agree; this is the set in /proc after
    // `setcap cap_bpf,cap_perfmon,cap_sys_ptrace,cap_dac_read_search+ep`
    let all = Capabilities(0x0000_00c0_0008_0004);
    assert!(all.missing().is_empty());
    assert!(all.lacking(FOR_OTHERS).is_empty());
}

#[test]
fn an_ordinary_user() {
    insta::assert_snapshot!(rendered(ordinary_user()));
}

#[test]
fn half_the_rights() {
    insta::assert_snapshot!(rendered(PrivilegeFacts {
        effective: Capabilities(1 << 39),
        ..ordinary_user()
    }));
}

#[test]
fn setcap_without_effect() {
    insta::assert_snapshot!(rendered(PrivilegeFacts { on_nosuid_mount: true, ..ordinary_user() }));
}

#[test]
fn a_container() {
    insta::assert_snapshot!(rendered(PrivilegeFacts {
        user: "root".into(),
        container: Some("docker".into()),
        effective: Capabilities(0xa804_25fb),
        bounding: Capabilities(0xa804_25fb),
        ..ordinary_user()
    }));
}

#[test]
fn a_pod() {
    insta::assert_snapshot!(rendered(PrivilegeFacts {
        user: "root".into(),
        container: Some("kubernetes".into()),
        effective: Capabilities(0),
        bounding: Capabilities(0),
        ..ordinary_user()
    }));
}

#[test]
fn a_rootless_container() {
    insta::assert_snapshot!(rendered(PrivilegeFacts {
        container: Some("podman".into()),
        foreign_user_namespace: true,
        ..ordinary_user()
    }));
}

#[test]
fn limits_of_other_kinds() {
    let all = Capabilities(u64::MAX);
    let texts = [
        rendered(PrivilegeFacts { bounding: Capabilities(0), ..ordinary_user() }),
        rendered(PrivilegeFacts { no_new_privileges: true, ..ordinary_user() }),
        rendered(PrivilegeFacts { newest_capability: Some(37), ..ordinary_user() }),
        rendered(PrivilegeFacts {
            foreign_pid_namespace: true,
            container: Some("docker".into()),
            effective: all,
            ..ordinary_user()
        }),
        rendered(PrivilegeFacts {
            lockdown: Lockdown::Confidentiality,
            effective: all,
            ..ordinary_user()
        }),
    ];
    insta::assert_snapshot!(texts.join("\n\n"));
}
