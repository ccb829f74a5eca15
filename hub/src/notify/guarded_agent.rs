//! HTTP clients that reach only checked addresses.

use super::address::{AddressPolicy, GuardedResolver, Lookup};
use ureq::Agent;
use ureq::config::ConfigBuilder;
use ureq::tls::{RootCerts, TlsConfig};
use ureq::typestate::AgentScope;
use ureq::unversioned::transport::DefaultConnector;

/// Returns the configuration of a client without its limits of time and size. The client follows no
/// redirects, because their addresses are not those that were checked.
#[must_use]
pub fn guarded_config() -> ConfigBuilder<AgentScope> {
    Agent::config_builder()
        .tls_config(
            TlsConfig::builder()
                .root_certs(RootCerts::PlatformVerifier)
                .build(),
        )
        // A proxy of the environment would resolve the name again, and see tokens.
        .proxy(None)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .http_status_as_error(false)
        .user_agent(concat!("backtrail-hub/", env!("CARGO_PKG_VERSION")))
}

/// Returns a client that resolves names by `lookup` to addresses that the policy allows.
#[must_use]
pub fn guarded_agent(config: ConfigBuilder<AgentScope>, policy: &AddressPolicy, lookup: Lookup) -> Agent {
    let resolver = GuardedResolver::new(policy.clone(), lookup);
    Agent::with_parts(config.build(), DefaultConnector::new(), resolver)
}
