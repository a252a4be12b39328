//! TLS, for servers that others reach without a proxy in front.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};

/// A certificate and its key.
#[derive(Clone)]
pub struct Tls(pub(crate) TlsAcceptor);

/// Why TLS cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or has nothing of what it should have.
    #[error("{}: no {what} in PEM: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What was looked for in it.
        what: &'static str,
        /// What is wrong.
        source: pem::Error,
    },
    /// The key is not that of the certificate, or either is of a kind that is not understood.
    #[error("the certificate and the key cannot be used: {0}")]
    Unusable(#[from] rustls::Error),
}

impl Tls {
    /// A chain of certificates and the key of the first, both in PEM.
    pub fn from_files(certificate: &Path, key: &Path) -> Result<Tls, TlsError> {
        let file = |path: &Path, what, source| TlsError::File { path: path.to_owned(), what, source };
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(certificate)
            .and_then(Iterator::collect)
            .and_then(
                |chain: Vec<_>| if chain.is_empty() { Err(pem::Error::NoItemsFound) } else { Ok(chain) },
            )
            .map_err(|source| file(certificate, "certificate", source))?;
        let key = PrivateKeyDer::from_pem_file(key).map_err(|source| file(key, "private key", source))?;
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Tls(TlsAcceptor::from(Arc::new(config))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_hold_no_certificate_are_named() {
        let source = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"));
        let Err(error) = Tls::from_files(source, source) else { panic!("a certificate was found") };
        assert!(error.to_string().contains("Cargo.toml: no certificate in PEM"), "{error}");
        let Err(error) = Tls::from_files(Path::new("nowhere.pem"), source) else { panic!("it is there") };
        assert!(error.to_string().starts_with("nowhere.pem: "), "{error}");
    }
}
