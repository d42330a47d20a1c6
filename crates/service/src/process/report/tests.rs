use super::*;

#[test]
fn a_report_is_one_line_whatever_names_contain() {
    let report = "WARN 'a\nERROR forged\r\u{1b}[2J\u{202e}\u{200b}\u{2028}ö'\n";
    let expected = "WARN 'a\\nERROR forged\\r\\u{1b}[2J\\u{202e}\\u{200b}\\u{2028}ö'\n";
    assert_eq!(line(report.as_bytes()), expected);
    assert_eq!(line(b"\xff\n"), "\\xff\n");
}

#[test]
fn a_long_report_is_cut_off() {
    for report in ["a".repeat(1 << 20), "ö\n".repeat(1 << 18)] {
        let line = line(report.as_bytes());
        assert!(line.len() <= LINE_BYTES_MAX, "{} bytes", line.len());
        assert!(line.ends_with(" [cut off]\n"));
    }
}

#[test]
fn the_log_stays_bounded_while_the_service_runs() {
    let directory = std::env::temp_dir().join(format!("service-log-{}", std::process::id()));
    std::fs::create_dir(&directory).unwrap();
    let control = std::fs::File::open(&directory).unwrap().into();
    let mut log = LogFile::open(control).unwrap();
    let mut replaced = 0;
    for number in 0..1000 {
        let line = line(format!("{number} {}", "a/\n".repeat(5000)).as_bytes());
        log.write(line.as_bytes(), |_| replaced += 1).unwrap();
    }
    assert!(replaced > 1);
    let read = |name| std::fs::read_to_string(directory.join(name)).unwrap();
    let kept = read(OLD_NAME) + &read(NAME);
    let files = std::fs::read_dir(&directory).unwrap().count();
    std::fs::remove_dir_all(&directory).unwrap();
    assert_eq!(files, 2);
    assert!(kept.len() as u64 <= 2 * LOG_BYTES_MAX);
    assert!(kept.len() as u64 > LOG_BYTES_MAX, "the newest lines stay");
    let numbers = kept.lines().map(|line| line.split_once(' ').unwrap().0);
    let first = 1000 - kept.lines().count();
    let expected = (first..1000).map(|number| number.to_string());
    assert!(numbers.eq(expected));
}
