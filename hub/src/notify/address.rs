//! A guard that keeps requests away from addresses of internal networks.
//!
//! The address of a webhook is configuration, and a host name can have any address. Without a
//! guard, a name could point the hub at its own machine or at a neighbor. [`GuardedResolver`]
//! resolves a name once, checks each address, and returns those addresses for the connection. A
//! second answer of the name server is never used.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

/// The longest time of a name's resolution.
const PATIENCE: Duration = Duration::from_secs(5);
/// The most addresses of a name that are checked.
const MAX_ADDRESSES: usize = 16;

/// An exception to the guard.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Allowance {
    Network { address: IpAddr, prefix: u32 },
    Host(String),
}

/// The addresses that requests may go to: public ones, and exceptions of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressPolicy {
    allowances: Vec<Allowance>,
}

/// The exception cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no network such as 10.1.0.0/16 and no host name such as hooks.internal")]
pub struct InvalidAllowance(String);

/// The reason for which an address is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RefusedAddress {
    /// The URL has an unusable form.
    #[error("the URL must be https://HOST/PATH, or http:// for an allowed host, without user and password")]
    Form,
    /// The URL is not encrypted.
    #[error(
        "http:// is allowed only for hosts in the `allowed_addresses` of the configuration: use https://"
    )]
    Unencrypted,
    /// The host has an internal address.
    #[error("{host} has the internal address {address}: add it to `allowed_addresses` to allow it")]
    Internal {
        /// The host.
        host: String,
        /// The address.
        address: IpAddr,
    },
}

impl AddressPolicy {
    /// Reads exceptions: networks such as `10.1.0.0/16`, addresses, and host names.
    ///
    /// # Errors
    /// Fails if an exception is neither a network nor a host name.
    pub fn new<T: AsRef<str>>(allowed: impl IntoIterator<Item = T>) -> Result<Self, InvalidAllowance> {
        let allowances = allowed.into_iter().map(|text| allowance(text.as_ref()));
        Ok(Self {
            allowances: allowances.collect::<Result<_, _>>()?,
        })
    }

    /// Returns whether requests to a host may go to an address.
    #[must_use]
    pub fn allows(&self, host: &str, address: IpAddr) -> bool {
        is_public(address) || self.is_exception(host, address)
    }

    fn is_exception(&self, host: &str, address: IpAddr) -> bool {
        self.allows_host(host)
            || self.allowances.iter().any(|allowance| match allowance {
                Allowance::Network {
                    address: network,
                    prefix,
                } => is_within(unmapped(address), *network, *prefix),
                Allowance::Host(_) => false,
            })
    }

    fn allows_host(&self, host: &str) -> bool {
        let host = host.trim_end_matches('.');
        self.allowances
            .iter()
            .any(|allowance| matches!(allowance, Allowance::Host(name) if name.eq_ignore_ascii_case(host)))
    }

    /// Checks the form of a URL. Its addresses are checked when the connection is made.
    ///
    /// # Errors
    /// Fails if the URL has no host, has a user, or is not encrypted without an exception.
    pub fn check_url(&self, url: &str) -> Result<Uri, RefusedAddress> {
        let uri: Uri = url.parse().map_err(|_| RefusedAddress::Form)?;
        let authority = uri.authority().ok_or(RefusedAddress::Form)?;
        let host = bare_host(authority.host());
        if host.is_empty() || authority.as_str().contains('@') {
            return Err(RefusedAddress::Form);
        }
        let is_exception = || match host.parse() {
            Ok(address) => self.is_exception(host, address),
            Err(_) => self.allows_host(host),
        };
        match uri.scheme_str() {
            Some("https") => Ok(uri),
            Some("http") if is_exception() => Ok(uri),
            Some("http") => Err(RefusedAddress::Unencrypted),
            _ => Err(RefusedAddress::Form),
        }
    }
}

fn allowance(text: &str) -> Result<Allowance, InvalidAllowance> {
    let invalid = || InvalidAllowance(text.chars().take(100).collect());
    let text = text.trim();
    let (address, prefix) = match text.split_once('/') {
        Some((address, prefix)) => (address, Some(prefix.parse::<u32>().map_err(|_| invalid())?)),
        None => (text, None),
    };
    match (address.parse::<IpAddr>(), prefix) {
        (Ok(address), prefix) => {
            let bits = if address.is_ipv4() { 32 } else { 128 };
            let prefix = prefix.unwrap_or(bits);
            (prefix <= bits)
                .then_some(Allowance::Network { address, prefix })
                .ok_or_else(invalid)
        }
        (Err(_), Some(_)) => Err(invalid()),
        (Err(_), None) => {
            let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
            let has_letter = text.bytes().any(|byte| byte.is_ascii_alphabetic());
            (has_letter && text.bytes().all(is_name))
                .then(|| Allowance::Host(text.trim_end_matches('.').to_owned()))
                .ok_or_else(invalid)
        }
    }
}

