//! Rules files and folders, read whole.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::compile::compile_readable;
use super::{CompileOptions, Diagnostic, RuleSet, RulesError, SourceFile};
use crate::settings::RulesSource;
use crate::telemetry::RuleSeries;

/// Reads and compiles all files of `sources`: a folder recursively, in order of paths, with files
/// of any extension; symlinks are followed. A folder without files is an empty set. A pipe, socket
/// or device in a folder is a fault, since reading it might never end.
///
/// # Errors
///
/// All faults of all files, those that can not be read among them.
pub fn load(
    sources: &[RulesSource],
    options: CompileOptions,
    series: &RuleSeries,
) -> Result<RuleSet, RulesError> {
    let mut reader = Reader::default();
    for source in sources {
        reader.path(&source.path, source.ignore_dotfiles);
    }
    compile_readable(&reader.files, reader.faults, options, series)
}

#[derive(Debug, Default)]
struct Reader {
    files: Vec<SourceFile>,
    faults: Vec<Diagnostic>,
    /// Real paths of the folders on the way, so that a symlink to one of them ends.
    open: HashSet<PathBuf>,
}

impl Reader {
    fn path(&mut self, path: &Path, ignore_dotfiles: bool) {
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => self.folder(path, ignore_dotfiles),
            Ok(_) => self.file(path),
            Err(error) => self.fault(path, &error),
        }
    }

    fn folder(&mut self, path: &Path, ignore_dotfiles: bool) {
        let (real, entries) = match fs::canonicalize(path).and_then(|real| Ok((real, list(path)?)))
        {
            Ok(found) => found,
            Err(error) => return self.fault(path, &error),
        };
        if !self.open.insert(real.clone()) {
            return;
        }
        for entry in entries {
            let is_dotfile =
                entry.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
            if ignore_dotfiles && is_dotfile {
                continue;
            }
            if fs::metadata(&entry).is_ok_and(|of| !of.is_file() && !of.is_dir()) {
                self.fault(&entry, &io::Error::other("neither a file nor a folder"));
                continue;
            }
            self.path(&entry, ignore_dotfiles);
        }
        self.open.remove(&real);
    }

    fn file(&mut self, path: &Path) {
        let text = fs::read(path).and_then(|bytes| {
            String::from_utf8(bytes).map_err(|error| {
                let at = error.utf8_error().valid_up_to();
                io::Error::new(io::ErrorKind::InvalidData, format!("not UTF-8 at byte {at}"))
            })
        });
        match text {
            Ok(text) => self.files.push(SourceFile { name: path.display().to_string(), text }),
            Err(error) => self.fault(path, &error),
        }
    }

    fn fault(&mut self, path: &Path, error: &io::Error) {
        self.faults.push(Diagnostic {
            file: path.display().to_string(),
            place: None,
            path: String::new(),
            message: format!("can not be read: {error}"),
            help: None,
        });
    }
}

/// Sorted.
fn list(path: &Path) -> io::Result<Vec<PathBuf>> {
    let mut entries: Vec<_> = fs::read_dir(path)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    entries.sort();
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(tempfile::TempDir);

    impl Folder {
        fn new(files: &[(&str, &[u8])]) -> Self {
            let folder = Self(tempfile::tempdir().unwrap());
            for (name, text) in files {
                let path = folder.0.path().join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            folder
        }

        /// Domain names, or faults with the folder's path as `.`.
        fn load(&self, ignore_dotfiles: bool) -> Result<Vec<String>, String> {
            let path = self.0.path().to_owned();
            let source = RulesSource { path, ignore_dotfiles, swapped_link: None };
            match load(&[source], CompileOptions::default(), &RuleSeries::default()) {
                Ok(rules) => Ok(rules.domains().map(|(name, _)| name.to_owned()).collect()),
                Err(error) => {
                    Err(error.to_string().replace(&self.0.path().display().to_string(), "."))
                }
            }
        }
    }

    #[test]
    fn what_might_never_end_is_a_fault_and_not_read() {
        let folder = Folder::new(&[("b.yaml", b"domain: b")]);
        let zeros = folder.0.path().join("zeros.yaml");
        std::os::unix::fs::symlink("/dev/zero", zeros).unwrap();
        let socket = folder.0.path().join("socket.yaml");
        let _listener = std::os::unix::net::UnixListener::bind(socket).unwrap();
        let error = folder.load(false).unwrap_err();
        for name in ["zeros", "socket"] {
            let fault = format!("./{name}.yaml: can not be read: neither a file nor a folder");
            assert!(error.contains(&fault), "{error}");
        }
    }

    #[test]
    fn folders_are_read_recursively_whatever_the_extension() {
        let folder = Folder::new(&[
            ("b.yaml", b"domain: b"),
            ("deep/er/a.txt", b"domain: a"),
            (".hidden/c.yaml", b"domain: c"),
            (".d", b"domain: d"),
        ]);
        assert_eq!(folder.load(false), Ok(["a", "b", "c", "d"].map(str::to_owned).to_vec()));
        assert_eq!(folder.load(true), Ok(["a", "b"].map(str::to_owned).to_vec()));
        assert_eq!(Folder::new(&[]).load(false), Ok(Vec::new()));
    }

    #[test]
    fn files_that_can_not_be_read_are_faults_beside_the_others() {
        let folder =
            Folder::new(&[("a", b"domain: \xff"), ("b", b"domain: "), ("c", b"domain: c")]);
        std::os::unix::fs::symlink("gone", folder.0.path().join("d")).unwrap();
        assert_eq!(
            folder.load(false).unwrap_err(),
            "./a: can not be read: not UTF-8 at byte 8\n\
             ./d: can not be read: No such file or directory (os error 2)\n\
             ./b:1:1: the file has no `domain`; expected `domain: <text>`"
        );
    }

    #[test]
    fn symlinks_are_followed_but_not_in_circles() {
        let folder = Folder::new(&[("..data_1/a", b"domain: a")]);
        let link = |to: &str, from: &str| {
            std::os::unix::fs::symlink(to, folder.0.path().join(from)).unwrap();
        };
        link("..data_1", "..data");
        link("..data/a", "a");
        link(".", "circle");
        assert_eq!(folder.load(true), Ok(vec!["a".to_owned()]));
    }

    #[test]
    fn a_missing_path_is_a_fault() {
        let path = PathBuf::from("/nonexistent/rules");
        let source = RulesSource { path, ignore_dotfiles: false, swapped_link: None };
        let error = load(&[source], CompileOptions::default(), &RuleSeries::default()).unwrap_err();
        assert!(error.to_string().starts_with("/nonexistent/rules: can not be read: No such file"));
    }
}
