//! Connects to the address in a `PMI_PORT`.

use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use crate::errno::reason;

/// Connects to `port`, which is `host:port`, over IPv4.
///
/// # Errors
///
/// One line that names the address and the reason.
pub fn dial(port: &str, timeout: Duration) -> Result<TcpStream, String> {
    let fail = |why: String| format!("connect to PMI_PORT {port}: {why}");
    let addrs = port
        .to_socket_addrs()
        .map_err(|error| fail(reason(&error)))?;
    let mut why = "no IPv4 address".to_owned();
    for addr in addrs.filter(SocketAddr::is_ipv4) {
        match TcpStream::connect_timeout(&addr, timeout) {
            Ok(stream) => {
                // Each request is waited for. Without it all still works.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Err(error) => why = reason(&error),
        }
    }
    Err(fail(why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketType};
    use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};

    #[test]
    fn connects_or_says_why() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().to_string();
        assert!(dial(&port, Duration::from_secs(5)).is_ok());
        // Bound, so that nobody else gets the port, and nobody listens there.
        let fd = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        let any = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
        rustix::net::bind(&fd, &any).unwrap();
        let deaf = TcpListener::from(fd);
        let port = deaf.local_addr().unwrap().to_string();
        let refused = dial(&port, Duration::from_secs(5)).unwrap_err();
        assert_eq!(
            refused,
            format!("connect to PMI_PORT {port}: Connection refused")
        );
        assert!(dial("1234", Duration::from_secs(5)).is_err());
    }
}
