//! [`Photo`]: pixels, how they lie in far memory, and how they are compressed.

use std::io::Cursor;
use std::path::Path;

use crate::AppError;
use png::{BitDepth, ColorType, Compression, Decoder, Encoder, Filter, Transformations};

use crate::image::pnm;

/// Bytes of a pixel: red, green, blue.
const PIXEL_BYTES: usize = 3;
/// Bytes before the pixels: width and height, in 4 little-endian bytes each.
const HEAD_BYTES: usize = 8;

/// A picture.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Photo {
    width: u32,
    height: u32,
    pixels: Vec<u8>,
}

impl Photo {
    /// The picture of these pixels, line by line.
    ///
    /// # Panics
    /// If they are not as many as fill it.
    #[must_use]
    pub fn new(width: u32, height: u32, pixels: Vec<u8>) -> Self {
        assert_eq!(pixels.len(), width as usize * height as usize * PIXEL_BYTES, "a picture has pixels for its size");
        Self { width, height, pixels }
    }

    /// The picture in a PNG, PPM or PGM file. Transparency and more than 8 bits a colour are dropped.
    pub fn open(path: &Path) -> Result<Self, AppError> {
        let failed = |cause: String| AppError::File { path: path.display().to_string(), cause };
        let bytes = std::fs::read(path).map_err(|error| failed(format!("{error}; name a file that can be read")))?;
        // Of everything else, the decoder of PNG files says what is wrong.
        let decoded = match pnm::decode(&bytes) {
            Some(photo) => Ok(photo),
            None => decode_png(&bytes, usize::MAX).map_err(|error| error.to_string()),
        };
        decoded.map_err(|cause| failed(format!("{cause}; name a PNG, PPM or PGM file")))
    }

    /// Columns and lines.
    #[must_use]
    pub const fn size(&self) -> (u32, u32) {
        (self.width, self.height)
    }

    /// Bytes that the picture takes in far memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        HEAD_BYTES + self.pixels.len()
    }

    /// The picture as it lies in far memory.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        [&self.width.to_le_bytes(), &self.height.to_le_bytes(), self.pixels.as_slice()].concat()
    }

    /// The picture that lies in far memory so, or `None` if these bytes are none.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (head, pixels) = bytes.split_first_chunk::<HEAD_BYTES>()?;
        let [width, height] = [0, 4].map(|at| head[at..].first_chunk().copied().map_or(0, u32::from_le_bytes));
        let expected = u64::from(width).checked_mul(u64::from(height))?.checked_mul(PIXEL_BYTES as u64)?;
        (expected == pixels.len() as u64).then(|| Self { width, height, pixels: pixels.to_vec() })
    }

    /// The picture as a PNG file.
    #[must_use]
    pub fn compress(&self) -> Vec<u8> {
        let mut png = Vec::with_capacity(self.pixels.len() / 2);
        let mut encoder = Encoder::new(&mut png, self.width, self.height);
        encoder.set_color(ColorType::Rgb);
        encoder.set_depth(BitDepth::Eight);
        encoder.set_compression(Compression::Fast);
        encoder.set_filter(Filter::Adaptive);
        let written = encoder.write_header().and_then(|mut writer| {
            writer.write_image_data(&self.pixels)?;
            writer.finish()
        });
        written.expect("pixels that fill a picture can be written to memory");
        png
    }

    /// The picture in a PNG file, or `None` if these bytes are none, or one of more than `bytes_max` in far memory.
    #[must_use]
    pub fn decompress(png: &[u8], bytes_max: usize) -> Option<Self> {
        decode_png(png, bytes_max).ok()
    }
}

/// The picture in a PNG file. Its pixels, as they are decoded, must not be more than `bytes_max`.
fn decode_png(bytes: &[u8], bytes_max: usize) -> Result<Photo, png::DecodingError> {
    let mut decoder = Decoder::new(Cursor::new(bytes));
    decoder.set_transformations(Transformations::normalize_to_color8());
    let mut reader = decoder.read_info()?;
    let size = reader.output_buffer_size().filter(|size| *size <= bytes_max);
    let mut decoded = vec![0; size.ok_or(png::DecodingError::LimitsExceeded)?];
    let frame = reader.next_frame(&mut decoded)?;
    // Whatever the file has, what comes out has these: grey or three colours, with or without an opacity.
    let pixels = match frame.color_type {
        ColorType::Grayscale => decoded.iter().flat_map(|grey| [*grey; PIXEL_BYTES]).collect(),
        ColorType::GrayscaleAlpha => decoded.chunks_exact(2).flat_map(|pixel| [pixel[0]; PIXEL_BYTES]).collect(),
        ColorType::Rgba => decoded.chunks_exact(4).flat_map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect(),
        ColorType::Rgb | ColorType::Indexed => decoded,
    };
    Ok(Photo::new(frame.width, frame.height, pixels))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::image::paint;

    #[test]
    fn a_painted_photo_is_compressed_and_comes_back() {
        let photo = paint(3, 256, 256);
        let png = photo.compress();
        assert!(png.len() < photo.bytes() * 9 / 10, "{} of {} bytes are no compression", png.len(), photo.bytes());
        assert_eq!(Photo::decompress(&png, photo.bytes()), Some(photo.clone()));
        assert_eq!(Photo::decompress(&png, photo.bytes() / 2), None);
        assert_eq!(Photo::decompress(&png[..png.len() / 2], photo.bytes()), None);
        assert_eq!(Photo::from_bytes(&photo.to_bytes()[1..]), None);
    }

    #[test]
    fn files_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let photo = paint(5, 40, 30);
        let png = folder.path().join("a.png");
        std::fs::write(&png, photo.compress()).unwrap();
        assert_eq!(Photo::open(&png).unwrap(), photo);
        let ppm = folder.path().join("a.ppm");
        std::fs::write(&ppm, [b"P6 2 1 255\n".as_slice(), &[1, 2, 3, 4, 5, 6]].concat()).unwrap();
        assert_eq!(Photo::open(&ppm).unwrap(), Photo::new(2, 1, vec![1, 2, 3, 4, 5, 6]));
        let text = folder.path().join("a.txt");
        std::fs::write(&text, "not a picture").unwrap();
        let refused = Photo::open(&text).unwrap_err().to_string();
        assert!(refused.starts_with(&text.display().to_string()) && refused.ends_with("name a PNG, PPM or PGM file"));
        assert!(Photo::open(&folder.path().join("none.png")).unwrap_err().to_string().contains("can be read"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn any_pixels_come_back(width in 1u32..40, height in 1u32..40, seed: u64) {
            let noise = (0..width * height * 3).map(|at| (seed.wrapping_mul(u64::from(at) * 2 + 1) >> 56) as u8);
            let photo = Photo::new(width, height, noise.collect());
            prop_assert_eq!(Photo::from_bytes(&photo.to_bytes()), Some(photo.clone()));
            prop_assert_eq!(Photo::decompress(&photo.compress(), photo.bytes()), Some(photo));
        }

        #[test]
        fn noise_is_no_photo(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Photo::from_bytes(&bytes);
            prop_assert_eq!(Photo::decompress(&bytes, 1 << 20), None);
        }
    }
}
