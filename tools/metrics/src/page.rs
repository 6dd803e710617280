//! The page for browsers: the files in the folder `page`, as a server with `--metrics` and `yonder top --web` serve
//! them.
//!
//! Its script asks for the text of `/metrics` each second and computes rates itself, so that a server keeps nothing for
//! who looks. The files name each other alone: the page needs no network, and [`HEADERS`] let it reach none.

/// A file of the page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct File {
    /// Where it is asked for.
    pub path: &'static str,
    /// Its type, as HTTP has it.
    pub kind: &'static str,
    /// What is in it.
    pub text: &'static str,
}

const SCRIPT: &str = "text/javascript; charset=utf-8";

/// All files. The first is the page itself.
pub const FILES: [File; 8] = [
    File { path: "/", kind: "text/html; charset=utf-8", text: include_str!("../page/index.html") },
    File { path: "/page/page.css", kind: "text/css; charset=utf-8", text: include_str!("../page/page.css") },
    File { path: "/page/page.js", kind: SCRIPT, text: include_str!("../page/page.js") },
    File { path: "/page/samples.js", kind: SCRIPT, text: include_str!("../page/samples.js") },
    File { path: "/page/draw.js", kind: SCRIPT, text: include_str!("../page/draw.js") },
    File { path: "/page/sections.js", kind: SCRIPT, text: include_str!("../page/sections.js") },
    File { path: "/page/limits.js", kind: SCRIPT, text: include_str!("../page/limits.js") },
    File { path: "/page/icon.svg", kind: "image/svg+xml", text: include_str!("../page/icon.svg") },
];

/// What is said to browsers with each file: nothing comes from elsewhere, nothing is in a frame of others, and nobody
/// is told where the page was.
pub const HEADERS: [(&str, &str); 6] = [
    (
        "Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cache-Control", "no-cache"),
];

/// Where the page says who has served it.
const SERVED_BY_SERVER: &str = "data-source=\"metrics\"";
const SERVED_BY_TOP: &str = "data-source=\"top\"";

/// The file with this path.
#[must_use]
pub fn file(path: &str) -> Option<&'static File> {
    FILES.iter().find(|file| file.path == path)
}

/// The page itself for `yonder top --web`, which it asks for more than a text.
#[must_use]
pub fn for_top() -> String {
    FILES[0].text.replacen(SERVED_BY_SERVER, SERVED_BY_TOP, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a page may have in all, in bytes.
    const BYTES_MAX: usize = 300_000;

    #[test]
    fn it_is_small() {
        let bytes: usize = FILES.iter().map(|file| file.text.len()).sum();
        assert!(bytes < BYTES_MAX, "{bytes}");
    }

    #[test]
    fn it_asks_for_nothing_that_is_not_a_file_of_its_own() {
        for file in &FILES {
            for foreign in ["https:", "//cdn", "url(", "eval(", "innerHTML", " style=\"", "onclick"] {
                assert!(!file.text.contains(foreign), "{} has {foreign}", file.path);
            }
            let names =
                file.text.split(['"', '\'']).filter(|name| name.starts_with("./") || name.starts_with("/page/"));
            for name in names {
                let path = name.strip_prefix("./").map_or_else(|| name.to_owned(), |name| format!("/page/{name}"));
                assert!(super::file(&path).is_some(), "{} names {name}", file.path);
            }
        }
    }

    #[test]
    fn the_page_knows_who_has_served_it() {
        assert_eq!(FILES[0].text.matches(SERVED_BY_SERVER).count(), 1);
        assert!(for_top().contains(SERVED_BY_TOP) && !for_top().contains(SERVED_BY_SERVER));
    }

    #[test]
    fn elements_that_a_script_names_are_in_the_page() {
        let page = FILES[0].text;
        for file in FILES.iter().filter(|file| file.kind == SCRIPT) {
            for part in file.text.split("by(\"").skip(1) {
                let id = part.split('"').next().unwrap();
                assert!(page.contains(&format!("id=\"{id}\"")), "{} names {id}", file.path);
            }
        }
    }
}
