//! [`Swap`]: swap on compressed memory, as the kernel's way to have more than memory holds.
//!
//! Swap on zram that is there is used as it is. Else root gets one on the first unused device, and it is undone when
//! the guard is dropped. Any other swap in front of it would be measured instead, and is refused.

use std::path::{Path, PathBuf};

use super::{first_swap, pages_at_a_time, read_swaps, swap_off, swap_on};

/// Bytes of the device. It takes memory only for what is in it.
const DEVICE_BYTES: u64 = 8 << 30;
/// How somebody who may not do it here gets it.
const MEND: &str = "run this as root, or type `modprobe zram; zramctl /dev/zram0 --size 8GiB; mkswap /dev/zram0; \
                    swapon --priority 32767 /dev/zram0` as root";

/// Swap on zram, until it is dropped.
#[derive(Debug)]
pub(super) struct Swap {
    /// What was set up here, and goes with this guard.
    _device: Option<Device>,
    /// How results call it.
    pub(super) name: String,
}

/// A device that was unused before.
#[derive(Debug)]
struct Device {
    /// Its folder in `/sys/block`.
    folder: PathBuf,
    /// Its file in `/dev`.
    file: PathBuf,
}

impl Swap {
    /// Swap on zram; else why there is none and how to mend it.
    pub(super) fn ready() -> Result<Self, String> {
        let swaps = read_swaps()?;
        let blocks = Path::new("/sys/block");
        match first_swap(&swaps).map(|first| first.path) {
            Some(device) if device.starts_with("/dev/zram") => {
                let name = describe(&blocks.join(device.trim_start_matches("/dev/")));
                Ok(Self { _device: None, name })
            }
            Some(device) => Err(format!("swap on {device} would be measured: type `swapoff {device}` as root")),
            None if !rustix::process::geteuid().is_root() => Err(format!("there is no swap on zram: {MEND}")),
            None => {
                let folder = unused(blocks).ok_or_else(|| format!("there is no unused zram device: {MEND}"))?;
                let device = Device::set_up(folder)?;
                let name = describe(&device.folder);
                Ok(Self { _device: Some(device), name })
            }
        }
    }
}

impl Device {
    fn set_up(folder: PathBuf) -> Result<Self, String> {
        let name = folder.file_name().expect("devices have names");
        let device = Self { file: Path::new("/dev").join(name), folder };
        // From here on the guard undoes what was done, however far it came.
        std::fs::write(device.folder.join("disksize"), DEVICE_BYTES.to_string())
            .map_err(|error| format!("cannot set the size of {}: {error}", device.file.display()))?;
        swap_on(&device.file)?;
        Ok(device)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // It is not on if setting it up has failed.
        let _ = swap_off(&self.file);
        if let Err(error) = std::fs::write(self.folder.join("reset"), "1") {
            let file = self.file.display();
            eprintln!("swap on {file} stays: {error}: type `swapoff {file}; zramctl --reset {file}` as root");
        }
    }
}

/// The first zram device that nobody has set up, among the folders of `blocks`.
fn unused(blocks: &Path) -> Option<PathBuf> {
    let folders = std::fs::read_dir(blocks).ok()?.filter_map(Result::ok).map(|entry| entry.path());
    let is_unused = |folder: &PathBuf| {
        let is_zram = folder.file_name().is_some_and(|name| name.to_string_lossy().starts_with("zram"));
        is_zram && std::fs::read_to_string(folder.join("disksize")).is_ok_and(|size| size.trim() == "0")
    };
    folders.filter(is_unused).min()
}

/// How a device compresses, and how many pages the kernel reads at a time.
fn describe(folder: &Path) -> String {
    let algorithms = std::fs::read_to_string(folder.join("comp_algorithm")).unwrap_or_default();
    format!("zram {}{}", chosen(&algorithms), pages_at_a_time())
}

/// The word in brackets.
fn chosen(words: &str) -> &str {
    words.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map_or("of unknown kind", |(word, _)| word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_device_that_nobody_has_set_up_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        let blocks = folder.path();
        for (name, size) in [("zram0", "4096"), ("zram2", "0"), ("zram1", "0"), ("vda", "0")] {
            std::fs::create_dir_all(blocks.join(name)).unwrap();
            std::fs::write(blocks.join(name).join("disksize"), format!("{size}\n")).unwrap();
        }
        assert_eq!(unused(blocks), Some(blocks.join("zram1")));
        std::fs::remove_dir_all(blocks.join("zram1")).unwrap();
        std::fs::remove_dir_all(blocks.join("zram2")).unwrap();
        assert_eq!(unused(blocks), None);
    }

    #[test]
    fn the_algorithm_in_use_is_the_one_in_brackets() {
        assert_eq!(chosen("lzo-rle [lz4] zstd\n"), "lz4");
    }
}
