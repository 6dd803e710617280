//! The page for browsers, in a headless Chromium: that of a server with `--metrics` and that of `yonder top --web`.
//!
//! `YONDER_PICTURES=FOLDER` keeps pictures of what the tests see; `YONDER_AXE=FILE` names axe-core's script, which then
//! looks for what keeps people with disabilities out (`npm pack axe-core`, `package/axe.min.js`).

use std::path::PathBuf;

use serde_json::Value;
use yonder::clib::{Permission, Process as Space};
use yonder_e2e::{Browser, Client, Content, Process, Scheme, Together, Yonder, alone};

/// 12 MiB of items, three times what is local.
const CONTENT: Content = Content { name: "web", keys: 12_000, value_bytes: 1024 };
const SERVER: [&str; 9] =
    ["kv", "--listen", "127.0.0.1:0", "--memory", "48MiB", "--local", "4MiB", "--metrics", "127.0.0.1:0"];
/// What a page may have in all, in bytes, and until it is there, in milliseconds.
const BYTES_MAX: f64 = 300_000.0;
const LOAD_MS_MAX: f64 = 100.0;
/// How often it is loaded at most; the fastest counts, because others are on the same CPUs.
const LOADS_MAX: usize = 20;

const DESKTOP: (u32, u32) = (1280, 1500);
const PHONE: (u32, u32) = (390, 2600);

/// A server with items in far memory, of which some have been asked for.
struct Busy {
    client: Client,
    server: Process,
}

impl Busy {
    fn new(together: &Together) -> Self {
        let server = together.serve(&SERVER);
        let mut client = Client::connect(server.address());
        client.fill(&CONTENT, 0..CONTENT.keys, 0);
        Self { client, server }
    }

    /// Makes it fault.
    fn work(&mut self) {
        self.client.verify(&CONTENT, 0..CONTENT.keys, 0);
    }
}

fn picture(browser: &mut Browser, name: &str) {
    if let Some(folder) = std::env::var_os("YONDER_PICTURES") {
        browser.picture(&PathBuf::from(folder).join(format!("{name}.png")));
    }
}

/// Fails if the page keeps people out, as far as axe-core knows. All of it is looked at, also what is folded.
fn assert_accessible(browser: &mut Browser) {
    browser.evaluate("(document.querySelector('#all-details').open = true, 0)");
    browser
        .wait_until("document.querySelector('#all').hidden || document.querySelector('#all-table tbody tr') !== null");
    let Some(path) = std::env::var_os("YONDER_AXE") else {
        println!("SKIP: axe-core is not there (npm pack axe-core, then YONDER_AXE=package/axe.min.js)");
        return assert_accessible_by_own_rules(browser);
    };
    let script = std::fs::read_to_string(&path).expect("YONDER_AXE is a file");
    browser.evaluate(&format!("{script};0"));
    let found = browser.evaluate(
        "axe.run().then((found) => found.violations.map(({ id, nodes }) => \
         `${id}: ${nodes.map(({ html, failureSummary }) => html + failureSummary).join(' ')}`))",
    );
    assert_eq!(found, Value::Array(Vec::new()));
    assert_accessible_by_own_rules(browser);
}

/// What can be told without axe-core: names of what is used, heads of tables, one main part, headings in order, nothing
/// that is wider than the page.
fn assert_accessible_by_own_rules(browser: &mut Browser) {
    let wrong = browser.evaluate(
        "(() => {
            const wrong = [];
            const all = (what) => [...document.querySelectorAll(what)];
            for (const element of all('select, input')) if (!element.labels.length) wrong.push(element.outerHTML);
            for (const element of all('button, summary, a')) if (!element.textContent.trim()) wrong.push('no name');
            for (const element of all('canvas, [role=img], [role=region]'))
                if (!element.getAttribute('aria-label')) wrong.push(element.outerHTML);
            for (const table of all('table')) if (!table.querySelector('th[scope=col]')) wrong.push(table.id);
            if (all('main').length !== 1 || all('h1').length !== 1) wrong.push('main or h1');
            let level = 1;
            for (const head of all('h1, h2, h3')) {
                const own = Number(head.tagName[1]);
                if (own > level + 1) wrong.push(`${head.textContent} after h${level}`);
                level = own;
            }
            if (document.documentElement.scrollWidth > innerWidth) wrong.push('wider than the page');
            return wrong;
        })()",
    );
    assert_eq!(wrong, Value::Array(Vec::new()));
}

/// Bytes that the page has loaded, and the milliseconds until it was there.
fn load(browser: &mut Browser) -> (f64, f64) {
    browser.wait_until("performance.getEntriesByType('navigation')[0].loadEventEnd > 0");
    let millis = browser.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd");
    let files = "performance.getEntriesByType('navigation').concat(performance.getEntriesByType('resource'))";
    let bytes = browser.evaluate(&format!(
        "{files}.filter(({{ name }}) => !/metrics$|api/.test(name)).reduce((sum, file) => sum + file.transferSize, 0)"
    ));
    (bytes.as_f64().expect("a number"), millis.as_f64().expect("a number"))
}

