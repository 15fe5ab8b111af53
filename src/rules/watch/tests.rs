//! Every way in which people and machines change files.

use std::os::unix::fs::symlink;

use super::*;

/// Far above the two seconds of the poll: it is there for a hung test only.
const PATIENCE: Duration = Duration::from_secs(20);

struct Fixture {
    /// Dropped before the folder goes.
    _watcher: Watcher,
    changes: Receiver<()>,
}

fn start(path: &Path, swapped_link: Option<&Path>) -> Fixture {
    let source = RulesSource {
        path: path.to_owned(),
        ignore_dotfiles: true,
        swapped_link: swapped_link.map(Path::to_owned),
    };
    let (told, changes) = mpsc::channel();
    let watcher = watch(&[source], move || told.send(()).unwrap_or(())).unwrap();
    Fixture { _watcher: watcher, changes }
}

impl Fixture {
    /// Does something and waits to be told of it.
    #[track_caller]
    fn check(&self, what: &str, act: impl FnOnce()) {
        while self.changes.try_recv().is_ok() {}
        act();
        assert!(self.changes.recv_timeout(PATIENCE).is_ok(), "{what}: not told");
        // The same change may be told twice; the next one must not pass for it.
        while self.changes.recv_timeout(4 * QUIET).is_ok() {}
    }
}

#[test]
fn every_way_to_change_a_file_is_told() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("rules");
    fs::create_dir(&folder).unwrap();
    let file = folder.join("shop.yaml");
    fs::write(&file, "1").unwrap();
    let temporary = folder.join(".shop.yaml.swp");

    for watched in [&folder, &file] {
        let fixture = start(watched, None);
        fixture.check("overwrite", || fs::write(&file, "22").unwrap());
        fixture.check("overwrite with the same length", || fs::write(&file, "33").unwrap());
        fixture.check("rename over", || {
            fs::write(root.path().join("new"), "4").unwrap();
            fs::rename(root.path().join("new"), &file).unwrap();
        });
        fixture.check("save by an editor", || {
            fs::write(&temporary, "5").unwrap();
            fs::rename(&temporary, &file).unwrap();
        });
        fixture.check("move away", || fs::rename(&file, root.path().join("away")).unwrap());
        fixture.check("move back", || fs::rename(root.path().join("away"), &file).unwrap());
        fixture.check("delete", || fs::remove_file(&file).unwrap());
        fixture.check("create again", || fs::write(&file, "6").unwrap());
        fixture.check("overwrite after all that", || fs::write(&file, "77").unwrap());
    }
}

#[test]
fn new_folders_and_what_is_in_them_are_told() {
    let root = tempfile::tempdir().unwrap();
    let fixture = start(root.path(), None);
    let deep = root.path().join("team/eu");
    fixture.check("new folders", || fs::create_dir_all(&deep).unwrap());
    fixture.check("a file in them", || fs::write(deep.join("a.yaml"), "1").unwrap());
    fixture.check("its change", || fs::write(deep.join("a.yaml"), "22").unwrap());
    fixture.check("their end", || fs::remove_dir_all(root.path().join("team")).unwrap());
}

#[test]
fn a_folder_that_vanishes_and_comes_back_is_told() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("a/rules");
    fs::create_dir_all(&folder).unwrap();
    let fixture = start(&folder, None);
    fixture.check("delete with its parent", || fs::remove_dir_all(root.path().join("a")).unwrap());
    fixture.check("create again", || fs::create_dir_all(&folder).unwrap());
    fixture.check("a file in it", || fs::write(folder.join("a.yaml"), "1").unwrap());
    fixture.check("replace by another", || {
        fs::rename(&folder, root.path().join("old")).unwrap();
        fs::create_dir_all(&folder).unwrap();
    });
    fixture.check("a file in that", || fs::write(folder.join("b.yaml"), "1").unwrap());
}

