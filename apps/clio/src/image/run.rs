//! [`run`]: clients that compress and decompress their photographs at the same time, and check every pixel.

use std::path::PathBuf;

use crate::{AppError, Costs, Meter, Tally, together};
use serde::Serialize;
use yonder::clib::Process;

use crate::image::{Album, AlbumShape, Photo, paint};

/// Settings of a run.
#[derive(Clone, Debug)]
pub struct ImageSettings {
    /// The memory node.
    pub node: String,
    /// Clients at the same time; one result for each number.
    pub clients: Vec<usize>,
    /// Photographs of each client.
    pub photos: u64,
    /// Width and height of photographs that are made up.
    pub side: u32,
    /// PNG, PPM or PGM files to use instead; clients take them in turn.
    pub files: Vec<PathBuf>,
}

impl ImageSettings {
    /// The paper's photographs, of 256 x 256 pixels; fewer of them.
    #[must_use]
    pub fn new(node: String) -> Self {
        Self { node, clients: vec![1, 2, 4], photos: 50, side: 256, files: Vec::new() }
    }
}

/// What clients have done. The fields are a contract with scripts.
#[derive(Clone, Debug, Serialize)]
pub struct ImageResult {
    /// Always `image`.
    pub bench: &'static str,
    /// The memory node.
    pub node: String,
    /// Clients at the same time, each with an address space of its own.
    pub clients: usize,
    /// Photographs of each client.
    pub photos: u64,
    /// `painted` or `files`.
    pub source: &'static str,
    /// Bytes of all originals.
    pub original_bytes: u64,
    /// Bytes of all compressed photographs.
    pub compressed_bytes: u64,
    /// Photographs compressed and decompressed per second, of all clients together.
    pub photos_per_s: f64,
    /// Seconds that a client took for its photographs, on average.
    pub seconds_per_client: f64,
    /// What compressing and decompressing took: an operation is one of these.
    #[serde(flatten)]
    pub costs: Costs,
}

/// Measures each number of clients.
pub fn run(settings: &ImageSettings, progress: &mut dyn FnMut(&str, f64)) -> Result<Vec<ImageResult>, AppError> {
    check(settings)?;
    let files: Vec<Photo> = settings.files.iter().map(|path| Photo::open(path)).collect::<Result<_, _>>()?;
    let mut results = Vec::new();
    for (done, clients) in settings.clients.iter().enumerate() {
        progress(&format!("{clients} clients"), done as f64 / settings.clients.len() as f64);
        results.push(measure(settings, *clients, &files)?);
    }
    Ok(results)
}

fn check(settings: &ImageSettings) -> Result<(), AppError> {
    let wrong = |what: &str| Err(AppError::Settings(what.to_owned()));
    if settings.clients.is_empty() || settings.clients.contains(&0) {
        return wrong("no clients, no photographs: type --clients 1 or more");
    }
    if settings.photos == 0 {
        return wrong("there is nothing to compress: type --photos 1 or more");
    }
    if !(1..=8192).contains(&settings.side) {
        return wrong("photographs are 1 to 8192 pixels wide: type --side 256");
    }
    Ok(())
}

/// A client, its photographs, and the album that they go through.
struct Client {
    meter: Meter,
    album: Album,
    photos: Vec<Photo>,
    tally: Tally,
    compressed_bytes: u64,
    seconds: f64,
    /// The address space ends with it, so it is dropped last.
    _process: Process,
}

impl Client {
    fn prepare(settings: &ImageSettings, number: u64, files: &[Photo]) -> Result<Self, AppError> {
        let photo = |index: u64| match files {
            [] => paint(number * settings.photos + index, settings.side, settings.side),
            files => files[((number + index) % files.len() as u64) as usize].clone(),
        };
        let photos: Vec<Photo> = (0..settings.photos).map(photo).collect();
        let photo_bytes_max = photos.iter().map(Photo::bytes).max().unwrap_or(0) as u64;
        let process = Process::create(&settings.node)?;
        let mut meter = Meter::new(&process)?;
        let album = Album::create(AlbumShape { photos: settings.photos, photo_bytes_max }, &mut meter)?;
        for (index, photo) in (0..).zip(&photos) {
            album.put(index, photo, &mut meter)?;
        }
        let (tally, compressed_bytes, seconds) = (Tally::default(), 0, 0.0);
        Ok(Self { meter, album, photos, tally, compressed_bytes, seconds, _process: process })
    }

    fn work(mut self) -> Result<Self, AppError> {
        let (album, start) = (&self.album, yonder::clock::now());
        for index in 0..self.photos.len() as u64 {
            let compressed = self.tally.time(&mut self.meter, |meter| album.compress(index, meter))?;
            self.compressed_bytes += compressed.ok_or(AppError::WrongValues(1))?;
            // Only what is decompressed can be found there afterwards.
            album.forget(index, &mut self.meter)?;
        }
        for index in 0..self.photos.len() as u64 {
            self.tally.time(&mut self.meter, |meter| album.decompress(index, meter))?;
        }
        self.seconds = (yonder::clock::now() - start) as f64 / 1e9;
        Ok(self)
    }

    /// Photographs that are not what they were.
    fn wrong(&mut self) -> Result<u64, AppError> {
        let mut wrong = 0;
        for (index, photo) in (0..).zip(&self.photos) {
            wrong += u64::from(self.album.get(index, &mut self.meter)?.as_ref() != Some(photo));
        }
        Ok(wrong)
    }
}

fn measure(settings: &ImageSettings, clients: usize, files: &[Photo]) -> Result<ImageResult, AppError> {
    let prepared = (0..clients as u64).map(|number| Client::prepare(settings, number, files));
    let prepared: Vec<Client> = prepared.collect::<Result<_, _>>()?;
    let (mut ended, seconds) = together(prepared, Client::work)?;
    let mut wrong = 0;
    for client in &mut ended {
        wrong += client.wrong()?;
    }
    if wrong > 0 {
        return Err(AppError::WrongValues(wrong));
    }
    let photos = clients as u64 * settings.photos;
    Ok(ImageResult {
        bench: "image",
        node: settings.node.clone(),
        clients,
        photos: settings.photos,
        source: if files.is_empty() { "painted" } else { "files" },
        original_bytes: ended.iter().flat_map(|client| &client.photos).map(|photo| photo.bytes() as u64).sum(),
        compressed_bytes: ended.iter().map(|client| client.compressed_bytes).sum(),
        photos_per_s: photos as f64 / seconds,
        seconds_per_client: ended.iter().map(|client| client.seconds).sum::<f64>() / clients as f64,
        costs: ended.iter().map(|client| &client.tally).collect::<Tally>().costs(seconds),
    })
}
