//! What a keeper's decisions need from its surroundings.

use crate::keeper::protocol::Report;
use crate::run::Ended;

/// The connections of a keeper, and its clock.
pub trait Platform {
    /// Identifies a connected control client.
    type Client;

    /// Milliseconds of a clock that does not go backwards. Deadlines count in it.
    fn now(&self) -> u64;

    /// The first report to each receiver.
    fn ready(&self) -> Report;

    /// The key of the run's registry entry, for the trace. Empty if it is not known.
    fn key(&self) -> String;

    fn has_owner(&self) -> bool;

    /// Closes the connection to the owner, which has exited or has violated the protocol.
    fn drop_owner(&mut self);

    /// Sends reports to the owner, all in one write. False if there is none, or if it is gone.
    fn send_to_owner(&mut self, reports: &[Report]) -> bool;

    /// Sends reports to all control clients, with one write for each. Never waits for a client.
    fn send_to_clients(&mut self, reports: &[Report]);

    /// Sends a report to one control client. Never waits for it.
    fn answer(&mut self, client: &Self::Client, report: Report);

    /// Makes a control client the owner. False if that is impossible.
    fn make_owner(&mut self, client: &Self::Client) -> bool;

    /// Writes the end of a run without owner to the registry. False if that failed.
    fn record_end(&self, end: &Ended) -> bool;
}
