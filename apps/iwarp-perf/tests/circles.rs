//! No file of this program or of `bench` imports one that imports it, directly or through others.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A module, as its path from the root of its crate.
type Module = Vec<String>;

/// The modules of a crate with the text of each, without its tests.
fn modules(root: &Path) -> BTreeMap<Module, String> {
    let (mut folders, mut modules) = (vec![root.to_owned()], BTreeMap::new());
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(&folder).expect("a folder").flatten().map(|entry| entry.path()) {
            let is_source = path.extension().is_some_and(|extension| extension == "rs");
            if path.is_dir() {
                folders.push(path);
            } else if is_source && path.file_stem().is_none_or(|stem| stem != "tests") {
                let text = fs::read_to_string(&path).expect("text");
                let product = text.split("#[cfg(test)]").next().unwrap_or_default().to_owned();
                modules.insert(module_of(path.strip_prefix(root).expect("inside")), product);
            }
        }
    }
    modules
}

fn module_of(file: &Path) -> Module {
    let parts = file.with_extension("");
    let parts = parts.iter().map(|part| part.to_str().expect("text").to_owned());
    parts.filter(|part| !["mod", "main", "lib"].contains(&part.as_str())).collect()
}

/// The modules that a module imports. A re-export is none: it hands names on.
fn imports(module: &Module, text: &str, all: &BTreeMap<Module, String>) -> BTreeSet<Module> {
    let statements = text.split("\nuse ").skip(1).filter_map(|rest| rest.split_once(';'));
    let mut imports = BTreeSet::new();
    for (statement, _) in statements {
        let path: String = statement.chars().filter(|c| !c.is_whitespace()).collect();
        let (prefix, names) = path.split_once('{').unwrap_or(("", path.as_str()));
        for name in names.trim_end_matches('}').split(',') {
            imports.extend(resolve(&format!("{prefix}{name}"), module, all));
        }
    }
    imports.remove(module);
    imports
}

/// The module that holds a name, `None` for one of another crate.
fn resolve(path: &str, from: &Module, all: &BTreeMap<Module, String>) -> Option<Module> {
    let mut segments = path.split("::").peekable();
    let mut at = match segments.peek().copied()? {
        "crate" => Module::new(),
        "super" | "self" => from.clone(),
        first if all.contains_key(&[from.as_slice(), &[first.to_owned()]].concat()) => from.clone(),
        _ => return None,
    };
    for segment in segments {
        let inner = [at.as_slice(), &[segment.to_owned()]].concat();
        match segment {
            "crate" | "self" => {}
            "super" => {
                at.pop();
            }
            _ if all.contains_key(&inner) => at = inner,
            _ => break,
        }
    }
    Some(at)
}

#[test]
fn no_file_imports_one_that_imports_it() {
    let program = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src");
    for root in [program.clone(), program.join("../../../bench/src")] {
        let modules = modules(&root);
        let mut left: BTreeMap<&Module, BTreeSet<Module>> =
            modules.iter().map(|(module, text)| (module, imports(module, text, &modules))).collect();
        let arrows: usize = left.values().map(BTreeSet::len).sum();
        assert!(modules.len() > 20 && arrows > modules.len(), "{arrows} arrows in {}", root.display());
        // What imports nothing that is left is in no circle.
        while let Some(done) = left.iter().find(|(_, imports)| imports.is_empty()).map(|(module, _)| *module)
        {
            left.remove(done);
            left.values_mut().for_each(|imports| {
                imports.remove(done);
            });
        }
        assert!(left.is_empty(), "these files, and what imports them, have a circle: {left:#?}");
    }
}
