//! The secret that scheduler, executors and clients share: a private key with its certificate, in a file
//! that only its user can read.
//!
//! Every connection is encrypted, and each end shows that it has the key before the other one sends a
//! byte. A password in each call would not do: executors ask the scheduler for work, so plans come as
//! answers, and whoever listened on its port first would be given the password.

use anyhow::{Context as _, Result};
use ballista_core::extension::EndpointOverrideFn;
use ballista_core::utils::{GrpcClientConfig, create_grpc_client_endpoint};
use std::fs::{DirBuilder, File};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity, Server, ServerTlsConfig};

/// Name in the certificate, whatever host it is used on.
const NAME: &str = "gctrace-cluster";
/// A file that is longer is not one of ours, which have about 1 kB.
const FILE_BYTES: u64 = 64 << 10;
/// A peer that has not shown the key by then is given up.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Time between two tries to find a file or a scheduler.
pub(crate) const RETRY: Duration = Duration::from_millis(500);

/// Where the secret is.
#[derive(Debug, clap::Args)]
pub(crate) struct SecretArgs {
    /// File of the secret that scheduler, executors and clients share; the scheduler makes it
    /// [default: gctrace/cluster.pem in $XDG_CONFIG_HOME or ~/.config]
    #[arg(long = "secret", value_name = "FILE")]
    file: Option<PathBuf>,
}

impl SecretArgs {
    fn path(&self) -> Result<PathBuf> {
        let variable = |name| std::env::var_os(name).map(PathBuf::from);
        let absolute = |path: &PathBuf| path.is_absolute();
        let home = || Some(variable("HOME").filter(absolute)?.join(".config"));
        let config = || variable("XDG_CONFIG_HOME").filter(absolute).or_else(home);
        let file = || Some(config()?.join("gctrace/cluster.pem"));
        let path = self.file.clone().or_else(file);
        path.context("neither XDG_CONFIG_HOME nor HOME is set: name a file, --secret FILE")
    }

    /// The secret that is there.
    ///
    /// # Errors
    /// There is none, or one that others could have read.
    pub(crate) fn read(&self) -> Result<Secret> {
        let path = self.path()?;
        Secret::read(&path)?.with_context(|| absent(&path))
    }

    /// The secret that is there, or a new one.
    ///
    /// # Errors
    /// Others could have read the one that is there, or none can be written.
    pub(crate) fn read_or_make(&self) -> Result<Secret> {
        let path = self.path()?;
        if let Some(secret) = Secret::read(&path)? {
            return Ok(secret);
        }
        make(&path).with_context(|| format!("{}: cannot be written", path.display()))?;
        crate::message(format!(
            "{}: a new secret; executors and clients need this file",
            path.display()
        ));
        Secret::read(&path)?.with_context(|| absent(&path))
    }

    /// The secret that is there, or that which a scheduler makes.
    ///
    /// # Errors
    /// Others could have read it.
    pub(crate) async fn wait(&self) -> Result<Secret> {
        let path = self.path()?;
        let mut said = false;
        loop {
            if let Some(secret) = Secret::read(&path)? {
                return Ok(secret);
            }
            if !said {
                crate::message(format!("{}; waits for it", absent(&path)));
                said = true;
            }
            tokio::time::sleep(RETRY).await;
        }
    }
}

fn absent(path: &Path) -> String {
    format!(
        "{}: is not there; the scheduler makes it, and machines without it need a copy",
        path.display()
    )
}

/// Writes a new secret, unless there is one by now.
fn make(path: &Path) -> Result<()> {
    let made = rcgen::generate_simple_self_signed([NAME.to_owned()])?;
    let directory = path.parent().unwrap_or(Path::new("."));
    let mut above = DirBuilder::new();
    above.recursive(true).mode(0o700).create(directory)?;
    // Mode 0600, and complete when it gets its name.
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    write!(file, "{}{}", made.cert.pem(), made.signing_key.serialize_pem())?;
    file.as_file().sync_all()?;
    match file.persist_noclobber(path) {
        Err(error) if error.error.kind() != ErrorKind::AlreadyExists => Err(error.error.into()),
        _ => Ok(()),
    }
}

