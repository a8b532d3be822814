//! The scenarios. Each is small enough for complete exploration. Together they contain every pair
//! of actors.

use crate::model::Scenario;
use crate::world::{Budget, Role};

const NOTHING: Budget = Budget {
    owner_killed: false,
    owner_stopped: false,
    keeper_killed: false,
    keeper_stopped: false,
    zygote_killed: false,
    other_killed: false,
    lease_expires: false,
    pid_reused: false,
    may_time_out: false,
    owner_cancels: false,
    exec_fails: false,
    forks: true,
    checkpoints: 0,
};

const PLAIN: Scenario =
    Scenario { name: "", is_kept: false, roles: &[], budget: NOTHING, is_liveness_hidden: false, flaw: None };

pub const ALL: [Scenario; 6] = [ONE_BOT, TWO_REAPERS, CANCELLER, KEPT, STOLEN, HIDDEN_LIVENESS];

pub const ONE_BOT: Scenario = Scenario {
    name: "one bot, and everything fails",
    budget: Budget {
        owner_killed: true,
        keeper_killed: true,
        keeper_stopped: true,
        zygote_killed: true,
        pid_reused: true,
        exec_fails: true,
        owner_cancels: true,
        may_time_out: true,
        ..NOTHING
    },
    ..PLAIN
};

pub const TWO_REAPERS: Scenario = Scenario {
    name: "two reapers race",
    roles: &[Role::Reaper, Role::Reaper],
    budget: Budget {
        owner_killed: true,
        keeper_killed: true,
        other_killed: true,
        pid_reused: true,
        ..NOTHING
    },
    ..PLAIN
};

pub const CANCELLER: Scenario = Scenario {
    name: "a control client cancels, a reaper comes",
    roles: &[Role::Canceller, Role::Reaper],
    budget: Budget {
        owner_killed: true,
        keeper_killed: true,
        keeper_stopped: true,
        pid_reused: true,
        ..NOTHING
    },
    ..PLAIN
};

pub const KEPT: Scenario = Scenario {
    name: "a kept run: adopted, reaped, cancelled",
    is_kept: true,
    roles: &[Role::Adopter, Role::Reaper],
    budget: Budget {
        owner_killed: true,
        keeper_killed: true,
        other_killed: true,
        zygote_killed: true,
        ..NOTHING
    },
    ..PLAIN
};

pub const STOLEN: Scenario = Scenario {
    name: "a stopped bot loses its run and goes on",
    roles: &[Role::Thief],
    budget: Budget {
        owner_stopped: true,
        owner_killed: true,
        lease_expires: true,
        forks: false,
        checkpoints: 2,
        ..NOTHING
    },
    ..PLAIN
};

pub const HIDDEN_LIVENESS: Scenario = Scenario {
    name: "bots that cannot see each other",
    is_kept: true,
    is_liveness_hidden: true,
    roles: &[Role::Adopter],
    budget: Budget {
        owner_stopped: true,
        owner_killed: true,
        lease_expires: true,
        forks: false,
        checkpoints: 1,
        ..NOTHING
    },
    ..PLAIN
};
