//! The page: one file, no scripts, nothing fetched, so that it opens from a disk, a mail or an archive.

mod page;
mod plots;

use std::io;
use std::path::{Path, PathBuf};

use super::Outcome;

/// The page's name in its folder.
const FILE: &str = "index.html";

/// Writes the page into `folder`, which is made where it is missing, and answers the page's path.
pub fn write_html(outcome: &Outcome, folder: &Path) -> io::Result<PathBuf> {
    std::fs::create_dir_all(folder)?;
    let path = folder.join(FILE);
    let plots = plots::all(outcome).map_err(|error| io::Error::other(error.to_string()))?;
    std::fs::write(&path, page::render(&outcome.report, &plots))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::samples;

    #[test]
    fn the_page_stands_alone_and_holds_every_result() {
        let folder = std::env::temp_dir().join(format!("ironwarp-bench-{}-html", std::process::id()));
        let path = write_html(&samples::outcome(), &folder).expect("a writable folder");
        let page = std::fs::read_to_string(&path).expect("just written");
        std::fs::remove_dir_all(&folder).expect("just written");

        assert!(page.starts_with("<!DOCTYPE html>"));
        assert_eq!(page.matches("<svg").count(), 2, "one plot of percentiles, one of bandwidth");
        assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
        for text in ["send-lat", "frame-lat", "tcp-lat (blocking)", "write-bw", "99.9", "full round trip"] {
            assert!(page.contains(text), "{text}");
        }
        for outside in ["http://", "https://", "<script", "<link", "@import"] {
            let page = page.replace("http://www.w3.org/2000/svg", "");
            assert!(!page.contains(outside), "{outside}");
        }
    }

    #[test]
    fn a_page_of_nothing_is_a_page() {
        let folder = std::env::temp_dir().join(format!("ironwarp-bench-{}-empty", std::process::id()));
        let mut outcome = samples::outcome();
        outcome.report.results.clear();
        outcome.latencies.clear();
        let path = write_html(&outcome, &folder).expect("a writable folder");
        assert!(!std::fs::read_to_string(&path).expect("just written").contains("<svg"));
        std::fs::remove_dir_all(&folder).expect("just written");
    }
}