/// Returns whether an address is in a network.
fn is_within(address: IpAddr, network: IpAddr, prefix: u32) -> bool {
    match (address, network) {
        (IpAddr::V4(address), IpAddr::V4(network)) => {
            let differing = u32::from(address) ^ u32::from(network);
            differing.leading_zeros() >= prefix
        }
        (IpAddr::V6(address), IpAddr::V6(network)) => {
            let differing = u128::from(address) ^ u128::from(network);
            differing.leading_zeros() >= prefix
        }
        _ => false,
    }
}

/// Returns the IPv4 address that an IPv6 address embeds, or the address itself.
fn unmapped(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(address) => address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4),
        IpAddr::V4(_) => address,
    }
}

/// Returns whether an address is one of the public internet.
#[must_use]
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [first, second, third, _] = address.octets();
    let is_reserved = match first {
        // "This network", loopback, multicast, and reserved.
        0 | 127 | 224..=255 => true,
        // Carriers' shared addresses.
        100 => (64..128).contains(&second),
        // Protocol assignments, and the relay of 6to4.
        192 => (second == 0 && third == 0) || (second == 88 && third == 99),
        // Benchmarks.
        198 => matches!(second, 18 | 19),
        _ => false,
    };
    !(is_reserved || address.is_private() || address.is_link_local() || address.is_documentation())
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    let embedded = |high: u16, low: u16| {
        let [first, second] = high.to_be_bytes();
        let [third, fourth] = low.to_be_bytes();
        is_public_v4(Ipv4Addr::new(first, second, third, fourth))
    };
    match segments {
        // IPv4 addresses in IPv6 notation, and their translation.
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => embedded(high, low),
        // 6to4.
        [0x2002, high, low, ..] => embedded(high, low),
        // Protocol assignments and Teredo; documentation.
        [0x2001, 0..0x200, ..] | [0x2001, 0xdb8, ..] | [0x3fff, 0..0x1000, ..] => false,
        // Global unicast.
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

/// A function that returns the addresses of a host.
pub type Lookup = Arc<dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync>;

/// Returns the resolver of the system.
#[must_use]
pub fn system_lookup() -> Lookup {
    Arc::new(|host, port| Ok((host, port).to_socket_addrs()?.take(MAX_ADDRESSES).collect()))
}

/// A resolver that returns checked addresses only.
pub struct GuardedResolver {
    policy: AddressPolicy,
    lookup: Lookup,
}

impl GuardedResolver {
    /// Builds a resolver from the exceptions and a function that resolves names.
    #[must_use]
    pub fn new(policy: AddressPolicy, lookup: Lookup) -> Self {
        Self { policy, lookup }
    }

    /// Returns the addresses of a host, if all of them are allowed.
    ///
    /// # Errors
    /// Fails if the host is unknown, the name server does not answer, or an address is refused.
    pub fn addresses(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let (sender, receiver) = mpsc::sync_channel(1);
        let (lookup, name) = (self.lookup.clone(), host.to_owned());
        // The system's resolver has no time limit of its own.
        std::thread::spawn(move || sender.send(lookup(&name, port)));
        let answer = receiver.recv_timeout(PATIENCE);
        let found = answer
            .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "the name server does not answer"))??;
        if found.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the host has no address"));
        }
        if let Some(refused) = found.iter().find(|found| !self.policy.allows(host, found.ip())) {
            let refused = RefusedAddress::Internal {
                host: host.to_owned(),
                address: refused.ip(),
            };
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, refused));
        }
        Ok(found)
    }
}

impl fmt::Debug for GuardedResolver {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("GuardedResolver")
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

impl Resolver for GuardedResolver {
    fn resolve(&self, uri: &Uri, _: &Config, _: NextTimeout) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let authority = uri.authority().ok_or(ureq::Error::HostNotFound)?;
        let default = if uri.scheme_str() == Some("http") { 80 } else { 443 };
        let port = authority.port_u16().unwrap_or(default);
        let mut resolved = self.empty();
        let found = self.addresses(bare_host(authority.host()), port)?;
        for address in found.into_iter().take(MAX_ADDRESSES) {
            resolved.push(address);
        }
        Ok(resolved)
    }
}

