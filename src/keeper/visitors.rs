//! Whoever comes to the keeper's address: the next bot, somebody who cancels from elsewhere, a reaper.
//!
//! A visitor is never waited for. One that does not read what it is told, or talks nonsense, is shown the door.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use super::address::Address;
use super::channel;
use super::protocol::{self, Inbox, Request};

/// More at a time are not let in: each is watched in every turn, and takes a descriptor. They wait at the door.
const MAX_GUESTS: usize = 256;

#[derive(Debug, Default)]
pub struct Visitors {
    address: Option<Address>,
    guests: Vec<Guest>,
    next: u32,
}

#[derive(Debug)]
pub struct Guest {
    id: u32,
    pub socket: OwnedFd,
    pub inbox: Inbox,
    has_asked: bool,
}

/// What a visitor may ask for.
#[derive(Debug, PartialEq, Eq)]
pub enum Wish {
    Cancel { signal: i32, grace_ms: u64, reason: String },
    Usage,
    Adopt,
}

impl Visitors {
    /// Opens the door. Without an address nobody comes.
    pub fn expect() -> Self {
        Self { address: Address::open().ok(), ..Self::default() }
    }

    /// The address, empty if there is none.
    pub fn address(&self) -> &str {
        self.address.as_ref().map_or("", Address::name)
    }

    /// What to watch: the door, if there is room, and everybody inside.
    pub fn watched(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let door = self.address.iter().filter(|_| self.has_room());
        door.map(AsFd::as_fd).chain(self.guests.iter().map(|guest| guest.socket.as_fd()))
    }

    /// Lets in who knocks, and tells them how things are. Who has nothing to ask for makes room for others.
    pub fn welcome(&mut self, news: &[u8]) {
        while self.has_room()
            && let Some(socket) = self.address.as_ref().and_then(Address::accept)
        {
            if self.guests.len() == MAX_GUESTS
                && let Some(idle) = self.guests.iter().position(|guest| !guest.has_asked)
            {
                self.guests.remove(idle);
            }
            if tell(&socket, news) {
                self.next = self.next.wrapping_add(1);
                self.guests.push(Guest { id: self.next, socket, inbox: Inbox::default(), has_asked: false });
            }
        }
    }

    fn has_room(&self) -> bool {
        self.guests.iter().filter(|guest| guest.has_asked).count() < MAX_GUESTS
    }

    /// What they have asked for since. Those who have left, or should, are gone afterwards.
    pub fn wishes(&mut self) -> Vec<(u32, Wish)> {
        let mut wishes = Vec::new();
        self.guests.retain_mut(|guest| guest.hear(&mut wishes));
        wishes
    }

    /// Tells everybody.
    pub fn tell(&mut self, frames: &[u8]) {
        self.guests.retain(|guest| tell(&guest.socket, frames));
    }

    /// Tells one of them.
    pub fn answer(&mut self, id: u32, frames: &[u8]) {
        self.guests.retain(|guest| guest.id != id || tell(&guest.socket, frames));
    }

    /// One of them becomes more than a visitor.
    pub fn take(&mut self, id: u32) -> Option<Guest> {
        let index = self.guests.iter().position(|guest| guest.id == id)?;
        Some(self.guests.swap_remove(index))
    }
}

impl Guest {
    /// Takes what has arrived. `false` at the end, and for whoever does not keep to the protocol.
    fn hear(&mut self, wishes: &mut Vec<(u32, Wish)>) -> bool {
        let mut buffer = [0; 512];
        match channel::receive_now(&self.socket, &mut buffer) {
            Ok(0) => return false,
            Ok(count) => self.inbox.push(&buffer[..count]),
            Err(nix::errno::Errno::EAGAIN) => return true,
            Err(_) => return false,
        }
        loop {
            let wish = match self.inbox.next_payload() {
                Ok(None) => return true,
                Ok(Some(payload)) => match protocol::decode(&payload) {
                    Ok(Request::Cancel { signal, grace_ms, reason }) => {
                        Wish::Cancel { signal, grace_ms, reason: reason.to_owned() }
                    }
                    Ok(Request::Usage) => Wish::Usage,
                    Ok(Request::Adopt) => Wish::Adopt,
                    _ => return false,
                },
                Err(_) => return false,
            };
            self.has_asked = true;
            wishes.push((self.id, wish));
        }
    }
}

fn tell(socket: &OwnedFd, frames: &[u8]) -> bool {
    channel::send_within(socket, frames, &[], Duration::ZERO).is_ok()
}
