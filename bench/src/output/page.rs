//! The report as one HTML file. It has no scripts and loads nothing, so it opens from a disk, a
//! mail or an archive.

use std::io;
use std::path::{Path, PathBuf};

use super::Outcome;
use super::plots::{self, Plot};
use super::rows::{Section, notes, or_dash, sections};
use crate::report::Report;

/// The name of the page in its folder.
const FILE: &str = "index.html";

const STYLE: &str = "\
body{margin:0;background:#f5f6f8;color:#1f2733;font:15px/1.5 system-ui,-apple-system,'Segoe UI',sans-serif}\
main{max-width:1080px;margin:0 auto;padding:32px 20px 64px}\
h1{font-size:26px;margin:0 0 4px}h2{font-size:18px;margin:36px 0 10px}\
.sub{color:#5b6675;margin:0}\
section{background:#fff;border:1px solid #e1e5ea;border-radius:10px;padding:14px 18px;margin:0 0 18px;overflow-x:auto}\
section svg{width:100%;height:auto;display:block}section h3{font-size:15px;margin:2px 0 8px}\
table{border-collapse:collapse;width:100%;font-size:13px;font-variant-numeric:tabular-nums}\
th,td{padding:5px 7px;text-align:right;border-bottom:1px solid #eceff3;white-space:nowrap}\
th{color:#5b6675;font-weight:600}th:first-child,td:first-child{text-align:left}\
tr.ironwarp td:first-child{font-weight:600;color:#1d5bbf}\
dl{display:grid;grid-template-columns:max-content 1fr;gap:4px 20px;margin:0}dt{color:#5b6675}dd{margin:0}\
ul{margin:0;padding-left:20px}";

/// Writes the page into `folder`, creates the folder if it is missing, and returns the path of the
/// page.
pub fn write_html(outcome: &Outcome, folder: &Path) -> io::Result<PathBuf> {
    std::fs::create_dir_all(folder)?;
    let path = folder.join(FILE);
    let plots = plots::all(outcome).map_err(|error| io::Error::other(error.to_string()))?;
    std::fs::write(&path, render(&outcome.report, &plots))?;
    Ok(path)
}

pub(super) fn render(report: &Report, plots: &[Plot]) -> String {
    let (build, machine) = (escape(&report.build.summary()), escape(&report.machine.summary()));
    let tables: String = sections(report, None).iter().map(table).collect();
    let plot = |Plot { title, svg }: &Plot| format!("<section><h3>{}</h3>{svg}</section>", escape(title));
    let drawn: String = plots.iter().map(plot).collect();
    let heading = if plots.is_empty() { "" } else { "<h2>Plots</h2>" };
    let notes: String = notes(report).iter().map(|note| format!("<li>{}</li>", escape(note))).collect();
    let facts = facts(report);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>iwarp-perf report</title>\
         <style>{STYLE}</style></head><body><main><h1>iwarp-perf</h1>\
         <p class=\"sub\">{build}</p><p class=\"sub\">{machine}</p>{tables}{heading}{drawn}\
         <h2>Notes</h2><section><ul>{notes}</ul></section>\
         <h2>Machine</h2><section><dl>{facts}</dl></section></main></body></html>\n"
    )
}

fn table(section: &Section<'_>) -> String {
    let cells = |tag: &str, cells: &[String]| -> String {
        cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escape(cell))).collect()
    };
    let row = |row: &super::rows::Row<'_>| {
        let class = if row.result.against.is_some() { "ironwarp" } else { "" };
        format!("<tr class=\"{class}\">{}</tr>", cells("td", &row.cells))
    };
    let rows: String = section.rows.iter().map(row).collect();
    let (title, heads) = (escape(&section.title), cells("th", &section.heads));
    format!("<h2>{title}</h2><section><table><tr>{heads}</tr>{rows}</table></section>")
}

fn facts(report: &Report) -> String {
    let (machine, build) = (&report.machine, &report.build);
    let number = |value: Option<u64>| value.map(|value| value.to_string());
    let facts = [
        ("host", machine.hostname.clone()),
        ("processor", machine.cpu.clone()),
        ("processors", number(machine.cores.map(u64::from))),
        ("memory, MiB", number(machine.memory_mib)),
        ("kernel", machine.kernel.clone()),
        ("system", machine.os.clone()),
        ("clock", machine.clock_source.clone()),
        ("hugepages", number(machine.hugepages)),
        ("compiler", build.rustc.clone()),
        ("commit", build.commit.clone()),
        ("target", build.target.clone()),
    ];
    let item = |(name, value)| format!("<dt>{name}</dt><dd>{}</dd>", escape(&or_dash(value)));
    facts.into_iter().map(item).collect()
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
