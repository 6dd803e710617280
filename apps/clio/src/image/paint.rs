//! [`paint`]: pictures that look like photographs to a compressor: a sky, shapes with edges, and the noise of a camera.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::image::Photo;

/// Ellipses in a picture.
const SHAPES: usize = 12;
/// The camera's noise, up and down, in steps of a colour.
const NOISE: i32 = 3;

struct Ellipse {
    centre: (f32, f32),
    radius: (f32, f32),
    colour: [f32; 3],
}

impl Ellipse {
    fn random(random: &mut SmallRng) -> Self {
        Self {
            centre: (random.random(), random.random()),
            radius: (random.random_range(0.03..0.3), random.random_range(0.03..0.3)),
            colour: [(); 3].map(|()| random.random_range(0.0..255.0)),
        }
    }

    /// 0 at the centre, 1 at the edge.
    fn distance(&self, (x, y): (f32, f32)) -> f32 {
        let (across, down) = ((x - self.centre.0) / self.radius.0, (y - self.centre.1) / self.radius.1);
        (across * across + down * down).sqrt()
    }
}

/// A picture; the same for the same arguments, always.
#[must_use]
pub fn paint(seed: u64, width: u32, height: u32) -> Photo {
    let mut random = SmallRng::seed_from_u64(seed);
    let corners: [[f32; 3]; 2] = [(); 2].map(|()| [(); 3].map(|()| random.random_range(0.0..255.0)));
    let shapes: Vec<Ellipse> = (0..SHAPES).map(|_| Ellipse::random(&mut random)).collect();
    let mut pixels = Vec::with_capacity(width as usize * height as usize * 3);
    for line in 0..height {
        for column in 0..width {
            let at = (column as f32 / width as f32, line as f32 / height as f32);
            let shape = shapes.iter().find(|shape| shape.distance(at) < 1.0);
            let sky = [0, 1, 2].map(|colour| corners[0][colour] * (1.0 - at.1) + corners[1][colour] * at.1);
            // A shape is darker towards its edge.
            let dark = |shape: &Ellipse| shape.colour.map(|colour| colour * (1.0 - 0.5 * shape.distance(at)));
            for light in shape.map_or(sky, dark) {
                let seen = light as i32 + random.random_range(-NOISE..=NOISE);
                pixels.push(seen.clamp(0, 255) as u8);
            }
        }
    }
    Photo::new(width, height, pixels)
}
