//! Histograms of block characters.

const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Counts as columns of blocks, `height` lines from the top; the tallest column is full. A bin
/// with anything in it shows at least the lowest block.
///
/// ```
/// assert_eq!(prism_report::bars(&[0, 1, 8, 4], 1), [" ▁█▄"]);
/// ```
pub fn bars(counts: &[usize], height: usize) -> Vec<String> {
    let top = counts.iter().copied().max().unwrap_or(0).max(1);
    let levels: Vec<usize> = counts
        .iter()
        .map(|&c| {
            let level = (c as f64 / top as f64 * (8 * height) as f64).round() as usize;
            if c > 0 { level.max(1) } else { 0 }
        })
        .collect();
    (0..height)
        .rev()
        .map(|line| levels.iter().map(|l| EIGHTHS[l.saturating_sub(8 * line).min(8)]).collect())
        .collect()
}

/// Counts as one line of blocks.
pub fn sparkline(counts: &[usize]) -> String {
    bars(counts, 1).concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_eighths_of_all_lines_add_up_to_the_share_of_the_tallest() {
        let counts = [0, 1, 10, 37, 100, 63, 5];
        let lines: Vec<Vec<char>> = bars(&counts, 4).iter().map(|l| l.chars().collect()).collect();
        assert_eq!(lines.len(), 4);
        for (i, &c) in counts.iter().enumerate() {
            let eighths: usize = lines
                .iter()
                .map(|l| EIGHTHS.iter().position(|e| *e == l[i]).unwrap_or(usize::MAX))
                .sum();
            let exact = c as f64 / 100.0 * 32.0;
            assert!((eighths as f64 - exact).abs() <= 0.7, "{c}: {eighths} eighths for {exact}");
            assert_eq!(c > 0, eighths > 0, "an occupied bin is seen");
        }
        // No column floats: where a line has something, the one below is full.
        for pair in lines.windows(2) {
            for (above, below) in pair[0].iter().zip(&pair[1]) {
                assert!(*above == ' ' || *below == '█');
            }
        }
    }

    #[test]
    fn nothing_counted_is_blank() {
        assert_eq!(bars(&[0, 0], 2), ["  ", "  "]);
        assert_eq!(sparkline(&[]), "");
    }
}
