//! The keepers that wait for the next runs of a launcher, and the zygote that forks them.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use nix::errno::Errno;

use super::Launcher;
use crate::spawn::unix::errors::no_cgroup;
use crate::spawn::unix::exec_cache::ExecCache;
use crate::spawn::unix::inherited::Credentials;
use crate::spawn::unix::zygote::{Keeper, NoKeeper, Zygote};
use crate::spawn::{LaunchError, LaunchOptions};

#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) zygote: Option<Zygote>,
    pub(super) exec_cache: ExecCache,
}

impl Launcher {
    /// Starts the zygote if there is none, so a broken keeper shows before anything else is tried.
    pub fn prepare(&self) -> Result<(), LaunchError> {
        let mut shared = self.shared();
        if shared.zygote.is_none() {
            let now = Credentials::now().map_err(LaunchError::refused)?;
            shared.zygote = Some(Zygote::start(&self.keeper, now)?);
        }
        Ok(())
    }

    /// Drops the zygote. Its process stays as long as a run needs it.
    pub fn retire(&self) {
        self.shared().zygote = None;
        self.streams.clear();
    }

    /// Returns a task that orders the next keepers and creates the next streams. It runs on the
    /// native thread, so the caller of a spawn does not pay for waking the zygote.
    pub(super) fn restock(&self) -> impl FnOnce() + Send + 'static {
        let (shared, stock, streams) = (self.shared.clone(), self.stock, self.streams.clone());
        move || {
            if stock > 0 {
                order_keepers(&shared, stock);
                streams.restock();
            }
        }
    }

    pub(super) fn take_keeper(
        &self,
        shared: &mut Shared,
        options: &LaunchOptions,
    ) -> Result<Keeper, LaunchError> {
        let now = Credentials::now().map_err(LaunchError::refused)?;
        let current = shared.zygote.as_mut().filter(|zygote| zygote.credentials == now);
        match current.map(|zygote| keeper_for(zygote, options)) {
            Some(Ok(keeper)) => return Ok(keeper),
            Some(Err(NoKeeper::Cgroup(error))) => return Err(no_cgroup(&error)),
            Some(Err(NoKeeper::Errno(
                errno @ (Errno::EAGAIN | Errno::ENOMEM | Errno::EMFILE | Errno::ENFILE),
            ))) => {
                return Err(LaunchError::refused(errno));
            }
            // There is no zygote, or it is dead, or it stays stopped, or the bot's credentials
            // changed.
            _ => shared.zygote = None,
        }
        let zygote = shared.zygote.insert(Zygote::start(&self.keeper, now)?);
        keeper_for(zygote, options).map_err(|no_keeper| match no_keeper {
            NoKeeper::Cgroup(error) => no_cgroup(&error),
            NoKeeper::Stopped => LaunchError::KeeperStopped,
            NoKeeper::Errno(errno @ (Errno::EAGAIN | Errno::ENOMEM | Errno::EMFILE | Errno::ENFILE)) => {
                LaunchError::refused(errno)
            }
            NoKeeper::Errno(errno) => {
                LaunchError::KeeperBroken { path: self.keeper.clone(), why: errno.to_string() }
            }
        })
    }

    pub(super) fn shared(&self) -> MutexGuard<'_, Shared> {
        lock(&self.shared)
    }
}

/// Orders the next keepers, unless another thread holds the lock. That thread starts a run and
/// orders keepers afterwards. It may hold the lock for long, and the native thread must not wait:
/// it handles the keepers of all runs.
fn order_keepers(shared: &Mutex<Shared>, stock: usize) {
    let mut shared = match shared.try_lock() {
        Ok(shared) => shared,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => return,
    };
    if let Some(zygote) = &mut shared.zygote {
        // If this fails, the zygote is dead, and the next run starts another one.
        let _ = zygote.stock_up(stock);
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A keeper with or without a cgroup, as the options need it.
fn keeper_for(zygote: &mut Zygote, options: &LaunchOptions) -> Result<Keeper, NoKeeper> {
    let limits = options.limits();
    if options.containment.wants_cgroup(&limits) { zygote.fork_in_cgroup(limits) } else { zygote.take() }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    /// The native thread handles the keepers of all runs. A thread that starts a run can wait for a
    /// stopped keeper while it holds the lock.
    #[test]
    fn the_native_thread_does_not_wait_for_a_thread_that_starts_a_run() {
        let launcher = Launcher::new(PathBuf::new(), 1);
        let starting = launcher.shared();
        let (restock, (send, receive)) = (launcher.restock(), mpsc::channel());
        std::thread::spawn(move || {
            restock();
            send.send(())
        });
        assert_eq!(receive.recv_timeout(Duration::from_secs(60)), Ok(()));
        drop(starting);
    }
}
