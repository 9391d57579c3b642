//! The report as one HTML page: style, script and pictures within, nothing to fetch.

use super::figure::{self, Figure};
use super::plot::{self, escaped};
use crate::record::Records;
use crate::suite::Suite;
use crate::table;
use std::fmt::Write as _;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// The whole page.
pub fn page(title: &str, records: &Records, suite: &Suite) -> String {
    let figures = figure::figures(records, suite);
    let mut text = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>{0}</title><style>{STYLE}</style></head><body>\
         <header><h1>{0}</h1><button id=\"scheme\" type=\"button\">light / dark</button></header>\n",
        escaped(title)
    );
    circumstances(&mut text, records, suite);
    legend(&mut text, records, &figures);
    contents(&mut text, &figures);
    let mut test = "";
    for figure in &figures {
        if figure.test != test {
            if !test.is_empty() {
                text.push_str("</div></section>\n");
            }
            test = &figure.test;
            let (name, about) = (escaped(test), escaped(&figure.title));
            let _ = writeln!(text, "<section id=\"{name}\"><h2>{name}</h2><p>{about}</p><div class=\"figures\">");
        }
        picture(&mut text, figure);
    }
    if !test.is_empty() {
        text.push_str("</div></section>\n");
    }
    failures(&mut text, records);
    let _ = writeln!(text, "<div id=\"tip\" role=\"status\" hidden></div><script>{SCRIPT}</script></body></html>");
    text
}

fn circumstances(text: &mut String, records: &Records, suite: &Suite) {
    for run in &records.runs {
        let _ = write!(text, "<p class=\"machine\">{}", escaped(&run.environment.shown()));
        for (name, value) in &run.environment.notes {
            let _ = write!(text, "; {} {}", escaped(name), escaped(value));
        }
        let _ = write!(text, "; {}; seed {}. <code>{}</code>", run.date(), run.seed, escaped(&run.shown_command()));
        for library in &run.libraries {
            let settings = library.settings.iter().map(|(name, value)| format!("{name}={value}"));
            let told: Vec<String> =
                (!library.version.is_empty()).then(|| library.version.clone()).into_iter().chain(settings).collect();
            if !told.is_empty() {
                let _ = write!(text, "<br>{}: {}", escaped(&library.name), escaped(&told.join(", ")));
            }
        }
        text.push_str("</p>\n");
    }
    if let Some(standing) = table::standing(records, suite) {
        let _ = writeln!(text, "<pre class=\"standing\">{}</pre>", escaped(&standing));
    }
}

fn legend(text: &mut String, records: &Records, figures: &[Figure]) {
    text.push_str("<p class=\"legend\">");
    for (index, library) in records.libraries().iter().enumerate() {
        let _ = write!(text, "<span class=\"key s{}\">{}</span> ", index % plot::COLOURS, escaped(library));
    }
    if figures.iter().flat_map(|figure| &figure.series).any(|series| series.index.is_none()) {
        text.push_str("<span class=\"key floor\">floor of the machine</span>");
    }
    text.push_str("</p>\n");
}

fn contents(text: &mut String, figures: &[Figure]) {
    text.push_str("<nav>");
    let mut last = "";
    for figure in figures.iter() {
        if figure.test != last {
            last = &figure.test;
            let _ = write!(text, "<a href=\"#{0}\">{0}</a> ", escaped(last));
        }
    }
    text.push_str("</nav>\n");
}

fn picture(text: &mut String, figure: &Figure) {
    let better = if figure.more_is_better { "more is better" } else { "less is better" };
    let caption = match figure.fixed.as_str() {
        "" => format!("{}, {better}", figure.unit),
        fixed => format!("{fixed}; {}, {better}", figure.unit),
    };
    let _ = write!(text, "<figure>{}<figcaption>{}</figcaption>", plot::svg(figure), escaped(&caption));
    let _ = write!(
        text,
        "<details><summary>figures</summary><div class=\"scroll\"><table><tr><th>{}</th>",
        escaped(&figure.axis)
    );
    for series in &figure.series {
        let _ = write!(text, "<th>{}</th>", escaped(&series.name));
    }
    text.push_str("</tr>");
    let mut positions: Vec<f64> = figure.series.iter().flat_map(|series| &series.points).map(|mark| mark.x).collect();
    positions.sort_by(f64::total_cmp);
    positions.dedup();
    for position in positions {
        let _ = write!(text, "<tr><td>{position}</td>");
        for series in &figure.series {
            let mark = series.points.iter().find(|mark| mark.x == position);
            let _ = write!(text, "<td>{}</td>", mark.map_or_else(String::new, |mark| table::shown(mark.y)));
        }
        text.push_str("</tr>");
    }
    text.push_str("</table></div></details></figure>\n");
}

fn failures(text: &mut String, records: &Records) {
    if records.failures.is_empty() {
        return;
    }
    text.push_str("<section><h2>Without result</h2><ul>");
    for failure in &records.failures {
        let _ = write!(
            text,
            "<li>{} on {} ranks, {}: <code>{}</code></li>",
            escaped(&failure.test),
            failure.ranks,
            escaped(&failure.library),
            escaped(&failure.reason)
        );
    }
    text.push_str("</ul></section>\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::{point, row, run};
    use crate::record::{Failure, Record};

    #[test]
    fn a_page_holds_every_figure_and_fetches_nothing() {
        let mut records = Records::default();
        records.add(Record::Run(run(&["Ferrovia", "A<script>"])));
        for bytes in [0, 8, 64] {
            records.add(Record::Point(point("Ferrovia", row(bytes), 0, &[1000.0])));
            records.add(Record::Point(point("A<script>", row(bytes), 0, &[3000.0])));
        }
        records.add(Record::Failure(Failure {
            test: "idle".into(),
            library: "A<script>".into(),
            ranks: 2,
            reason: "x < y".into(),
        }));
        let text = page("A & B", &records, &Suite::everything().unwrap());
        assert_eq!(text.matches("<figure>").count(), 1);
        assert_eq!(text.matches("<svg").count(), text.matches("</svg>").count());
        assert_eq!(text.matches("<section").count(), text.matches("</section>").count());
        assert_eq!(text.matches("<script>").count(), 1, "names are escaped");
        assert!(text.contains("3.00 times better than A&lt;script&gt;") && text.contains("A &amp; B"));
        for word in ["http:", "https:", "src=", "@import", "url("] {
            assert!(!text.contains(word), "{word} fetches something");
        }
    }
}
