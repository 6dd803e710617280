//! `snappy-compress` and `snappy-decompress` (DiLOS, figures 7c and 7d): `size` bytes of text in chunks that stay in
//! memory.
//!
//! The text is words of a made-up language, some of them frequent. Compression is that of the `snap` crate, which
//! writes the format of Google's library.

use rand::Rng as _;
use snap::raw::{Decoder, Encoder, max_compress_len};

use crate::checksum::Checksum;
use crate::random::{Random, Use, generator};
use crate::result::{Details, Outcome, Settings, WorkloadError, require, timed};

/// Bytes of a chunk of text.
const CHUNK_BYTES: usize = 1 << 20;
/// Words of the language.
const WORDS: usize = 2048;
/// Words on a line.
const LINE_WORDS: usize = 12;
const DAMAGED: &str = "a chunk cannot be decompressed";

type Chunks = Vec<Vec<u8>>;

/// Text to compressed text. Both are in memory at the end.
pub(crate) fn run_compress(settings: &Settings) -> Result<Outcome, WorkloadError> {
    let bytes = settings.count_of(1, 1024)?;
    let (text, setup_seconds) = timed(|| Text::new(settings.seed).chunks(bytes).collect::<Chunks>());
    let (compressed, seconds) = timed(|| compress_all(&text));
    let back = decompress_all(&compressed)?;
    require(|| back == text, "the text is another after compression and decompression")?;
    Ok(outcome(&text, &compressed, &compressed, [seconds, setup_seconds]))
}

/// Compressed text to text. Both are in memory at the end.
pub(crate) fn run_decompress(settings: &Settings) -> Result<Outcome, WorkloadError> {
    let bytes = settings.count_of(1, 1024)?;
    let (compressed, setup_seconds) = timed(|| compress_all(Text::new(settings.seed).chunks(bytes)));
    let (text, seconds) = timed(|| decompress_all(&compressed));
    let text = text?;
    // Made again rather than kept, so that it does not count as memory of this workload.
    let is_same = || Text::new(settings.seed).chunks(bytes).zip(&text).all(|(one, other)| one == *other);
    require(is_same, "the text is not that which was compressed")?;
    Ok(outcome(&text, &compressed, &text, [seconds, setup_seconds]))
}

fn outcome(text: &Chunks, compressed: &Chunks, result: &Chunks, [seconds, setup_seconds]: [f64; 2]) -> Outcome {
    let bytes = |chunks: &Chunks| chunks.iter().map(|chunk| chunk.len() as u64).sum::<u64>();
    let (text_bytes, compressed_bytes) = (bytes(text), bytes(compressed));
    let mut check = Checksum::new();
    result.iter().for_each(|chunk| check.add_bytes(chunk));
    Outcome {
        bytes: text_bytes + compressed_bytes,
        seconds,
        setup_seconds,
        check: check.text(),
        details: Details::Snappy { chunks: text.len(), text_bytes, compressed_bytes },
    }
}

fn compress_all<T: AsRef<[u8]>>(text: impl IntoIterator<Item = T>) -> Chunks {
    let mut encoder = Encoder::new();
    let mut buffer = vec![0; max_compress_len(CHUNK_BYTES)];
    let mut compress = |chunk: T| {
        let length = encoder.compress(chunk.as_ref(), &mut buffer).expect("the buffer has room for a chunk");
        buffer[..length].to_vec()
    };
    text.into_iter().map(&mut compress).collect()
}

fn decompress_all(compressed: &Chunks) -> Result<Chunks, WorkloadError> {
    let mut decoder = Decoder::new();
    let chunks = compressed.iter().map(|chunk| decoder.decompress_vec(chunk));
    chunks.collect::<Result<Chunks, _>>().map_err(|_| WorkloadError::Wrong(DAMAGED))
}

/// An endless text.
struct Text {
    words: Vec<Vec<u8>>,
    random: Random,
}

impl Text {
    fn new(seed: u64) -> Self {
        let mut random = generator(seed, Use::Values);
        let word = |random: &mut Random| {
            let letters = random.random_range(2..=10);
            (0..letters).map(|_| random.random_range(b'a'..=b'z')).collect()
        };
        let words = (0..WORDS).map(|_| word(&mut random)).collect();
        Self { words, random }
    }

    /// The first `bytes`, in chunks of which the last may be shorter.
    fn chunks(mut self, bytes: usize) -> impl Iterator<Item = Vec<u8>> {
        let starts = (0..bytes).step_by(CHUNK_BYTES);
        starts.map(move |start| self.chunk(CHUNK_BYTES.min(bytes - start)))
    }

    fn chunk(&mut self, bytes: usize) -> Vec<u8> {
        let mut chunk = Vec::with_capacity(bytes);
        let mut written = 0;
        while chunk.len() < bytes {
            written += 1;
            let end = if written % LINE_WORDS == 0 { b'\n' } else { b' ' };
            let room = bytes - chunk.len();
            let word = self.word();
            chunk.extend(word.iter().copied().chain([end]).take(room));
        }
        chunk
    }

    /// A word; the first ones of the language come most often.
    fn word(&mut self) -> &[u8] {
        let draw = self.random.random_range(0..WORDS * WORDS);
        let skewed = draw / WORDS * (draw % WORDS) / WORDS;
        &self.words[skewed]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_come_back_as_they_were_and_the_last_is_shorter() {
        let bytes = CHUNK_BYTES + 1234;
        let text: Chunks = Text::new(3).chunks(bytes).collect();
        assert_eq!(text.iter().map(Vec::len).collect::<Vec<_>>(), [CHUNK_BYTES, 1234]);
        let compressed = compress_all(&text);
        let total: usize = compressed.iter().map(Vec::len).sum();
        assert!((bytes / 5..bytes * 4 / 5).contains(&total), "text of {bytes} bytes became {total}");
        assert_eq!(decompress_all(&compressed).unwrap(), text);
    }

    #[test]
    fn text_is_lines_of_words() {
        let chunk = Text::new(1).chunk(10_000);
        let text = std::str::from_utf8(&chunk).unwrap();
        let first = text.lines().next().unwrap();
        assert_eq!(first.split(' ').count(), LINE_WORDS, "{first}");
        assert!(text.lines().count() > 50);
    }

    #[test]
    fn a_damaged_chunk_is_an_error() {
        let mut compressed = compress_all(Text::new(1).chunks(5000));
        compressed[0].truncate(1000);
        assert_eq!(decompress_all(&compressed), Err(WorkloadError::Wrong(DAMAGED)));
    }
}
