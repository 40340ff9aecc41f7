//! The report as one HTML file. It has no scripts and loads nothing, so it opens from a disk, a
//! mail or an archive.

use std::io;
use std::path::{Path, PathBuf};

use super::Outcome;
use super::rows::{Row, Section, notes, or_dash, sections};
use crate::report::{Report, TestResult};

/// The name of the page in its folder.
const FILE: &str = "index.html";

const STYLE: &str = "\
body{margin:0;background:#f5f6f8;color:#1f2733;font:15px/1.5 system-ui,-apple-system,'Segoe UI',sans-serif}\
main{max-width:1080px;margin:0 auto;padding:32px 20px 64px}\
h1{font-size:26px;margin:0 0 4px}h2{font-size:18px;margin:36px 0 10px}\
.sub{color:#5b6675;margin:0}\
section{background:#fff;border:1px solid #e1e5ea;border-radius:10px;padding:14px 18px;margin:0 0 18px;overflow-x:auto}\
table{border-collapse:collapse;width:100%;font-size:13px;font-variant-numeric:tabular-nums}\
th,td{padding:5px 7px;text-align:right;border-bottom:1px solid #eceff3;white-space:nowrap}\
th{color:#5b6675;font-weight:600}th:first-child,td:first-child{text-align:left}\
tr.ironwarp td:first-child{font-weight:600;color:#1d5bbf}\
td.bar{width:25%;min-width:120px}td.bar i{display:block;height:10px;background:#8a94a3}tr.ironwarp td.bar i{background:#1d5bbf}\
dl{display:grid;grid-template-columns:max-content 1fr;gap:4px 20px;margin:0}dt{color:#5b6675}dd{margin:0}\
ul{margin:0;padding-left:20px}";

/// Writes the page into `folder`, creates the folder if it is missing, and returns the path of the
/// page.
pub fn write_html(outcome: &Outcome, folder: &Path) -> io::Result<PathBuf> {
    std::fs::create_dir_all(folder)?;
    let path = folder.join(FILE);
    std::fs::write(&path, render(&outcome.report))?;
    Ok(path)
}

pub(super) fn render(report: &Report) -> String {
    let (build, machine) = (escape(&report.build.summary()), escape(&report.machine.summary()));
    let tables: String = sections(report, None).iter().map(table).collect();
    let notes: String = notes(report).iter().map(|note| format!("<li>{}</li>", escape(note))).collect();
    let facts = facts(report);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>iwarp-perf report</title>\
         <style>{STYLE}</style></head><body><main><h1>iwarp-perf</h1>\
         <p class=\"sub\">{build}</p><p class=\"sub\">{machine}</p>{tables}\
         <h2>Notes</h2><section><ul>{notes}</ul></section>\
         <h2>Machine</h2><section><dl>{facts}</dl></section></main></body></html>\n"
    )
}

/// A table. If it has figures, each row ends with a bar for its median round trip or goodput.
fn table(section: &Section<'_>) -> String {
    let has = |head: &str| section.heads.iter().any(|one| one == head);
    let figure = |row: &Row<'_>| match &row.result {
        TestResult { gbit_per_s: Some(gbit), .. } if has("Gbit/s") => Some(*gbit),
        TestResult { rtt_ns: Some(rtt), .. } if has("p50") => Some(rtt.p50 as f64),
        _ => None,
    };
    let most = section.rows.iter().filter_map(figure).fold(f64::MIN_POSITIVE, f64::max);
    let bar = |row: &Row<'_>| match figure(row) {
        Some(figure) => {
            format!("<td class=\"bar\"><i style=\"width:{:.1}%\"></i></td>", figure * 100.0 / most)
        }
        None => String::new(),
    };
    let cells = |tag: &str, cells: &[String]| -> String {
        cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escape(cell))).collect()
    };
    let row = |row: &Row<'_>| {
        let class = if row.result.against.is_some() { "ironwarp" } else { "" };
        format!("<tr class=\"{class}\">{}{}</tr>", cells("td", &row.cells), bar(row))
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
