//! A figure drawn as SVG. Colours are classes, so that the page's style decides them for light and dark.

use super::figure::{Figure, Mark};
use crate::table::shown;
use std::fmt::Write as _;

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 44.0;
/// Colours of lines; the page's style has as many.
pub const COLOURS: usize = 8;
/// Most labels along the lower axis.
const LABELS_MAX: usize = 9;

/// The text with what HTML would take for markup written out.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Where values stand.
struct Scale {
    low: f64,
    high: f64,
    logarithmic: bool,
}

impl Scale {
    /// Logarithmic if all values are above 0, else linear from 0.
    fn of(values: impl Iterator<Item = f64> + Clone) -> Self {
        let low = values.clone().fold(f64::INFINITY, f64::min);
        let high = values.fold(0.0, f64::max);
        if low > 0.0 && low.is_finite() {
            // Half a decade at least, so that equal values do not fill the picture with noise.
            let (low, high) = (low.log10() - 0.05, high.log10() + 0.05);
            let missing = (0.5 - (high - low)).max(0.0) / 2.0;
            Self { low: low - missing, high: high + missing, logarithmic: true }
        } else {
            Self { low: 0.0, high: if high > 0.0 { high * 1.05 } else { 1.0 }, logarithmic: false }
        }
    }

    fn y(&self, value: f64) -> f64 {
        let value = if self.logarithmic { value.max(1e-300).log10() } else { value };
        let share = ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0);
        HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
    }

    /// Round values within.
    fn ticks(&self) -> Vec<f64> {
        if self.logarithmic {
            let (first, last) = (self.low.floor() as i32, self.high.ceil() as i32);
            let steps: &[f64] = match self.high - self.low {
                decades if decades > 3.0 => &[1.0],
                decades if decades > 1.2 => &[1.0, 3.0],
                _ => &[1.0, 2.0, 3.0, 5.0, 7.0],
            };
            let all = (first..=last).flat_map(|decade| steps.iter().map(move |step| step * 10_f64.powi(decade)));
            return all.filter(|value| (self.low..=self.high).contains(&value.log10())).collect();
        }
        let rough = self.high / 5.0;
        let decade = 10_f64.powf(rough.log10().floor());
        let step =
            [1.0, 2.0, 5.0, 10.0].iter().map(|factor| factor * decade).find(|step| *step >= rough).unwrap_or(rough);
        (0..=6).map(|k| f64::from(k) * step).filter(|value| *value <= self.high).collect()
    }
}

/// Positions along the lower axis: logarithmic, with room for 0.
struct Across {
    low: f64,
    high: f64,
}

impl Across {
    fn of(values: &[f64]) -> Self {
        let places = values.iter().map(|value| (value + 1.0).log2());
        let (low, high) = places.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| (low.min(x), high.max(x)));
        if high > low { Self { low, high } } else { Self { low: low - 1.0, high: high + 1.0 } }
    }

    fn x(&self, value: f64) -> f64 {
        let share = ((value + 1.0).log2() - self.low) / (self.high - self.low);
        LEFT + 8.0 + share * (WIDTH - LEFT - RIGHT - 16.0)
    }
}

/// The figure as an SVG element.
pub fn svg(figure: &Figure) -> String {
    let marks = || figure.series.iter().flat_map(|series| &series.points);
    let up = Scale::of(marks().flat_map(|mark| [mark.y, mark.low, mark.high]));
    let mut positions: Vec<f64> = marks().map(|mark| mark.x).collect();
    positions.sort_by(f64::total_cmp);
    positions.dedup();
    let across = Across::of(&positions);
    let mut text = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">",
        escaped(&format!("{}: {} against {}", figure.title, figure.unit, figure.axis))
    );
    axes(&mut text, figure, &up, &across, &positions);
    for series in &figure.series {
        let class = series.index.map_or_else(|| "floor".to_owned(), |index| format!("s{}", index % COLOURS));
        line(&mut text, &class, &series.points, &up, &across);
    }
    text.push_str("</svg>");
    text
}

