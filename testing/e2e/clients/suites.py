"""Test suites that others wrote for memcached, against `yonder kv`: suites.py YONDER FOLDER.

pymemcache's integration tests and those of gomemcache that need a server, of the releases that pip and go have now, and
the calls of pylibmc, of spymemcached and of Rust's crate memcache. What they need is installed into FOLDER. What cannot
be had is skipped, and the line says why.
Exits with 1 if a suite fails.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tarfile

# What a client script exits with where its library is missing.
LIBRARY_MISSING = 77
# pytest's way to say that no test was there.
NO_TESTS = 5
HERE = pathlib.Path(__file__).resolve().parent


class Skipped(Exception):
    """What keeps a suite from being run."""


def told(command, **options):
    """Runs a command to its end, and returns its exit code and what it printed."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **options)
    return done.returncode, done.stdout


def needed(command, what, **options):
    """Runs a command without which nothing goes on."""
    try:
        code, said = told(command, **options)
    except OSError as error:
        raise Skipped(f"{what}: {error}") from error
    if code != 0:
        raise Skipped(f"{what}: {said.strip().splitlines()[-1:]}")
    return said


class Server:
    """A running `yonder kv`, with less local memory than the suites' items take."""

    def __init__(self, yonder, *arguments):
        command = [yonder, "kv", "--memory", "64MiB", "--local", "4MiB", *arguments]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.banner = self.process.stderr.readline()
        found = re.search(r"protocol on (\S+)", self.banner)
        if not found:
            sys.exit(f"yonder kv does not listen: {self.banner}{self.process.stderr.read()}")
        self.address = found.group(1).rstrip(",")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


def python_of(folder):
    """The Python of an environment in which the suites' packages are."""
    python = folder / "python" / "bin" / "python"
    if not python.exists():
        needed([sys.executable, "-m", "venv", folder / "python"], "python3 -m venv")
    return python


def pymemcache(yonder, folder):
    python = python_of(folder)
    needed([python, "-m", "pip", "install", "--quiet", "pytest", "pymemcache"], "pip install pytest pymemcache")
    sources = folder / "pymemcache"
    shutil.rmtree(sources, ignore_errors=True)
    download = ["download", "--quiet", "--no-deps", "--no-binary", ":all:", "--dest", sources, "pymemcache"]
    needed([python, "-m", "pip", *download], "pip download pymemcache")
    (archive,) = sources.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(sources, filter="data")
    tests = next(iter(sources.glob("*/pymemcache/test/test_integration.py")), None)
    if tests is None:
        raise Skipped("pymemcache comes without its tests")
    with Server(yonder, "--listen", "127.0.0.1:0") as server:
        host, port = server.address.rsplit(":", 1)
        # The settings of its repository ask for more than the tests need. `test_misc` lists keys and changes the limit
        # of memory, which are refused here.
        settings = ["-c", "/dev/null", "--rootdir", tests.parent, "-p", "no:cacheprovider", "-W", "ignore"]
        chosen = ["-m", "integration", "-k", "not test_misc", tests, "--server", host, "--port", port]
        command = [python, "-m", "pytest", "-q", *settings, *chosen]
        return told(command, cwd=tests.parents[2])


def pylibmc(yonder, folder):
    python = python_of(folder)
    needed([python, "-m", "pip", "install", "--quiet", "pylibmc"], "pip install pylibmc")
    with Server(yonder, "--listen", "127.0.0.1:0") as server:
        return told([python, HERE / "pylibmc_all.py", *server.address.rsplit(":", 1)])


def gomemcache(yonder, folder):
    module = "github.com/bradfitz/gomemcache"
    sources = folder / "gomemcache"
    shutil.rmtree(sources, ignore_errors=True)
    sources.mkdir()
    needed(["go", "mod", "init", "suites"], "go mod init", cwd=sources)
    needed(["go", "get", f"{module}/memcache"], f"go get {module}", cwd=sources)
    # The port is in its tests.
    with Server(yonder, "--listen", "127.0.0.1:11211"):
        test = "TestLocalhost"
        code, said = told(["go", "test", "-count=1", "-v", "-run", test, f"{module}/memcache"], cwd=sources)
    # Go is content where there is no such test.
    return (code, said) if f"--- PASS: {test}" in said else (code or 1, said)


def spymemcached(yonder, folder):
    sources = folder / "spymemcached"
    shutil.rmtree(sources, ignore_errors=True)
    sources.mkdir()
    artifact = "net.spy:spymemcached:2.12.3"
    plugin = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1"
    command = ["mvn", "-B", "-q", f"{plugin}:get", f"-Dartifact={artifact}"]
    needed(command, f"mvn dependency:get {artifact}", cwd=sources)
    copy = ["mvn", "-B", "-q", f"{plugin}:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={sources}"]
    needed(copy, f"mvn dependency:copy {artifact}", cwd=sources)
    (archive,) = sources.glob("*.jar")
    with Server(yonder, "--listen", "127.0.0.1:0") as server:
        address = server.address.rsplit(":", 1)
        try:
            return told(["java", "-cp", archive, HERE / "SpymemcachedAll.java", *address])
        except OSError as error:
            raise Skipped(f"java: {error}") from error


def memcache(yonder, folder):
    package = folder / "memcache"
    (package / "src").mkdir(parents=True, exist_ok=True)
    shutil.copy(HERE / "memcache" / "main.rs", package / "src")
    manifest = (
        '[package]\nname = "memcache-all"\nversion = "0.0.0"\nedition = "2021"\n[workspace]\n'
        '[dependencies]\nmemcache = { version = "0.21", default-features = false }\n'
    )
    (package / "Cargo.toml").write_text(manifest)
    needed(["cargo", "build", "--quiet"], "cargo build of the crate memcache", cwd=package)
    with Server(yonder, "--listen", "127.0.0.1:0") as server:
        return told([package / "target" / "debug" / "memcache-all", *server.address.rsplit(":", 1)])


def main():
    yonder, folder = sys.argv[1], pathlib.Path(sys.argv[2]).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    failed = []
    for suite in (pymemcache, pylibmc, gomemcache, spymemcached, memcache):
        try:
            code, said = suite(yonder, folder)
        except Skipped as why:
            print(f"SKIP: {suite.__name__}: {why}")
            continue
        if code in (LIBRARY_MISSING, NO_TESTS):
            print(f"SKIP: {suite.__name__}: {said.strip()}")
            continue
        print(f"{suite.__name__}: {said.strip().splitlines()[-1]}")
        if code != 0:
            print(said)
            failed.append(suite.__name__)
    if failed:
        sys.exit(f"these fail: {', '.join(failed)}")


main()
