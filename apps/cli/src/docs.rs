//! Manual pages and shell completions of a program, generated from its `clap` description.
//!
//! Every program has the hidden option `--generate-docs FOLDER`, which writes them and ends. FOLDER
//! is laid out as `/usr/share`: `man/man1`, `bash-completion/completions`, `zsh/site-functions`,
//! `fish/vendor_completions.d`. Subcommands get pages of their own. Fails if FOLDER cannot be
//! written.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::Command;
use clap_complete::{Shell, generate_to};

use crate::CliExit;

/// The option, as the only one behind the program's name.
const OPTION: &str = "--generate-docs";

/// The folder of each shell's completions.
const COMPLETIONS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions"),
    (Shell::Zsh, "zsh/site-functions"),
    (Shell::Fish, "fish/vendor_completions.d"),
];

/// Writes the documents of `command` and ends the program, if `arguments` are its name,
/// `--generate-docs` and a folder. Otherwise does nothing.
pub fn generate_docs_if_asked(
    arguments: &[OsString],
    command: impl FnOnce() -> Command,
) -> Result<(), CliExit> {
    let [_, option, folder] = arguments else { return Ok(()) };
    if option != OPTION {
        return Ok(());
    }
    let folder = PathBuf::from(folder);
    let written = write_docs(&folder, command());
    written.map_err(|error| CliExit::failed(format_args!("{OPTION} {}: {error}", folder.display())))?;
    Err(CliExit::Help(format!("written under {}\n", folder.display())))
}

fn write_docs(folder: &Path, command: Command) -> io::Result<()> {
    let name = command.get_name().to_owned();
    let pages = folder.join("man/man1");
    fs::create_dir_all(&pages)?;
    clap_mangen::generate_to(command.clone(), &pages)?;
    for (shell, place) in COMPLETIONS {
        let place = folder.join(place);
        fs::create_dir_all(&place)?;
        let written = generate_to(shell, &mut command.clone(), &name, &place)?;
        if shell == Shell::Bash {
            // Completions are loaded by the name of the program.
            fs::rename(written, place.join(&name))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::{Arg, ArgAction};

    use super::*;

    fn command() -> Command {
        let verbose = Arg::new("loud").long("loud").action(ArgAction::SetTrue).help("Says more");
        Command::new("tool")
            .about("Does a thing")
            .arg(verbose)
            .subcommand(Command::new("part").about("Half of it"))
    }

    fn arguments(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    #[test]
    fn pages_and_completions_have_the_options_and_lie_where_their_readers_look() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = folder.path().to_str().expect("text");
        let exit = generate_docs_if_asked(&arguments(&["tool", OPTION, place]), command);
        assert!(matches!(exit, Err(CliExit::Help(_))), "{exit:?}");
        for (file, words) in [
            ("man/man1/tool.1", &["Does a thing", "loud", "Says more"][..]),
            ("man/man1/tool-part.1", &["Half of it"]),
            ("bash-completion/completions/tool", &["--loud", "part"]),
            ("zsh/site-functions/_tool", &["#compdef tool", "--loud"]),
            ("fish/vendor_completions.d/tool.fish", &["complete -c tool", "loud"]),
        ] {
            let text = fs::read_to_string(folder.path().join(file)).expect(file);
            let missing = words.iter().find(|word| !text.contains(**word));
            assert_eq!(missing, None, "{file}: {text}");
        }
    }

    /// Programs with a hyphen in their name, as all of ours, were once broken in `clap_complete`.
    #[test]
    fn bash_completes_the_options_of_a_subcommand() {
        let folder = tempfile::tempdir().expect("a folder");
        let part = Command::new("part").arg(Arg::new("deep").long("deep").action(ArgAction::SetTrue));
        let file = folder.path().join("bash-completion/completions/a-tool");
        write_docs(folder.path(), Command::new("a-tool").subcommand(part)).expect("written");
        let script = "source $0; complete=$(complete -p a-tool | grep -o -- '-F [^ ]*'); \
                      COMP_WORDS=(a-tool part --de); COMP_CWORD=2; ${complete#-F } a-tool --de part; echo ${COMPREPLY[*]}";
        let output =
            std::process::Command::new("bash").args(["-c", script]).arg(file).output().expect("bash runs");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "--deep\n");
    }

    #[test]
    fn other_arguments_are_left_alone() {
        for words in [&["tool"][..], &["tool", OPTION], &["tool", "--loud", "x"], &["tool", "x", OPTION, "y"]]
        {
            assert_eq!(generate_docs_if_asked(&arguments(words), command), Ok(()), "{words:?}");
        }
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_named() {
        let Err(CliExit::Failed(line)) =
            generate_docs_if_asked(&arguments(&["tool", OPTION, "/dev/null/x"]), command)
        else {
            panic!("written into a device")
        };
        assert!(line.contains("/dev/null/x") && !line.contains('\n'), "{line}");
    }
}