/// Returns a host without the brackets of an IPv6 address.
fn bare_host(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn addresses_of_internal_networks_are_not_public() {
        for text in [
            "127.0.0.1",
            "127.9.9.9",
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "192.0.0.8",
            "192.0.2.1",
            "198.18.0.1",
            "198.51.100.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::127.0.0.1",
            "64:ff9b::a00:1",
            "64:ff9b:1::1",
            "2002:7f00:1::",
            "2001::1",
            "2001:db8::1",
            "fc00::1",
            "fd12:3456::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!is_public(text.parse().unwrap()), "{text}");
        }
        for text in [
            "1.1.1.1",
            "172.32.0.1",
            "100.128.0.1",
            "::ffff:8.8.8.8",
            "2606:4700::1",
            "64:ff9b::808:808",
        ] {
            assert!(is_public(text.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn exceptions_are_networks_addresses_and_hosts() {
        let policy =
            AddressPolicy::new(["10.1.0.0/16", "192.168.7.7", "fd00::/8", "Hooks.Internal"]).unwrap();
        let allows = |host: &str, address: &str| policy.allows(host, address.parse().unwrap());
        assert!(allows("a", "10.1.2.3"));
        assert!(allows("a", "::ffff:10.1.2.3"));
        assert!(!allows("a", "10.2.0.1"));
        assert!(allows("a", "192.168.7.7"));
        assert!(!allows("a", "192.168.7.8"));
        assert!(allows("a", "fd12::1"));
        assert!(allows("hooks.internal.", "127.0.0.1"));
        assert!(!allows("other.hooks.internal", "127.0.0.1"));
        for text in [
            "10.0.0.0/33",
            "10.0.0.0/x",
            "not a name",
            "",
            "http://a",
            "10.0.0",
            "a/8",
        ] {
            assert!(AddressPolicy::new([text]).is_err(), "{text}");
        }
    }

    #[test]
    fn urls_without_encryption_or_with_a_user_are_refused() {
        let policy = AddressPolicy::new(["127.0.0.1", "::1", "hooks.internal"]).unwrap();
        for url in [
            "https://example.org/x",
            "http://127.0.0.1:80/x",
            "http://[::1]:80/x",
            "http://hooks.internal/x",
        ] {
            assert!(policy.check_url(url).is_ok(), "{url}");
        }
        assert_eq!(
            policy.check_url("http://example.org/x").unwrap_err(),
            RefusedAddress::Unencrypted
        );
        for url in [
            "https://user@example.org/",
            "https://user:pass@example.org/",
            "file:///etc/passwd",
            "gopher://example.org/",
            "/x",
            "",
            "https://",
        ] {
            assert_eq!(policy.check_url(url).unwrap_err(), RefusedAddress::Form, "{url}");
        }
    }

    #[test]
    fn host_with_one_internal_address_is_refused() {
        let lookup: Lookup = Arc::new(|_, port| {
            Ok(["1.1.1.1", "10.0.0.9"]
                .iter()
                .map(|text| SocketAddr::new(text.parse().unwrap(), port))
                .collect())
        });
        let error = GuardedResolver::new(AddressPolicy::default(), lookup)
            .addresses("mixed.example", 443)
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "mixed.example has the internal address 10.0.0.9: add it to `allowed_addresses` to allow it"
        );
    }

    #[test]
    fn numbers_that_stand_for_loopback_are_refused() {
        let guard = GuardedResolver::new(AddressPolicy::default(), system_lookup());
        for host in ["2130706433", "0x7f000001", "127.1", "localhost", "::1", "0"] {
            assert!(guard.addresses(host, 80).is_err(), "{host}");
        }
    }

    #[test]
    fn name_that_changes_its_address_is_checked_each_time() {
        let calls = Arc::new(AtomicUsize::new(0));
        let counter = calls.clone();
        let lookup: Lookup = Arc::new(move |_, port| {
            let address = match counter.fetch_add(1, Ordering::SeqCst) {
                0 => "1.1.1.1",
                _ => "127.0.0.1",
            };
            Ok(vec![SocketAddr::new(address.parse().unwrap(), port)])
        });
        let guard = GuardedResolver::new(AddressPolicy::default(), lookup);
        assert!(guard.addresses("rebinding.example", 443).is_ok());
        assert_eq!(calls.load(Ordering::SeqCst), 1);
        assert!(guard.addresses("rebinding.example", 443).is_err());
    }
}
