//! Copies of a library inside the binary.

use super::*;
use flate2::Compression;
use flate2::read::ZlibEncoder;
use std::fs;
use std::os::unix::fs::symlink;

/// A library with these contents, as the build script embeds it.
pub(in crate::launch) fn bundled(contents: &[u8]) -> BundledLibrary {
    let mut compressed = Vec::new();
    let mut encoder = ZlibEncoder::new(contents, Compression::fast());
    encoder.read_to_end(&mut compressed).expect("compressed");
    BundledLibrary {
        name: "libgctrace_inject.so",
        hash: "0123456789abcdef",
        length: contents.len(),
        compressed: compressed.leak(),
    }
}

/// Incompressible, and longer than a pipe or a page.
fn contents() -> Vec<u8> {
    let mut state = 1_u32;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..300_000).map(next).collect()
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("chmod");
}

#[test]
fn a_copy_is_written_once() {
    let place = tempfile::tempdir().expect("a folder");
    let (contents, cache) = (contents(), place.path().join("cache/gctrace"));
    let library = bundled(&contents);
    assert_eq!(library.contents().expect("intact"), contents);
    let path = library.copy_in(&cache).expect("a copy");
    assert_eq!(path, cache.join("0123456789abcdef/libgctrace_inject.so"));
    assert_eq!(fs::read(&path).expect("read"), contents);
    let before = fs::metadata(&path).expect("metadata");
    assert_eq!(before.mode() & 0o7777, 0o644);
    let folder = fs::metadata(path.parent().expect("a folder")).expect("metadata");
    assert_eq!(folder.mode() & 0o022, 0);
    assert_eq!(library.copy_in(&cache).expect("the same"), path);
    assert_eq!(fs::metadata(&path).expect("metadata").ino(), before.ino());
}

#[test]
fn what_is_not_the_copy_is_replaced() {
    let place = tempfile::tempdir().expect("a folder");
    let contents = contents();
    let library = bundled(&contents);
    let path = library.copy_in(place.path()).expect("a copy");
    let other = place.path().join("other");
    let mut changed = contents.clone();
    changed[150_000] ^= 1;
    let longer = [&contents[..], b"x"].concat();
    let spoilers: [(&str, &dyn Fn()); 8] = [
        ("changed", &|| fs::write(&path, &changed).expect("write")),
        ("truncated", &|| fs::write(&path, &contents[..9]).expect("write")),
        ("empty", &|| fs::write(&path, "").expect("write")),
        ("longer", &|| fs::write(&path, &longer).expect("write")),
        ("writable", &|| set_mode(&path, 0o666)),
        ("set-user-ID", &|| set_mode(&path, 0o4644)),
        ("a link", &|| {
            fs::write(&other, &contents).expect("write");
            fs::remove_file(&path).expect("remove");
            symlink(&other, &path).expect("a link");
        }),
        ("a FIFO", &|| {
            fs::remove_file(&path).expect("remove");
            nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).expect("a FIFO");
        }),
    ];
    for (what, spoil) in spoilers {
        spoil();
        assert_eq!(library.copy_in(place.path()).expect(what), path);
        let found = fs::symlink_metadata(&path).expect("metadata");
        assert!(found.is_file(), "{what}");
        assert_eq!(found.mode() & 0o7777, 0o644, "{what}");
        assert_eq!(fs::read(&path).expect("read"), contents, "{what}");
    }
    assert_eq!(fs::read(&other).expect("the link's target"), contents);
    let left = fs::read_dir(path.parent().expect("a folder")).expect("entries");
    assert_eq!(left.count(), 1, "no temporary files");
}

#[test]
fn a_place_of_others_is_not_used() {
    let place = tempfile::tempdir().expect("a folder");
    let library = bundled(&contents());
    let open = place.path().join("open");
    fs::create_dir(&open).expect("mkdir");
    set_mode(&open, 0o777);
    let link = place.path().join("link");
    symlink(place.path(), &link).expect("a link");
    for place in [&open, &link] {
        let error = library.copy_in(place).expect_err("refused").to_string();
        assert!(error.contains("only its user can write"), "{error}");
    }
    let folder = place.path().join(library.hash);
    fs::create_dir(&folder).expect("mkdir");
    set_mode(&folder, 0o775);
    library.copy_in(place.path()).expect_err("the folder inside too");
    if Uid::effective().is_root() {
        set_mode(&folder, 0o755);
        std::os::unix::fs::chown(&folder, Some(61_303), None).expect("chown");
        library.copy_in(place.path()).expect_err("another user's");
    }
    library.copy_in(Path::new("/proc")).expect_err("no folders can be made");
    library.copy_in(Path::new("/dev/null/x")).expect_err("not a folder");
}

#[test]
fn many_processes_at_once_share_one_copy() {
    let place = tempfile::tempdir().expect("a folder");
    let contents = contents();
    let library = bundled(&contents);
    let inodes: Vec<u64> = std::thread::scope(|scope| {
        let copy = || {
            let path = library.copy_in(place.path()).expect("a copy");
            assert_eq!(fs::read(&path).expect("read"), contents);
            fs::metadata(&path).expect("metadata").ino()
        };
        let threads: Vec<_> = (0..16).map(|_| scope.spawn(copy)).collect();
        let ended = threads.into_iter().map(|thread| thread.join().expect("no panic"));
        ended.collect()
    });
    assert!(inodes.iter().all(|inode| *inode == inodes[0]), "{inodes:?}");
}

#[test]
fn temporary_folders_are_last() {
    let places = places();
    let user = Uid::effective();
    let name = format!("gctrace-{user}");
    let is_temporary = |place: &PathBuf| place.ends_with(&name);
    assert!(!is_temporary(&places[0]), "{places:?}");
    let trusted = trust::rights_beyond_user(false).is_none();
    assert_eq!(places.iter().any(is_temporary), trusted, "{places:?}");
    assert!(places.iter().all(|place| place.is_absolute()), "{places:?}");
}
