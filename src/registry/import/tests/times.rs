//! Times in files of other programs: as numbers, and as text.

use super::*;

#[test]
fn times_are_read_in_milliseconds_and_seconds() {
    for (value, expected) in [
        (json!(1_700_000_000_123_u64), Some(1_700_000_000_123)),
        (json!(1_700_000_000), Some(1_700_000_000_000)),
        (json!(1_700_000_000.25), Some(1_700_000_000_250)),
        (json!(1_700_000_000_123.5), Some(1_700_000_000_123)),
        (json!(0), Some(0)),
        (json!(-5), None),
        (json!(-5.5), None),
        (json!(1e18), None),
        (json!("1700000000"), None),
    ] {
        assert_eq!(time(&value), expected, "{value}");
    }
}

#[test]
fn iso_parses_iso_8601_and_refuses_invalid_dates() {
    for (text, expected) in [
        ("1970-01-01T00:00:00Z", Some(0)),
        ("2023-11-14T22:13:20Z", Some(1_700_000_000_000)),
        ("2023-11-14T22:13:20.123Z", Some(1_700_000_000_123)),
        ("2023-11-14T22:13:20.1Z", Some(1_700_000_000_100)),
        ("2023-11-14T22:13:20.123456789Z", Some(1_700_000_000_123)),
        ("2023-11-15T00:13:20+02:00", Some(1_700_000_000_000)),
        ("2023-11-14T16:43:20-05:30", Some(1_700_000_000_000)),
        ("2000-02-29T00:00:00Z", Some(951_782_400_000)),
        ("2024-02-29T23:59:59Z", Some(1_709_251_199_000)),
        ("2024-03-01T00:00:00Z", Some(1_709_251_200_000)),
        ("2100-03-01T00:00:00Z", Some(4_107_542_400_000)),
        ("9999-12-31T23:59:59.999Z", Some(253_402_300_799_999)),
        ("1970-01-01T00:00:00+00:01", None),
        ("1969-12-31T23:59:59Z", None),
        ("0000-01-01T00:00:00Z", None),
        ("2023-02-29T00:00:00Z", None),
        ("2100-02-29T00:00:00Z", None),
        ("2023-13-01T00:00:00Z", None),
        ("2023-00-01T00:00:00Z", None),
        ("2023-01-00T00:00:00Z", None),
        ("2023-04-31T00:00:00Z", None),
        ("2023-01-01T24:00:00Z", None),
        ("2023-01-01T00:60:00Z", None),
        ("2023-01-01T00:00:60Z", None),
        ("2023-01-01T00:00:00", None),
        ("2023-01-01T00:00:00.Z", None),
        ("2023-01-01T00:00:00.1234567890Z", None),
        ("2023-01-01T00:00:00.123", None),
        ("2023-01-01T00:00:00+24:00", None),
        ("2023-01-01T00:00:00+0200", None),
        ("2023-01-01T00:00:00ZZ", None),
        ("2023-01-01 00:00:00Z", None),
        ("2023-1-1T00:00:00Z", None),
        ("+023-01-01T00:00:00Z", None),
        ("2023-01-01T00:00:00é", None),
        ("2023-01-01T00:00:0éZ", None),
        ("", None),
    ] {
        assert_eq!(iso(text), expected, "{text}");
    }
}

#[test]
fn days_increases_by_one_for_every_day_of_the_calendar() {
    let mut expected = days(1890, 1, 1).unwrap();
    for (year, month) in (1890..2510).flat_map(|year| (1..=12).map(move |month| (year, month))) {
        for day in (1..=31).filter_map(|day| days(year, month, day)) {
            assert_eq!(day, expected, "{year}-{month}");
            expected += 1;
        }
    }
    assert_eq!(days(1970, 1, 1), Some(0));
}