#[test]
fn a_server_with_metrics_has_a_page_that_is_there_at_once() {
    let Some(yonder) = Yonder::ready() else { return };
    let Some(mut browser) = Browser::ready() else { return };
    let _alone = alone();
    let together = yonder.together();
    let mut busy = Busy::new(&together);
    let url = format!("http://{}/", busy.server.metrics_address());
    browser.resize(DESKTOP, Scheme::Light);
    let mut least = (f64::INFINITY, f64::INFINITY);
    for _ in 0..LOADS_MAX {
        browser.call("Network.clearBrowserCache", serde_json::json!({}));
        browser.open(&url);
        let (bytes, millis) = load(&mut browser);
        least = (least.0.min(bytes), least.1.min(millis));
        assert!(bytes > 10_000.0 && bytes < BYTES_MAX, "{bytes} bytes");
        if least.1 < LOAD_MS_MAX {
            break;
        }
    }
    println!("the page has {} bytes, and is there after {:.1} ms", least.0, least.1);
    assert!(least.1 < LOAD_MS_MAX, "it is there after {:.1} ms", least.1);
    for _ in 0..3 {
        let looks = browser.evaluate("yonder.page.history.at ?? 0");
        busy.work();
        browser.wait_until(&format!("(yonder.page.history.at ?? 0) > {looks}"));
    }
    browser.wait_until(
        "/\\d.*\\/s/.test([...document.querySelectorAll('.cards .value')].map((p) => p.textContent).join())",
    );
    browser.wait_until("document.querySelectorAll('#stages tbody tr').length === 10");
    browser.wait_until("/MiB/.test(document.querySelector('#places').innerText)");
    let rows = browser.evaluate("document.querySelector('#places').innerText");
    assert!(rows.as_str().is_some_and(|rows| rows.contains("Remote")), "{rows}");
    picture(&mut browser, "metrics-light");
    assert_accessible(&mut browser);
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

/// Lets a day pass on the page: its counters grow each second, and it is drawn each ten minutes.
const A_DAY: &str = "(async () => {
    const { page } = yonder;
    const text = await (await fetch('/metrics')).text();
    const scrapes = Array.from({ length: 50 }, () => yonder.parse(text));
    let now = Math.ceil(Date.now() / 1000) * 1000 + 3600e3;
    page.stays = page.history.at;
    page.take = () => {};
    const pass = (seconds) => {
        for (let second = 0; second < seconds; second += 1) {
            const scrape = scrapes[second % scrapes.length];
            for (const name of scrape.counters)
                if (scrape.plain.has(name)) scrape.plain.set(name, (now % 1e9) + scrape.plain.get(name) % 7);
            for (const [name, buckets] of scrape.labelled)
                if (name.endsWith('_bucket'))
                    buckets.forEach((bucket, at) => { bucket.value = (now % 1e9) * (1 + (at % 25)); });
            scrape.buckets = undefined;
            page.history.add(scrape, now);
            now += 1000;
            if (second % 600 === 0) page.show();
        }
        page.show();
        return [...document.querySelectorAll('*')].length;
    };
    yonder.pass = pass;
    return pass(3600);
})()";

