//! [`Photo`]: pixels, how they lie in far memory, and how they are compressed.

use std::io::Cursor;
use std::path::Path;

use crate::AppError;
use image::codecs::png::{CompressionType, FilterType, PngDecoder, PngEncoder};
use image::{ColorType, DynamicImage, ImageDecoder, ImageEncoder, ImageReader};

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

    /// The picture in a PNG or PPM file. Transparency and more than 8 bits a colour are dropped.
    pub fn open(path: &Path) -> Result<Self, AppError> {
        let failed = |cause: String| AppError::File { path: path.display().to_string(), cause };
        let reader =
            ImageReader::open(path).map_err(|error| failed(format!("{error}; name a file that can be read")))?;
        let reader = reader.with_guessed_format().map_err(|error| failed(error.to_string()))?;
        let decoded = reader.decode();
        let image = decoded.map_err(|error| failed(format!("{error}; name a PNG, PPM or PGM file")))?.into_rgb8();
        Ok(Self::new(image.width(), image.height(), image.into_raw()))
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
        let encoder = PngEncoder::new_with_quality(&mut png, CompressionType::Fast, FilterType::Adaptive);
        let written = encoder.write_image(&self.pixels, self.width, self.height, ColorType::Rgb8.into());
        written.expect("pixels that fill a picture can be written to memory");
        png
    }

    /// The picture in a PNG file, or `None` if these bytes are none, or one of more than `bytes_max` in far memory.
    #[must_use]
    pub fn decompress(png: &[u8], bytes_max: usize) -> Option<Self> {
        let decoder = PngDecoder::new(Cursor::new(png)).ok()?;
        if decoder.total_bytes() > bytes_max as u64 {
            return None;
        }
        let image = DynamicImage::from_decoder(decoder).ok()?.into_rgb8();
        Some(Self::new(image.width(), image.height(), image.into_raw()))
    }
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