/// What Kubernetes does to a mounted `ConfigMap`.
#[test]
fn a_swap_of_the_data_symlink_is_told() {
    let root = tempfile::tempdir().unwrap();
    let mount = root.path();
    let release = |name: &str| {
        fs::create_dir(mount.join(name)).unwrap();
        fs::write(mount.join(name).join("a.yaml"), "1").unwrap();
        symlink(name, mount.join("..data_tmp")).unwrap();
        fs::rename(mount.join("..data_tmp"), mount.join("..data")).unwrap();
    };
    release("..1");
    symlink("..data/a.yaml", mount.join("a.yaml")).unwrap();

    for watched in [mount.to_owned(), mount.join("a.yaml")] {
        let fixture = start(&watched, None);
        for name in ["2", "3"] {
            let name = format!("..{name}{}", watched.ends_with("a.yaml"));
            fixture.check("swap", || release(&name));
        }
    }
}

/// `ln -sfn` and an atomic rename of the reference's `RUNTIME_ROOT`.
#[test]
fn a_swap_of_the_root_is_told() {
    let root = tempfile::tempdir().unwrap();
    for name in ["1", "2", "3"] {
        fs::create_dir_all(root.path().join(name).join("rl/config")).unwrap();
        fs::write(root.path().join(name).join("rl/config/a.yaml"), "1").unwrap();
    }
    let current = root.path().join("current");
    symlink("1", &current).unwrap();
    let fixture = start(&current.join("rl/config"), Some(&current));
    fixture.check("unlink and link", || {
        fs::remove_file(&current).unwrap();
        symlink("2", &current).unwrap();
    });
    fixture.check("rename over", || {
        symlink("3", root.path().join("next")).unwrap();
        fs::rename(root.path().join("next"), &current).unwrap();
    });
    fixture.check("a file in the new root", || {
        fs::write(root.path().join("3/rl/config/a.yaml"), "22").unwrap();
    });
}

#[test]
fn a_file_behind_a_symlink_is_watched() {
    let root = tempfile::tempdir().unwrap();
    let (folder, elsewhere) = (root.path().join("rules"), root.path().join("elsewhere"));
    fs::create_dir(&folder).unwrap();
    fs::create_dir(&elsewhere).unwrap();
    fs::write(elsewhere.join("a.yaml"), "1").unwrap();
    symlink(elsewhere.join("a.yaml"), folder.join("a.yaml")).unwrap();
    let fixture = start(&folder, None);
    fixture.check("the target", || fs::write(elsewhere.join("a.yaml"), "22").unwrap());
}

#[test]
fn a_source_that_does_not_exist_yet_is_told_once_it_does() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("not/yet/a.yaml");
    let fixture = start(&file, None);
    fixture.check("its creation", || {
        fs::create_dir_all(root.path().join("not/yet")).unwrap();
        fs::write(&file, "1").unwrap();
    });
}

#[test]
fn reading_and_neighbours_are_not_told() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("a.yaml");
    fs::write(&file, "1").unwrap();
    let fixture = start(&file, None);
    fs::read(&file).unwrap();
    fs::write(root.path().join("neighbour"), "1").unwrap();
    assert!(fixture.changes.recv_timeout(20 * QUIET).is_err());
}

#[test]
fn a_constant_stream_of_writes_does_not_hold_a_change_back() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("a.yaml");
    fs::write(&file, "1").unwrap();
    let fixture = start(root.path(), None);
    let (stop, stopped) = mpsc::channel::<()>();
    let writer = std::thread::spawn(move || {
        while stopped.recv_timeout(Duration::from_millis(5)) == Err(RecvTimeoutError::Timeout) {
            fs::write(&file, "2").unwrap();
        }
    });
    let told = fixture.changes.recv_timeout(PATIENCE);
    drop(stop);
    writer.join().unwrap();
    assert!(told.is_ok());
}

#[test]
fn a_dropped_watcher_calls_no_more() {
    let root = tempfile::tempdir().unwrap();
    let Fixture { _watcher: watcher, changes } = start(root.path(), None);
    drop(watcher);
    fs::write(root.path().join("a.yaml"), "1").unwrap();
    assert!(matches!(changes.recv_timeout(PATIENCE), Err(RecvTimeoutError::Disconnected)));
}
