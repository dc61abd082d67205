//! The two text exposition formats.

/// A text format in which metrics are served, as the client accepts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExpositionFormat {
    /// OpenMetrics 1.0.0.
    OpenMetrics,
    /// The older Prometheus format 0.0.4.
    Prometheus,
}

impl ExpositionFormat {
    /// The format for these `Accept` headers: Prometheus for a client that accepts plain text but not
    /// explicitly OpenMetrics, otherwise OpenMetrics.
    pub(super) fn accepted<'a>(headers: impl Iterator<Item = &'a str>) -> Self {
        let (mut open, mut plain) = (false, false);
        for range in headers.flat_map(|header| header.split(',')) {
            let mut parts = range.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default();
            if parts.any(refuses) {
                continue;
            }
            open |= kind.eq_ignore_ascii_case("application/openmetrics-text");
            plain |= ["text/plain", "text/html", "text/*"]
                .iter()
                .any(|text| kind.eq_ignore_ascii_case(text));
        }
        if plain && !open {
            Self::Prometheus
        } else {
            Self::OpenMetrics
        }
    }

    /// Value of the `Content-Type` header for a page of this format.
    pub(super) fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// `q=0` means not acceptable (RFC 9110, 12.4.2).
fn refuses(parameter: &str) -> bool {
    parameter
        .strip_prefix("q=")
        .is_some_and(|weight| weight.trim().parse() == Ok(0.0))
}

/// Converts an OpenMetrics page to the Prometheus format. Samples are the same; families have the
/// names of their samples, `info` becomes a gauge, `# UNIT` and `# EOF` are dropped.
pub(super) fn to_prometheus(page: &str) -> String {
    let mut text = String::with_capacity(page.len());
    let mut help = None;
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = Some(rest);
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            describe(&mut text, rest, help.take());
        } else if !line.starts_with('#') {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

fn describe(text: &mut String, name_and_type: &str, help: Option<&str>) {
    let (name, kind) = name_and_type.split_once(' ').unwrap_or((name_and_type, ""));
    let (suffix, kind) = match kind {
        "counter" => ("_total", "counter"),
        "info" => ("_info", "gauge"),
        "unknown" => ("", "untyped"),
        other => ("", other),
    };
    if let Some((_, help)) = help.and_then(|help| help.split_once(' ')) {
        text.push_str(&format!("# HELP {name}{suffix} {help}\n"));
    }
    text.push_str(&format!("# TYPE {name}{suffix} {kind}\n"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format(header: &str) -> ExpositionFormat {
        ExpositionFormat::accepted([header].into_iter())
    }

    #[test]
    fn openmetrics_unless_only_plain_text_is_taken() {
        // Headers of Prometheus 2.42 and 3.1, a browser, curl, and old scrapers.
        for header in [
            "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=0.0.4;q=0.5,*/*;q=0.2",
            "*/*",
            "",
            "application/json",
            "text/plain;q=0",
        ] {
            assert_eq!(format(header), ExpositionFormat::OpenMetrics, "{header}");
        }
        for header in [
            "text/plain;version=0.0.4;q=0.3, */*;q=0.1",
            "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
            "Text/Plain",
            "application/openmetrics-text; q=0, text/plain",
        ] {
            assert_eq!(format(header), ExpositionFormat::Prometheus, "{header}");
        }
        assert_eq!(
            ExpositionFormat::accepted([].into_iter()),
            ExpositionFormat::OpenMetrics
        );
    }

    #[test]
    fn headings_are_rewritten_and_samples_are_not() {
        let page = "# HELP a_seconds Time.\n# TYPE a_seconds counter\n# UNIT a_seconds seconds\n\
                    a_seconds_total{x=\"# TYPE b counter\"} 1.0\n\
                    # HELP b What.\n# TYPE b info\nb_info{y=\"1\"} 1\n# EOF\n";
        let expected = "# HELP a_seconds_total Time.\n# TYPE a_seconds_total counter\n\
                        a_seconds_total{x=\"# TYPE b counter\"} 1.0\n\
                        # HELP b_info What.\n# TYPE b_info gauge\nb_info{y=\"1\"} 1\n";
        assert_eq!(to_prometheus(page), expected);
        assert_eq!(to_prometheus("# TYPE\n# HELP x\n"), "");
    }
}
