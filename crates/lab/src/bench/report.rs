//! `firn lab bench report`: a page of tables, and pictures, made of a file of results alone.

use super::figure::{Figure, Panel};
use super::kept::{Contents, Head};
use super::picture;
use clap::Args;
use firndb_console::{Failure, say};
use std::path::{Path, PathBuf};

/// `firn lab bench report`.
#[derive(Args, Clone, Debug)]
pub struct Report {
    /// Results of `firn lab bench log` or `cache`
    pub file: PathBuf,
    /// Write the tables to this file, as Markdown; - is standard output
    #[arg(long, value_name = "FILE", required_unless_present = "pictures")]
    pub markdown: Option<PathBuf>,
    /// Write the pictures into this directory, as SVG; the page shows them
    #[arg(long, value_name = "DIR")]
    pub pictures: Option<PathBuf>,
}

pub fn run(args: &Report) -> Result<(), Failure> {
    let contents = Contents::read(&args.file)?;
    if contents.figures.is_empty() {
        let file = args.file.display();
        return Err(Failure::new(format!("{file}: no figure in it is whole yet; --resume goes on with it")));
    }
    picture::prepare(args.pictures.as_deref())?;
    let pictures = match &args.pictures {
        Some(dir) => Some((picture::draw_all(&contents.figures, dir)?, dir)),
        None => None,
    };
    let Some(path) = &args.markdown else { return Ok(()) };
    let link = |panel: &Panel| {
        let (drawn, dir) = pictures.as_ref()?;
        let dir = path.parent().and_then(|parent| dir.strip_prefix(parent).ok()).unwrap_or(dir);
        drawn.contains(&panel.key).then(|| dir.join(format!("{}.svg", panel.key)))
    };
    let text = page(&contents.head, &contents.figures, &args.file, &link);
    if path == Path::new("-") {
        say!("{text}");
        return Ok(());
    }
    std::fs::write(path, text).map_err(|error| Failure::new(format!("{}: {error}", path.display())))
}

/// The page: what the results are of, then the targets, then each figure.
fn page(head: &Head, figures: &[Figure], file: &Path, link: &dyn Fn(&Panel) -> Option<PathBuf>) -> String {
    let Head { conditions, bench } = head;
    let time = if conditions.simulated { "in virtual time" } else { "in real time" };
    let date = conditions.started_at.split('T').next().unwrap_or(&conditions.started_at);
    let file = file.file_name().unwrap_or(file.as_os_str()).to_string_lossy();
    let mut text = format!(
        "# Results of `firn lab bench {}`\n\nMeasured {time} from {date} on, with the source of commit {}: seed {}, \
         arguments `{}`. Made of `{file}` by `firn lab bench report`; not edited.\n\nA value is the median over seeds, \
         followed by its (least..most) where several seeds were run, and by its [least..most] with all estimated \
         parameters of the devices at the fast and at the slow end of their bands where that was measured. Targets \
         are judged by the median.\n",
        bench, conditions.commit, conditions.seed, conditions.config
    );
    let mut targets = Vec::new();
    for figure in figures {
        for target in &figure.targets {
            let cells = [target.name.clone(), target.values(), target.limit(), target.verdict()];
            targets.push([vec![figure.name()], cells.to_vec()].concat());
        }
    }
    if !targets.is_empty() {
        text += "\n## Targets\n\n";
        text += &table(&["figure", "target", "measured", "wanted", ""].map(String::from), &targets);
    }
    for figure in figures {
        text += &section(figure, link);
    }
    text
}

fn section(figure: &Figure, link: &dyn Fn(&Panel) -> Option<PathBuf>) -> String {
    let mut text = format!("\n## {}: {}\n", figure.name(), figure.title);
    if figure.is_input {
        text += "\n**Input**: the profiles of the devices hold the paper's values of these quantities. The figure \
                 shows that the emulation does what they say, no more.\n";
    }
    for panel in &figure.panels {
        text += &format!("\n### {}\n", panel.title);
        if let Some(path) = link(panel) {
            text += &format!("\n![{}]({})\n", panel.title, path.display());
        }
        if panel.tabled {
            let (headers, rows) = panel.rows();
            let input = if figure.is_input { " (input)" } else { "" };
            text += &format!("\n{}{input}:\n\n{}", capitalized(&panel.y_name), table(&headers, &rows));
        }
    }
    if !figure.beside.is_empty() {
        let headers = ["printed in the paper", "paper", if figure.is_input { "input" } else { "ours" }];
        let rows: Vec<Vec<String>> = figure.beside.iter().map(|beside| beside.cells().to_vec()).collect();
        text += &format!("\n{}", table(&headers.map(String::from), &rows));
    }
    for note in &figure.notes {
        text += &format!("\n* {note}");
    }
    if !figure.notes.is_empty() {
        text += "\n";
    }
    text
}

fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |first| first.to_uppercase().chain(chars).collect())
}

/// A table in Markdown; all columns but the first hold numbers.
fn table(headers: &[String], rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let mut text = line(headers);
    text += &format!("|---|{}\n", "---:|".repeat(headers.len().saturating_sub(1)));
    rows.iter().for_each(|row| text += &line(row));
    text
}

#[cfg(test)]
mod tests {
    use super::super::figure::Point;
    use super::super::sampled::Sampled;
    use super::*;
    use firndb_workloads::results::Conditions;
    use serde_json::json;

    #[test]
    fn a_page_has_every_target_table_comparison_and_picture() {
        let mut figure = Figure::new("5", "a figure").of_inputs();
        let mut panel = Panel::new("key", "a panel", "clients", "a minute");
        panel.add("ours", Point::new(1.0, "1", &Sampled::new(vec![1000.0, 1200.0, 1100.0], None, None)));
        figure.panels.push(panel);
        figure.at_least("a target", &Sampled::once(2.0), 1.0);
        figure.beside("a cell", "1.2 to 1.4", &Sampled::once(1.3));
        figure.notes.push("a note".into());
        let conditions = Conditions::now("firn-bench/1", "abc", json!({"quick": true}), 1);
        let head = Head::new("log", conditions);
        let link = |panel: &Panel| Some(PathBuf::from(format!("pictures/{}.svg", panel.key)));
        let text = page(&head, &[figure], Path::new("results/log.json"), &link);
        for part in [
            "commit abc",
            "Made of `log.json`",
            "| Figure 5 | a target | 2 | at least 1 | met |",
            "| clients | ours |\n|---|---:|\n| 1 | 1,100 (1,000..1,200) |",
            "A minute (input):",
            "![a panel](pictures/key.svg)",
            "| a cell | 1.2 to 1.4 | 1.300 |",
            "* a note",
            "**Input**",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
