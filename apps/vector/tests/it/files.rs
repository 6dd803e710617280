//! Files of vectors: whole, cut off, mixed and hostile.

use std::fs;

use proptest::prelude::*;
use yonder_vector::{DIMENSION_MAX, Format, Problem, Vectors};

/// Vectors as they stand in a file.
fn encode(vectors: &Vectors, format: Format) -> Vec<u8> {
    (0..vectors.count()).flat_map(|at| record(vectors.get(at), format)).collect()
}

fn record(vector: &[f32], format: Format) -> Vec<u8> {
    let mut bytes = (vector.len() as i32).to_le_bytes().to_vec();
    match format {
        Format::Bytes => bytes.extend(vector.iter().map(|number| *number as u8)),
        Format::Floats => bytes.extend(vector.iter().flat_map(|number| number.to_le_bytes())),
    }
    bytes
}

fn format() -> impl Strategy<Value = Format> {
    prop_oneof![Just(Format::Bytes), Just(Format::Floats)]
}

/// Some vectors of bytes, which both formats have.
fn vectors() -> impl Strategy<Value = Vectors> {
    (1_usize..20, 1_usize..30).prop_flat_map(|(dimension, count)| {
        prop::collection::vec(any::<u8>(), dimension * count)
            .prop_map(move |numbers| Vectors::new(dimension, numbers.into_iter().map(f32::from).collect()))
    })
}

proptest! {
    #[test]
    fn what_was_written_is_read_and_no_more_than_asked_for(vectors in vectors(), format in format(), count_max in 1_usize..40) {
        let read = Vectors::read(&encode(&vectors, format)[..], format, count_max).unwrap();
        let kept = count_max.min(vectors.count()) * vectors.dimension();
        prop_assert_eq!(read, Vectors::new(vectors.dimension(), vectors.numbers()[..kept].to_vec()));
    }

    #[test]
    fn a_file_that_is_cut_off_is_seen_wherever_that_is(vectors in vectors(), format in format(), cut in any::<prop::sample::Index>()) {
        let all = encode(&vectors, format);
        let record_bytes = all.len() / vectors.count();
        let cut = cut.index(all.len());
        match Vectors::read(&all[..cut], format, usize::MAX) {
            Ok(read) => {
                prop_assert!(cut.is_multiple_of(record_bytes));
                prop_assert_eq!(read.count(), cut / record_bytes);
            }
            Err(Problem::Truncated(vector)) => {
                prop_assert!(!cut.is_multiple_of(record_bytes));
                prop_assert_eq!(vector, cut / record_bytes);
            }
            Err(problem) => prop_assert!(cut == 0 && matches!(problem, Problem::Empty), "{}", problem),
        }
    }

    #[test]
    fn vectors_of_another_length_are_seen(vectors in vectors(), format in format(), at in any::<prop::sample::Index>(), other in 1_usize..40) {
        let (first, at) = (vectors.dimension(), at.index(vectors.count()) + 1);
        prop_assume!(other != first);
        let mut all = encode(&Vectors::new(first, vectors.numbers()[..at * first].to_vec()), format);
        all.extend(record(&vec![1.0; other], format));
        let problem = Vectors::read(&all[..], format, usize::MAX).unwrap_err();
        let is_it = matches!(problem, Problem::Mixed { vector, dimension, first: seen } if (vector, dimension, seen) == (at, other, first));
        prop_assert!(is_it, "{}", problem);
        // What is not asked for is not looked at.
        prop_assert_eq!(Vectors::read(&all[..], format, at).unwrap().count(), at);
    }

    #[test]
    fn whatever_a_file_has_its_vectors_are_finite_and_whole(bytes in prop::collection::vec(any::<u8>(), 0..400), small in any::<bool>(), format in format()) {
        let mut bytes = bytes;
        if small && bytes.len() >= 4 {
            // Else almost no length is one that can be.
            bytes[1..4].fill(0);
        }
        if let Ok(read) = Vectors::read(&bytes[..], format, 50) {
            prop_assert!((1..=50).contains(&read.count()) && read.dimension() <= DIMENSION_MAX);
            prop_assert_eq!(read.numbers().len(), read.count() * read.dimension());
            prop_assert!(read.numbers().iter().all(|number| number.is_finite()));
        }
    }
}

#[test]
fn the_errors_name_the_file_and_say_what_to_give() {
    let folder = tempfile::tempdir().unwrap();
    let error = |name: &str, bytes: &[u8]| {
        let file = folder.path().join(name);
        fs::write(&file, bytes).unwrap();
        let error = Vectors::open(&file, 100).unwrap_err().to_string();
        assert!(error.contains(name) && !error.contains('\n'), "{error}");
        error.split_once(": ").unwrap().1.to_owned()
    };
    assert_eq!(error("learn.vecs", &[]), "cannot tell what is in it: give a file whose name ends in .bvecs or .fvecs");
    assert!(error("none.bvecs", &[]).starts_with("has no vectors"));
    assert!(error("cut.bvecs", &[2, 0, 0, 0, 7]).starts_with("ends in the middle of vector 0"));
    assert!(error("head.bvecs", &[0]).starts_with("ends in the middle of vector 0"), "of its length");
    assert!(error("zero.bvecs", &[0; 4]).starts_with("vector 0 would have 0 numbers"));
    assert!(error("long.fvecs", &[0, 0, 1, 1]).starts_with("vector 0 would have 16842752 numbers"));
    assert!(error("negative.fvecs", &[255; 4]).starts_with("vector 0 would have -1 numbers"));
    let two = [record(&[1.0, 2.0], Format::Floats), record(&[1.0, f32::INFINITY], Format::Floats)].concat();
    assert!(error("infinite.fvecs", &two).starts_with("vector 1 has a number that is not finite"));
    let missing = Vectors::open(&folder.path().join("missing.bvecs"), 1).unwrap_err().to_string();
    assert!(missing.contains("missing.bvecs: cannot be read: "), "{missing}");
    let good = folder.path().join("good.bvecs");
    fs::write(&good, encode(&Vectors::new(3, vec![0.0, 128.0, 255.0]), Format::Bytes)).unwrap();
    assert_eq!(Vectors::open(&good, 5).unwrap(), Vectors::new(3, vec![0.0, 128.0, 255.0]));
    assert!(matches!(Vectors::open(&good, 0).unwrap_err().problem, Problem::Empty));
}
