//! Names that ranks publish for each other; shell 0 keeps them for the job.

use std::collections::BTreeMap;

/// Longest service name, in bytes.
const SERVICE_MAX: usize = 256;
/// Longest port, in bytes; the reply must fit one short line.
const PORT_MAX: usize = 900;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NameOp {
    Publish { service: Vec<u8>, port: Vec<u8> },
    Lookup { service: Vec<u8> },
    Unpublish { service: Vec<u8> },
}

/// Why a name request fails. The numbers are part of the wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameError {
    Exists = 1,
    Missing = 2,
    Length = 3,
    Full = 4,
}

impl NameError {
    pub(crate) const ALL: [Self; 4] = [Self::Exists, Self::Missing, Self::Length, Self::Full];

    pub(crate) fn code(self) -> u8 {
        self as u8
    }

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|error| error.code() == code)
    }

    /// One word for the client.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Exists => "service_exists",
            Self::Missing => "service_not_found",
            Self::Length => "name_too_long",
            Self::Full => "too_many_names",
        }
    }
}

#[derive(Debug)]
pub(crate) struct Names {
    ports: BTreeMap<Vec<u8>, Vec<u8>>,
    max: usize,
}

impl Names {
    pub(crate) fn new(max: usize) -> Self {
        Self {
            ports: BTreeMap::new(),
            max,
        }
    }

    /// Carries out `op`; a lookup yields the port, the others nothing.
    pub(crate) fn apply(&mut self, op: NameOp) -> Result<Vec<u8>, NameError> {
        match op {
            NameOp::Publish { service, port } => {
                let lengths = (1..=SERVICE_MAX).contains(&service.len());
                if !lengths || port.len() > PORT_MAX {
                    return Err(NameError::Length);
                }
                if self.ports.contains_key(&service) {
                    return Err(NameError::Exists);
                }
                if self.ports.len() >= self.max {
                    return Err(NameError::Full);
                }
                self.ports.insert(service, port);
                Ok(Vec::new())
            }
            NameOp::Lookup { service } => {
                self.ports.get(&service).cloned().ok_or(NameError::Missing)
            }
            NameOp::Unpublish { service } => self
                .ports
                .remove(&service)
                .map(|_| Vec::new())
                .ok_or(NameError::Missing),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_published_found_and_taken_back() {
        let mut names = Names::new(2);
        let publish = |s: &str| NameOp::Publish {
            service: s.into(),
            port: b"tag#0$port#1".to_vec(),
        };
        let lookup = |s: &str| NameOp::Lookup { service: s.into() };
        let unpublish = |s: &str| NameOp::Unpublish { service: s.into() };
        assert_eq!(names.apply(lookup("a")), Err(NameError::Missing));
        assert_eq!(names.apply(publish("a")), Ok(vec![]));
        assert_eq!(names.apply(publish("a")), Err(NameError::Exists));
        assert_eq!(names.apply(lookup("a")), Ok(b"tag#0$port#1".to_vec()));
        assert_eq!(names.apply(publish("b")), Ok(vec![]));
        assert_eq!(names.apply(publish("c")), Err(NameError::Full));
        assert_eq!(names.apply(unpublish("a")), Ok(vec![]));
        assert_eq!(names.apply(unpublish("a")), Err(NameError::Missing));
        assert_eq!(names.apply(publish("")), Err(NameError::Length));
        assert_eq!(
            names.apply(publish(&"s".repeat(257))),
            Err(NameError::Length)
        );
    }
}
