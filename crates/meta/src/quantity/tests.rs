use super::*;
use proptest::prelude::*;

fn canonical(text: &str) -> String {
    Quantity::parse(text).unwrap_or_else(|e| panic!("{text}: {e}")).to_string()
}

#[test]
fn texts_become_canonical() {
    // (written, printed), the printed ones as upstream's kube-apiserver answers them.
    let cases = [
        ("0", "0"),
        ("1", "1"),
        ("1.5Gi", "1536Mi"),
        ("1500m", "1500m"),
        ("1000m", "1"),
        ("2000Mi", "2000Mi"),
        ("1024Mi", "1Gi"),
        ("0.5", "500m"),
        ("0.1m", "100u"),
        ("1e3", "1e3"),
        ("1000e0", "1e3"),
        ("12E3", "12E3"),
        ("1E", "1E"),
        ("1Ei", "1Ei"),
        ("8Ei", "9223372036854775807"),
        ("100Ki", "100Ki"),
        ("512", "512"),
        ("0.5Ki", "512"),
        ("-5Gi", "-5Gi"),
        ("-1.5Gi", "-1536Mi"),
        ("0.1Ki", "102400m"),
        ("1n", "1n"),
        ("0.1n", "1n"),
        ("-0.1n", "-1n"),
        ("1.23456789012", "1234567891n"),
        ("100000k", "100M"),
        ("1000E", "1e21"),
        ("12345678901234567890", "12345678901234567890"),
        ("0.0000001Gi", "107374182400n"),
        ("m", "0"),
        ("01", "01"),
        ("+5", "+5"),
        ("1.500", "1.500"),
        ("00.5", "500m"),
        ("5.", "5."),
        ("2048Ki", "2Mi"),
        ("1028Ki", "1028Ki"),
    ];
    for (written, printed) in cases {
        assert_eq!(canonical(written), printed, "{written}");
    }
}

#[test]
fn bad_texts_name_the_part_that_is_wrong() {
    for text in ["", "lots", "1 Gi", "1x", "1.2.3"] {
        assert_eq!(Quantity::parse(text), Err(ParseQuantityError::Format), "{text}");
    }
    for text in ["1i", "1ki", "1Gii", "1e", "1mm", "--1"] {
        assert_eq!(Quantity::parse(text), Err(ParseQuantityError::Suffix), "{text}");
    }
}

#[test]
fn values_round_away_from_zero() {
    let q = |text: &str| Quantity::parse(text).unwrap();
    assert_eq!(q("1500m").value(), 2);
    assert_eq!(q("-1500m").value(), -2);
    assert_eq!(q("1500m").milli_value(), 1500);
    assert_eq!(q("1u").milli_value(), 1);
    assert_eq!(q("1.5Gi").value(), 1610612736);
    assert_eq!(q("1e30").value(), i64::MAX);
    assert_eq!(q("100m").as_i64(), None);
    assert_eq!(q("3k").as_i64(), Some(3000));
    let mut rounded = q("100u");
    assert!(!rounded.round_up(scale::MILLI));
    assert_eq!(rounded.to_string(), "1m");
}

#[test]
fn arithmetic_keeps_the_first_format() {
    let q = |text: &str| Quantity::parse(text).unwrap();
    let mut sum = q("1Gi");
    sum.add(&q("500M"));
    assert_eq!(sum.to_string(), "1573741824");
    let mut zero = Quantity::default();
    zero.add(&q("1Gi"));
    assert_eq!(zero.to_string(), "1Gi");
    let mut difference = q("1");
    difference.sub(&q("1500m"));
    assert_eq!(difference.to_string(), "-500m");
    let mut product = q("100m");
    assert!(product.mul(15));
    assert_eq!(product.to_string(), "1500m");
    product.neg();
    assert_eq!(product.to_string(), "-1500m");
}

#[test]
fn amounts_compare_by_value() {
    let q = |text: &str| Quantity::parse(text).unwrap();
    assert_eq!(q("1"), q("1000m"));
    assert_eq!(q("1Ki"), q("1024"));
    assert!(q("1Gi") > q("1G"));
    assert!(q("-1") < q("0"));
    assert!(q("-2") < q("-1"));
    assert!(q("1e40") > q("9999999999999999999999999999999999999"));
    assert!(q("1n") > q("0"));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn canonical_texts_parse_to_the_same_amount(mantissa in any::<i64>(), exponent in -9i32..18, format in 0u8..3) {
        let format = [Format::DecimalSi, Format::BinarySi, Format::DecimalExponent][format as usize];
        // Binary amounts are capped at 63 bits when read.
        let exponent = if format == Format::BinarySi { exponent.min(0) } else { exponent };
        let quantity = Quantity { mantissa: i128::from(mantissa), exponent, format, verbatim: None };
        let parsed = Quantity::parse(&quantity.canonical()).unwrap();
        prop_assert_eq!(&parsed, &quantity);
        // A binary amount that prints in decimal units comes back as a decimal one.
        if parsed.format == quantity.format {
            prop_assert_eq!(parsed.canonical(), quantity.canonical());
        }
    }

    #[test]
    fn adding_and_subtracting_is_identity(a in any::<i32>(), b in any::<i32>(), ea in -9i32..9, eb in -9i32..9) {
        let q = |m: i32, e: i32| Quantity { mantissa: i128::from(m), exponent: e, ..Quantity::default() };
        let (a, b) = (q(a, ea), q(b, eb));
        let mut c = a.clone();
        c.add(&b);
        c.sub(&b);
        prop_assert_eq!(c, a);
    }

    #[test]
    fn any_text_parses_or_fails_without_panic(text in "[-+]?[0-9.]{0,50}[eEinumkKMGTP]{0,2}[-+]?[0-9]{0,9}") {
        if let Ok(quantity) = Quantity::parse(&text) {
            let _ = (quantity.to_string(), quantity.value(), quantity.milli_value());
        }
    }

    /// Decoding has its own canonicaliser, which works on text alone; both must agree.
    #[test]
    fn decoding_and_arithmetic_agree_on_the_canonical_text(
        text in "[-+]?(0|[1-9][0-9]{0,20}|0?[.][0-9]{1,12}|[0-9]{1,9}[.][0-9]{0,12})(n|u|m||k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|e-?[0-9]|E-?[0-9])"
    ) {
        let ours = Quantity::parse(&text).map(|q| q.to_string()).map_err(|e| e.to_string());
        let theirs = wheelhouse_schema::canonical_quantity(&text).map_err(|e| e.to_string());
        prop_assert_eq!(ours, theirs, "{}", text);
    }
}
