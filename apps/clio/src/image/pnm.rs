//! Pictures in PPM and PGM files: numbers in text or in bytes, behind a head in text.

use crate::image::Photo;

/// Most columns and most lines of a picture.
const SIDE_MAX: u32 = 1 << 16;

/// The picture in such a file, or `None` if these bytes are none. More than 8 bits a colour are dropped.
pub(crate) fn decode(bytes: &[u8]) -> Option<Photo> {
    let (magic, rest) = bytes.split_first_chunk::<2>()?;
    let (in_text, colours) = match magic {
        b"P2" => (true, 1),
        b"P3" => (true, 3),
        b"P5" => (false, 1),
        b"P6" => (false, 3),
        _ => return None,
    };
    let mut text = Text { rest };
    let [width, height] = [text.number()?, text.number()?];
    let brightest = text.number().filter(|number| (1..=u32::from(u16::MAX)).contains(number))?;
    if width == 0 || height == 0 || width > SIDE_MAX || height > SIDE_MAX {
        return None;
    }
    let count = width as usize * height as usize * colours;
    let values: Vec<u32> = if in_text {
        // Each takes two characters, so that what is reserved is bounded by the file.
        (text.rest.len() / 2 + 1 >= count).then(|| (0..count).map(|_| text.number()).collect::<Option<_>>())??
    } else {
        // One white space ends the head.
        let bytes = text.rest.get(1..)?;
        if brightest < 256 {
            bytes.get(..count)?.iter().map(|value| u32::from(*value)).collect()
        } else {
            let pairs = bytes.get(..count * 2)?.chunks_exact(2);
            pairs.map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).collect()
        }
    };
    let scaled = values.iter().map(|value| ((value.min(&brightest) * 255 + brightest / 2) / brightest) as u8);
    let pixels = if colours == 3 { scaled.collect() } else { scaled.flat_map(|grey| [grey; 3]).collect() };
    Some(Photo::new(width, height, pixels))
}

/// Numbers with white space and comments between.
struct Text<'a> {
    rest: &'a [u8],
}

impl Text<'_> {
    fn number(&mut self) -> Option<u32> {
        loop {
            match self.rest.first()? {
                b'#' => {
                    let end = self.rest.iter().position(|byte| *byte == b'\n')?;
                    self.rest = &self.rest[end..];
                }
                byte if byte.is_ascii_whitespace() => self.rest = &self.rest[1..],
                _ => break,
            }
        }
        let digits = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (number, rest) = self.rest.split_at(digits);
        self.rest = rest;
        std::str::from_utf8(number).ok()?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_kind_is_read() {
        let coloured = Photo::new(2, 1, vec![1, 2, 3, 4, 5, 6]);
        let grey = Photo::new(2, 1, vec![0, 0, 0, 255, 255, 255]);
        assert_eq!(decode(b"P3\n# two pixels\n2 1\n255\n1 2 3\n4 5 6\n"), Some(coloured.clone()));
        assert_eq!(decode(b"P6 2 1 255\n\x01\x02\x03\x04\x05\x06"), Some(coloured));
        assert_eq!(decode(b"P2 2 1 15 0 15"), Some(grey.clone()));
        assert_eq!(decode(b"P5 2 1 1\n\x00\x01"), Some(grey.clone()));
        assert_eq!(decode(b"P5 2 1 65535\n\x00\x00\xff\xff"), Some(grey));
    }

    #[test]
    fn what_is_no_picture_is_refused() {
        let wrong: [&[u8]; 7] = [
            b"",
            b"P6",
            b"P4 1 1\n\x00",
            b"P6 2 1 255\n\x01\x02",
            b"P5 1 1 0\n\x00",
            b"P5 0 1 1\n",
            b"P3 60000 60000 255 1",
        ];
        assert_eq!(wrong.map(decode), [const { None }; 7]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(kind in 1u8..8, bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let file = [&[b'P', b'0' + kind], b" 3 2 255\n".as_slice(), &bytes].concat();
            if let Some(photo) = decode(&file) {
                prop_assert_eq!(photo.size(), (3, 2));
            }
            let _ = decode(&bytes);
        }
    }
}
