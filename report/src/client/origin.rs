//! The origin of profiles: what all samples of a sender have in common.

/// The host, service and build of profiles. An empty text is left out: the hub then takes what the
/// profile itself says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProfileOrigin {
    /// The host.
    pub host: String,
    /// The service. Otherwise each program is one.
    pub service: String,
    /// The build.
    pub build: String,
    /// The region.
    pub region: String,
    /// The request that the profile answers.
    pub request: String,
}

impl ProfileOrigin {
    /// Returns the query of a request.
    pub(super) fn query(&self) -> String {
        let pairs = [
            ("host", &self.host),
            ("service", &self.service),
            ("build", &self.build),
            ("region", &self.region),
        ];
        let mut query = form_urlencoded::Serializer::new(String::new());
        for (name, value) in pairs.iter().filter(|(_, value)| !value.is_empty()) {
            query.append_pair(name, value);
        }
        if !self.request.is_empty() {
            query.append_pair("labels", &format!("request={}", self.request));
        }
        query.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_encoded_and_empty_ones_left_out() {
        let origin = ProfileOrigin {
            host: "a b&c".to_owned(),
            region: "eu".to_owned(),
            ..ProfileOrigin::default()
        };
        assert_eq!(origin.query(), "host=a+b%26c&region=eu");
    }
}
