//! [`Album`]: one client's photographs in far memory, in an array of originals and an array of compressed ones.
//!
//! Every element of an array has the same size, and begins with the length of what is in it, 8 bytes; 0 if it is empty.

use crate::{AppError, Meter};

use crate::image::Photo;

/// Bytes of the length before what is in an element.
const LENGTH_BYTES: u64 = 8;
/// What PNG adds to pixels that cannot be compressed: headers, and 5 bytes for each stored block and 1 for each line.
const PNG_MARGIN: u64 = 1024;

/// How large an album is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AlbumShape {
    /// Elements of each array.
    pub photos: u64,
    /// Bytes of the largest photograph in far memory, see [`Photo::bytes`].
    pub photo_bytes_max: u64,
}

impl AlbumShape {
    fn original_bytes(self) -> u64 {
        (LENGTH_BYTES + self.photo_bytes_max).next_multiple_of(LENGTH_BYTES)
    }

    fn compressed_bytes(self) -> u64 {
        // One byte for each line is at most a third of the pixels, of a photograph that is one pixel wide.
        (self.original_bytes() + self.photo_bytes_max / 3 + PNG_MARGIN).next_multiple_of(LENGTH_BYTES)
    }
}

/// Photographs of one client.
#[derive(Debug)]
pub struct Album {
    shape: AlbumShape,
    originals: u64,
    compressed: u64,
}

impl Album {
    /// An album without photographs, in memory that is taken when it is first written.
    pub fn create(shape: AlbumShape, meter: &mut Meter) -> Result<Self, AppError> {
        let bytes = |element: u64| element.checked_mul(shape.photos).ok_or_else(too_large);
        let originals = meter.allocate(bytes(shape.original_bytes())?)?;
        let compressed = meter.allocate(bytes(shape.compressed_bytes())?)?;
        Ok(Self { shape, originals, compressed })
    }

    /// Puts a photograph into the array of originals.
    pub fn put(&self, index: u64, photo: &Photo, meter: &mut Meter) -> Result<(), AppError> {
        write_element(self.original(index), self.shape.original_bytes(), &photo.to_bytes(), meter)
    }

    /// The photograph in the array of originals, or `None` if there is none.
    pub fn get(&self, index: u64, meter: &mut Meter) -> Result<Option<Photo>, AppError> {
        let bytes = read_element(self.original(index), self.shape.original_bytes(), meter)?;
        if bytes.is_empty() {
            return Ok(None);
        }
        Photo::from_bytes(&bytes).map(Some).ok_or(AppError::WrongValues(1))
    }

    /// Removes a photograph from the array of originals.
    pub fn forget(&self, index: u64, meter: &mut Meter) -> Result<(), AppError> {
        meter.write(self.original(index), &[0; LENGTH_BYTES as usize])
    }

    /// Compresses an original, and returns how long it has become; `None` if there is none.
    pub fn compress(&self, index: u64, meter: &mut Meter) -> Result<Option<u64>, AppError> {
        let Some(photo) = self.get(index, meter)? else { return Ok(None) };
        let png = photo.compress();
        write_element(self.small(index), self.shape.compressed_bytes(), &png, meter)?;
        Ok(Some(png.len() as u64))
    }

    /// Makes an original of the compressed photograph. Returns whether there was one.
    pub fn decompress(&self, index: u64, meter: &mut Meter) -> Result<bool, AppError> {
        let png = read_element(self.small(index), self.shape.compressed_bytes(), meter)?;
        if png.is_empty() {
            return Ok(false);
        }
        let bytes_max = usize::try_from(self.shape.photo_bytes_max).unwrap_or(usize::MAX);
        let photo = Photo::decompress(&png, bytes_max).ok_or(AppError::WrongValues(1))?;
        self.put(index, &photo, meter).map(|()| true)
    }

    fn original(&self, index: u64) -> u64 {
        assert!(index < self.shape.photos, "photograph {index} of {}", self.shape.photos);
        self.originals + index * self.shape.original_bytes()
    }

    fn small(&self, index: u64) -> u64 {
        assert!(index < self.shape.photos, "photograph {index} of {}", self.shape.photos);
        self.compressed + index * self.shape.compressed_bytes()
    }
}

fn too_large() -> AppError {
    AppError::Settings("the album would be larger than all memory: type fewer or smaller photographs".to_owned())
}

fn write_element(address: u64, element_bytes: u64, content: &[u8], meter: &mut Meter) -> Result<(), AppError> {
    let length = content.len() as u64;
    if LENGTH_BYTES + length > element_bytes {
        return Err(AppError::Settings(format!(
            "a photograph of {length} bytes does not fit the album, whose largest has {}: make the album for larger ones",
            element_bytes - LENGTH_BYTES
        )));
    }
    meter.write(address, &[&length.to_le_bytes(), content].concat())
}

/// What is in an element: its length first, and then as much as there is.
fn read_element(address: u64, element_bytes: u64, meter: &mut Meter) -> Result<Vec<u8>, AppError> {
    let [length] = meter.read_words(address)?;
    if length > element_bytes - LENGTH_BYTES {
        return Err(AppError::WrongValues(1));
    }
    let mut content = vec![0; length as usize];
    meter.read(address + LENGTH_BYTES, &mut content)?;
    Ok(content)
}