fn axes(text: &mut String, figure: &Figure, up: &Scale, across: &Across, positions: &[f64]) {
    let right = WIDTH - RIGHT;
    for tick in up.ticks() {
        let y = up.y(tick);
        let _ = write!(text, "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>");
        let label = LEFT - 6.0;
        let _ = write!(
            text,
            "<text class=\"tick\" x=\"{label}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            y + 4.0,
            amount(tick)
        );
    }
    let every = positions.len().div_ceil(LABELS_MAX).max(1);
    let below = HEIGHT - BOTTOM;
    for position in positions.iter().step_by(every) {
        let x = across.x(*position);
        let _ =
            write!(text, "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{below}\" y2=\"{:.1}\"/>", below + 4.0);
        let y = below + 18.0;
        let label = if figure.axis == "bytes" { binary(*position) } else { position.to_string() };
        let _ = write!(text, "<text class=\"tick\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{label}</text>");
    }
    let middle = f64::midpoint(LEFT, right);
    let _ = write!(
        text,
        "<text class=\"name\" x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
        HEIGHT - 6.0,
        escaped(&figure.axis)
    );
    let _ = write!(
        text,
        "<text class=\"name\" transform=\"translate(13 {:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
        f64::midpoint(TOP, below),
        escaped(&figure.unit)
    );
}

fn line(text: &mut String, class: &str, marks: &[Mark], up: &Scale, across: &Across) {
    let path: Vec<String> = marks.iter().map(|mark| format!("{:.1},{:.1}", across.x(mark.x), up.y(mark.y))).collect();
    let _ = write!(text, "<polyline class=\"{class}\" points=\"{}\"/>", path.join(" "));
    for mark in marks {
        let (x, y) = (across.x(mark.x), up.y(mark.y));
        if mark.high > mark.low {
            let (low, high) = (up.y(mark.low), up.y(mark.high));
            let _ = write!(
                text,
                "<line class=\"bar {class}\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{low:.1}\" y2=\"{high:.1}\"/>"
            );
        }
        let shown = escaped(&mark.text);
        let _ = write!(
            text,
            "<g class=\"mark {class}\" tabindex=\"0\" data-text=\"{shown}\"><circle class=\"reach\" cx=\"{x:.1}\" \
             cy=\"{y:.1}\" r=\"11\"/><circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\"/><title>{shown}</title></g>"
        );
    }
}

/// A tick's label: short.
fn amount(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        value if value >= 1e6 => format!("{}M", value / 1e6),
        value if value >= 1e4 => format!("{}k", value / 1e3),
        value if value < 0.01 => format!("{value:.0e}"),
        value => {
            let text = shown(value);
            if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
        }
    }
}

/// Bytes with a binary prefix.
fn binary(bytes: f64) -> String {
    match bytes {
        bytes if bytes >= 1_048_576.0 => format!("{}M", bytes / 1_048_576.0),
        bytes if bytes >= 1024.0 => format!("{}K", bytes / 1024.0),
        bytes => bytes.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::figure::Series;

    fn figure(points: &[(f64, f64)]) -> Figure {
        let marks = points.iter().map(|(x, y)| Mark { x: *x, y: *y, low: *y, high: *y * 1.1, text: "a <b>".into() });
        Figure {
            test: "t".into(),
            title: "T & U".into(),
            fixed: String::new(),
            axis: "bytes".into(),
            unit: "us".into(),
            more_is_better: false,
            series: vec![Series { name: "A".into(), index: Some(0), points: marks.collect() }],
        }
    }

    #[test]
    fn everything_lies_within_the_picture_and_is_escaped() {
        for points in [vec![(0.0, 0.1), (8.0, 1.0), (4e6, 1e4)], vec![(8.0, 0.0)], vec![(1.0, 5.0), (1.0, 5.0)]] {
            let text = svg(&figure(&points));
            assert!(!text.contains("<b>") && text.contains("T &amp; U") && !text.contains("NaN"), "{text}");
            for (name, limit) in [("cx=\"", WIDTH), ("cy=\"", HEIGHT)] {
                for part in text.split(name).skip(1) {
                    let value: f64 = part.split('"').next().unwrap().parse().unwrap();
                    assert!((0.0..=limit).contains(&value), "{value} of {limit}");
                }
            }
        }
    }

    #[test]
    fn ticks_are_few_and_within() {
        for (low, high) in [(0.1, 0.2), (0.1, 5.0), (1.0, 1e6), (0.0, 100.0)] {
            let scale = Scale::of([low, high].into_iter());
            let ticks = scale.ticks();
            assert!((2..=9).contains(&ticks.len()), "{low} {high}: {ticks:?}");
        }
        assert_eq!((amount(0.1), amount(20_000.0), amount(5.0)), ("0.1".into(), "20k".into(), "5".into()));
        assert_eq!((binary(65536.0), binary(8.0)), ("64K".into(), "8".into()));
    }
}
