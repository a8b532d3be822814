//! Parser for the kernel's table of sockets, `/proc/net/tcp` and `tcp6`. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// `TCP_LISTEN` in the table.
const LISTENING: &str = "0A";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listener {
    pub address: IpAddr,
    pub port: u16,
    /// The descriptor of a process names the socket by its inode: `socket:[inode]`.
    pub inode: u64,
}

/// The listening sockets of a table. Unknown lines are skipped, because the kernel may add some.
pub fn listeners(text: &str) -> impl Iterator<Item = Listener> {
    text.lines().filter_map(listener)
}

fn listener(line: &str) -> Option<Listener> {
    // sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout inode …
    let mut fields = line.split_ascii_whitespace();
    let local = fields.nth(1)?;
    if fields.nth(1)? != LISTENING {
        return None;
    }
    let inode = fields.nth(5)?.parse().ok()?;
    let (address, port) = local.split_once(':')?;
    Some(Listener { address: parsed(address)?, port: u16::from_str_radix(port, 16).ok()?, inode })
}

/// Parses an address: 32-bit words, each in the byte order of this machine.
fn parsed(hex: &str) -> Option<IpAddr> {
    let word = |at: usize| u32::from_str_radix(hex.get(at..at + 8)?, 16).ok().map(u32::to_ne_bytes);
    match hex.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let mut bytes = [0; 16];
            for (index, place) in bytes.chunks_exact_mut(4).enumerate() {
                place.copy_from_slice(&word(index * 8)?);
            }
            Some(Ipv6Addr::from(bytes).to_canonical())
        }
        _ => None,
    }
}

/// The inodes of the sockets that may answer a connection to that address. The kernel's order is:
/// listeners at the address itself, then at all addresses of its family, then at all addresses of
/// both families. Several listeners share an address only if all of them allowed that.
pub fn answering(listeners: &[Listener], address: IpAddr, port: u16) -> Vec<u64> {
    let address = address.to_canonical();
    let all =
        if address.is_ipv4() { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { Ipv6Addr::UNSPECIFIED.into() };
    let at = |place: IpAddr| -> Vec<u64> {
        let there = |it: &&Listener| it.port == port && it.address == place;
        listeners.iter().filter(there).map(|it| it.inode).collect()
    };
    let places = [address, all, Ipv6Addr::UNSPECIFIED.into()];
    places.into_iter().map(at).find(|inodes| !inodes.is_empty()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a little-endian machine writes them.
    const TCP: &str = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 101 1 0000000000000000 100 0 0 10 0
   1: 00000000:1F91 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 102 1 0000000000000000 100 0 0 10 0
   2: 0100007F:1F90 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     0        0 103 1 0000000000000000 20 4 30 10 -1
";
    const TCP6: &str = "\
  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000000000000000000001000000:1F90 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 201 1 0 100 0 0 10 0
   1: 0000000000000000FFFF00000100007F:1F92 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 202 1 0 100 0 0 10 0
   2: 00000000000000000000000000000000:1F91 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 203 1 0 100 0 0 10 0
   3: 00000000000000000000000000000000:1F93 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 204 1 0 100 0 0 10 0
";

    fn all_listeners() -> Vec<Listener> {
        listeners(TCP).chain(listeners(TCP6)).collect()
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn a_connection_goes_to_the_most_specific_listener() {
        let cases: &[(&str, u16, &[u64])] = &[
            ("127.0.0.1", 8080, &[101]),
            ("::1", 8080, &[201]),
            ("::ffff:127.0.0.1", 8080, &[101]),
            ("127.0.0.1", 8081, &[102]),
            ("10.0.0.7", 8081, &[102]),
            ("::1", 8081, &[203]),
            ("127.0.0.1", 8082, &[202]),
            ("127.0.0.1", 8083, &[204]),
            ("10.0.0.7", 8080, &[]),
            ("127.0.0.1", 40000, &[]),
        ];
        for (address, port, inodes) in cases {
            let found = answering(&all_listeners(), address.parse().unwrap(), *port);
            assert_eq!(found, *inodes, "{address} {port}");
        }
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn all_listeners_that_share_an_address_are_returned() {
        let one = Listener { address: Ipv4Addr::LOCALHOST.into(), port: 80, inode: 1 };
        let both = [one, Listener { inode: 2, ..one }];
        assert_eq!(answering(&both, Ipv4Addr::LOCALHOST.into(), 80), [1, 2]);
    }

    #[test]
    fn a_malformed_line_is_no_listener() {
        for line in
            ["", "sl", "0: 0100007F:1F90", "0: x:y z:0 0A a b c d e f", "0: 01:1F90 0:0 0A 0:0 0:0 0 0 0 7"]
        {
            assert_eq!(listeners(line).count(), 0, "{line}");
        }
    }
}