#[test]
fn a_day_of_samples_takes_no_more_memory_than_an_hour() {
    let Some(yonder) = Yonder::ready() else { return };
    let Some(mut browser) = Browser::ready() else { return };
    let together = yonder.together();
    let mut busy = Busy::new(&together);
    browser.resize(DESKTOP, Scheme::Light);
    browser.open(&format!("http://{}/", busy.server.metrics_address()));
    browser.wait_until("yonder.page.history.before !== null");
    let after_an_hour = browser.evaluate(A_DAY);
    let before = browser.heap_bytes();
    let hours = (0..24).map(|_| browser.evaluate("yonder.pass(3600)"));
    let after_a_day = hours.last().expect("there are some");
    let after = browser.heap_bytes();
    println!("the heap has {before} bytes after an hour and {after} bytes after a day");
    assert_eq!(after_an_hour, after_a_day, "elements of the page");
    assert!(after < before + before / 10, "{before} bytes after an hour, {after} bytes after a day");
    choose(&mut browser, "#span", "24 hours");
    picture(&mut browser, "metrics-day");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn limits_are_changed_in_a_browser_that_has_the_key() {
    let Some(yonder) = Yonder::ready() else { return };
    let Some(mut browser) = Browser::ready() else { return };
    let together = yonder.together();
    let mut busy = Busy::new(&together);
    let at = busy.server.metrics_address().to_string();
    let top = together.serve(&["top", "--web", "127.0.0.1:0", "--attach", &at]);
    let url = top.opened();
    browser.resize(DESKTOP, Scheme::Light);
    browser.open(&url);
    busy.work();
    browser.wait_until("document.querySelector('#process-table tbody tr') !== null");
    browser.wait_until("document.querySelector('#change-process').options.length > 0");
    browser.wait_until("document.querySelectorAll('#stages tbody tr').length === 10");
    assert_eq!(browser.evaluate("location.hash"), "", "the key is not shown");
    assert_eq!(browser.complaints(), Vec::<String>::new());
    let pid = busy.server.pid();
    change(&mut browser, pid, ("quota", "2MiB"));
    browser.wait_until("document.querySelector('#change-said').innerText.includes('is now 2MiB')");
    let shown = together.run(&["ctl", "get", &pid.to_string(), "quota"]);
    assert_eq!(shown.stdout.trim(), "2MiB");
    change(&mut browser, pid, ("quota", "much"));
    browser.wait_until("document.querySelector('#change-said').innerText.includes(\"'much' is not a size\")");
    // A change that is refused is an error of the page's console too.
    assert_eq!(browser.complaints().len(), 1);
    for (name, size, scheme) in [
        ("top-light", DESKTOP, Scheme::Light),
        ("top-dark", DESKTOP, Scheme::Dark),
        ("top-phone", PHONE, Scheme::Light),
        ("top-phone-dark", PHONE, Scheme::Dark),
    ] {
        browser.resize(size, scheme);
        busy.work();
        browser.evaluate("(yonder.page.show(), 0)");
        picture(&mut browser, name);
        assert_accessible(&mut browser);
    }
    // A process by itself.
    choose(&mut browser, "#subject", &format!("process {pid}:"));
    browser.wait_until(&format!("document.querySelector('#state').innerText === 'Live from process {pid}'"));
    browser.wait_until("document.querySelector('#rates').innerText.includes('Major faults')");
    assert_eq!(browser.complaints(), Vec::<String>::new());
    // Without the key there is nothing.
    browser.evaluate("(sessionStorage.clear(), 0)");
    browser.open(url.split('#').next().expect("the first part"));
    browser.wait_until("document.querySelector('#state').innerText.includes('as `yonder top --web` has printed it')");
    assert_eq!(browser.evaluate("document.querySelectorAll('section:not([hidden])').length"), 0);
}

/// Chooses what begins with a text. Root sees processes of others too.
fn choose(browser: &mut Browser, select: &str, text: &str) {
    browser.evaluate(&format!(
        "(() => {{
            const select = document.querySelector('{select}');
            select.value = [...select.options].find((option) => option.text.startsWith('{text}')).value;
            select.dispatchEvent(new Event('change'));
            return 0;
        }})()"
    ));
}

/// Changes a setting of a process as a user would.
fn change(browser: &mut Browser, pid: u32, (name, value): (&str, &str)) {
    choose(browser, "#change-process", &format!("{pid}:"));
    choose(browser, "#change-name", name);
    browser.evaluate(&format!(
        "(() => {{
            document.querySelector('#change-value').value = '{value}';
            document.querySelector('#change button').click();
            return 0;
        }})()"
    ));
}

#[test]
fn a_controller_and_a_node_have_pages_with_nodes_and_tenants() {
    let Some(mut browser) = Browser::ready() else { return };
    let together = Yonder::found().together();
    let state = together.runtime().join("state").display().to_string();
    let metrics = ["--metrics", "127.0.0.1:0"];
    let flags = ["controller", "--listen", "tcp://127.0.0.1:0", "--state", &state, "--region-size", "1MiB"];
    let mut controller = together.serve(&[&flags[..], &metrics].concat());
    let at = controller.url("tcp");
    let flags = ["node", "--listen", "tcp://127.0.0.1:0", "--memory", "64MiB", "--data-threads", "1"];
    let of_cluster = ["--controller", &at, "--region-size", "1MiB"];
    let mut nodes: Vec<Process> =
        (0..2).map(|_| together.serve(&[&flags[..], &of_cluster, &metrics].concat())).collect();
    let space = Space::create(&at.replace("tcp://", "controller://")).expect("the controller serves");
    let mut thread = space.thread().expect("the space can be used");
    let part = thread.ralloc(1 << 19, Permission::ReadWrite).expect("there is room");
    thread.rwrite(part, &[7; 1 << 16]).expect("the node serves");
    browser.resize(DESKTOP, Scheme::Light);
    browser.open(&format!("http://{}/", controller.metrics_address()));
    browser.wait_until(
        "document.querySelectorAll('#node-table tbody tr').length === 2 \
         && !/silent|lost/.test(document.querySelector('#node-table').innerText)",
    );
    browser.wait_until("document.querySelectorAll('#tenant-table tbody tr').length > 0");
    assert_accessible(&mut browser);
    picture(&mut browser, "controller");
    browser.open(&format!("http://{}/", nodes[0].metrics_address()));
    browser.wait_until("document.querySelector('#places').innerText.includes('Pages of tenants')");
    browser.wait_until("document.querySelector('#rates').innerText.includes('Reads served')");
    assert_accessible(&mut browser);
    picture(&mut browser, "node");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}
