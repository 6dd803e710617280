//! An etcd that asks its clients for certificates: the controller that has one, and those that have none.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use tempfile::TempDir;
use yonder_controller::{EtcdAccess, EtcdCertificate, EtcdStore, EtcdTls, Leadership, Store as _, StoreError, Write};

use crate::etcd_server::Etcd;

/// An authority of a test, in a folder of its own.
struct Authority {
    folder: TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().unwrap();
        std::fs::write(folder.path().join("ca.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
        Self { folder, issuer: Issuer::new(params, key) }
    }

    fn ca(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// A certificate for an end at 127.0.0.1, and its key.
    fn certificate(&self, name: &str) -> EtcdCertificate {
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let signed = params.signed_by(&key, &self.issuer).unwrap();
        let file = |kind: &str, text: String| {
            let path = self.folder.path().join(format!("{name}.{kind}"));
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
            path
        };
        EtcdCertificate { certificate: file("pem", signed.pem()), key: file("key", key.serialize_pem()) }
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn start(authority: &Authority) -> Option<Etcd> {
    let EtcdCertificate { certificate, key } = authority.certificate("etcd");
    let files = [("--cert-file", certificate), ("--key-file", key), ("--trusted-ca-file", authority.ca())];
    let flags = files.into_iter().flat_map(|(flag, file)| [flag.to_owned(), shown(&file)]);
    let flags: Vec<String> = flags.chain(["--client-cert-auth".to_owned()]).collect();
    Etcd::start_with("https", &flags)
}

fn open(endpoint: &str, tls: Option<EtcdTls>) -> Result<EtcdStore, StoreError> {
    let at = EtcdAccess { endpoints: vec![endpoint.to_owned()], tls };
    EtcdStore::open(&at, "yonder/", "it", Leadership::Refuse)
}

#[test]
fn a_controller_with_a_certificate_keeps_its_state_and_others_get_nothing() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let Some(etcd) = start(&authority) else { return };
    let own = EtcdTls { ca: authority.ca(), certificate: Some(authority.certificate("controller")) };
    let mut store = open(etcd.endpoint(), Some(own.clone())).unwrap();
    store.commit(&[Write::Put { key: "space/1".to_owned(), value: b"a".to_vec() }]).unwrap();
    assert_eq!(store.scan("space/").unwrap(), [("space/1".to_owned(), b"a".to_vec())]);
    drop(store);
    let without = EtcdTls { certificate: None, ..own.clone() };
    let foreign = EtcdTls { certificate: Some(stranger.certificate("controller")), ..own.clone() };
    // It takes no etcd but one of this authority.
    let deceived = EtcdTls { ca: stranger.ca(), ..own.clone() };
    let plain = etcd.endpoint().replace("https", "http");
    std::thread::scope(|scope| {
        let tries = [
            ("without a certificate", etcd.endpoint(), Some(without)),
            ("with one of another authority", etcd.endpoint(), Some(foreign)),
            ("that knows another etcd", etcd.endpoint(), Some(deceived)),
            ("in the clear", &plain, None),
        ];
        let tries = tries.map(|(who, at, tls)| (who, scope.spawn(move || open(at, tls).map(drop))));
        for (who, tried) in tries {
            let refused = tried.join().unwrap();
            assert!(matches!(refused, Err(StoreError::Failed { .. })), "one {who}: {refused:?}");
        }
    });
    open(etcd.endpoint(), Some(own)).unwrap();
}

#[test]
fn files_that_cannot_be_used_are_told_before_anything_is_connected() {
    let authority = Authority::new();
    let certificate = authority.certificate("controller");
    let tls = EtcdTls { ca: authority.ca(), certificate: Some(certificate.clone()) };
    let said = |tls: EtcdTls| {
        let error = open("https://127.0.0.1:1", Some(tls)).unwrap_err();
        assert!(matches!(error, StoreError::File(_)), "{error}");
        error.to_string()
    };
    std::fs::set_permissions(&certificate.key, Permissions::from_mode(0o640)).unwrap();
    assert!(said(tls.clone()).ends_with(&format!("type `chmod 600 {}`", shown(&certificate.key))));
    std::fs::set_permissions(&certificate.key, Permissions::from_mode(0o600)).unwrap();
    // A key in place of a certificate.
    let told = said(EtcdTls { ca: certificate.key.clone(), ..tls.clone() });
    assert!(told.contains("no certificate in PEM"), "{told}");
    let none = authority.folder.path().join("none");
    assert!(said(EtcdTls { ca: none, ..tls }).contains("No such file"));
}