/// A secret that was read. Not displayed.
#[derive(Clone)]
pub(crate) struct Secret {
    path: PathBuf,
    pem: String,
}

impl Secret {
    /// `None` if there is no file.
    fn read(path: &Path) -> Result<Option<Self>> {
        let failed = || format!("{}: cannot be read", path.display());
        let file = match File::open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            file => file.with_context(failed)?,
        };
        let metadata = file.metadata().with_context(failed)?;
        let mode = metadata.mode() & 0o7777;
        anyhow::ensure!(
            metadata.uid() == rustix::process::geteuid().as_raw() && mode & 0o077 == 0,
            "{}: is of user {} with mode {mode:04o}, so that others could have read the secret: \
             remove it, and have the scheduler make a new one",
            path.display(),
            metadata.uid()
        );
        let mut pem = String::new();
        file.take(FILE_BYTES).read_to_string(&mut pem).with_context(failed)?;
        let path = path.to_owned();
        let secret = Self { path, pem };
        let usable = Server::builder().tls_config(secret.server());
        usable.with_context(|| {
            format!(
                "{}: is not a secret of gctrace-cluster: copy it again, or remove it and have the \
                 scheduler make a new one",
                secret.path.display()
            )
        })?;
        Ok(Some(secret))
    }

    fn certificate(&self) -> Certificate {
        Certificate::from_pem(&self.pem)
    }

    fn identity(&self) -> Identity {
        Identity::from_pem(&self.pem, &self.pem)
    }

    /// A server that answers clients with the same secret only.
    pub(crate) fn server(&self) -> ServerTlsConfig {
        ServerTlsConfig::new()
            .identity(self.identity())
            .client_ca_root(self.certificate())
            .timeout(HANDSHAKE)
    }

    /// How the clients of Ballista reach servers with the same secret, and no others.
    pub(crate) fn endpoints(&self) -> EndpointOverrideFn {
        let tls = ClientTlsConfig::new()
            .ca_certificate(self.certificate())
            .identity(self.identity())
            .domain_name(NAME)
            .timeout(HANDSHAKE);
        std::sync::Arc::new(move |endpoint: Endpoint| {
            // Made again: Ballista writes some addresses with http, whatever it is configured to use.
            let address = endpoint.uri().to_string().replacen("http:", "https:", 1);
            let endpoint =
                create_grpc_client_endpoint(address, Some(&GrpcClientConfig::default()))?;
            Ok(endpoint.tls_config(tls.clone())?)
        })
    }

    /// Whether a scheduler answers at `HOST:PORT`.
    ///
    /// # Errors
    /// A server does that has not the same secret.
    pub(crate) async fn reaches(&self, address: &str) -> Result<bool> {
        let endpoint = Endpoint::from_shared(format!("http://{address}"))
            .with_context(|| format!("{address}: not an address, HOST:PORT"))?;
        let endpoint = self.endpoints()(endpoint).map_err(anyhow::Error::from_boxed)?;
        let error = endpoint.connect().await.err();
        anyhow::ensure!(
            !error.as_ref().is_some_and(is_stranger),
            "{address}: is no scheduler with the secret of {}: copy the file of its machine",
            self.path.display()
        );
        Ok(error.is_none())
    }
}

/// Whether the server was reached, and did not show that it has the key.
fn is_stranger(error: &tonic::transport::Error) -> bool {
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = cause {
        // So are errors of TLS reported, and no others.
        if let Some(error) = error.downcast_ref::<std::io::Error>()
            && error.kind() == ErrorKind::InvalidData
        {
            return true;
        }
        cause = error.source();
    }
    false
}
