//! The options of the command lines, and what they mean.

use aulos_core::{SampleFormat, Span};

use crate::address::ServerAddress;
use crate::hooks::HookConfig;
use crate::identity::hello;
use crate::mixer::Mixer;
use crate::output::OutputConfig;
use crate::thread::PlayConfig;
use crate::tls::{PlayerTlsError, TlsClient, TlsFiles};

/// What a command line may set.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_structs, reason = "options of the command line")]
pub struct PlayOptions {
    /// The server.
    pub server: ServerAddress,
    /// Name of the server among those that a search finds.
    pub server_name: Option<String>,
    /// Files for TLS.
    pub tls: TlsFiles,
    /// The device.
    pub output: OutputConfig,
    /// Sample format of a file or pipe.
    pub format: Option<SampleFormat>,
    /// What follows the volume.
    pub mixer: Mixer,
    /// How much later than reported the device sounds.
    pub latency: Span,
    /// Id on the server.
    pub id: Option<String>,
    /// Name on the server.
    pub name: Option<String>,
    /// Number of this player on its host.
    pub instance: u32,
    /// Programs that follow the sound.
    pub hooks: HookConfig,
}

impl PlayOptions {
    /// The defaults, with this device.
    #[must_use]
    pub fn new(output: OutputConfig) -> Self {
        Self {
            server: ServerAddress::default(),
            server_name: None,
            tls: TlsFiles::default(),
            output,
            format: None,
            mixer: Mixer::default(),
            latency: Span::ZERO,
            id: None,
            name: None,
            instance: 1,
            hooks: HookConfig { on_start: None, on_stop: None, stop_after: DEFAULT_STOP_AFTER },
        }
    }

    /// What to play, and the hooks. Files for TLS are read if the address has TLS.
    ///
    /// # Errors
    /// [`PlayerTlsError`].
    pub fn into_config(self) -> Result<(PlayConfig, HookConfig), PlayerTlsError> {
        let has_tls = self.server.scheme.has_tls();
        let config = PlayConfig {
            tls: if has_tls { Some(TlsClient::load(&self.tls)?) } else { None },
            server: self.server,
            server_name: self.server_name,
            output: self.output,
            format: self.format,
            mixer: self.mixer,
            hello: hello(self.id.as_deref(), self.name.as_deref(), self.instance),
            latency: self.latency,
            // The device need not be held until the hook.
            release_after: self.hooks.stop_after.min(DEFAULT_STOP_AFTER),
        };
        Ok((config, self.hooks))
    }
}

/// From the end of the sound until the device is released, as with snapclient.
pub const DEFAULT_STOP_AFTER: Span = Span::from_secs(5);
