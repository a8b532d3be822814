//! The scenarios. Each is small enough to be explored completely; together they have everybody meet everybody.

use crate::model::Scenario;
use crate::world::{Budget, Role};

const NOTHING: Budget = Budget {
    owner_killed: false,
    owner_stopped: false,
    keeper_killed: false,
    keeper_stopped: false,
    zygote_killed: false,
    other_killed: false,
    lease_runs_out: false,
    number_reused: false,
    impatient: false,
    owner_cancels: false,
    exec_fails: false,
    forks: true,
    checkpoints: 0,
};

const PLAIN: Scenario =
    Scenario { name: "", is_kept: false, roles: &[], budget: NOTHING, is_blind: false, flaw: None };

pub const ALL: [Scenario; 6] = [ONE_BOT, TWO_REAPERS, VISITORS, KEPT, ROBBED, BLIND];

pub const ONE_BOT: Scenario = Scenario {
    name: "one bot, and everything fails",
    budget: Budget {
        owner_killed: true,
        keeper_killed: true,
        keeper_stopped: true,
        zygote_killed: true,
        number_reused: true,
        exec_fails: true,
        owner_cancels: true,
        impatient: true,
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
        number_reused: true,
        ..NOTHING
    },
    ..PLAIN
};

pub const VISITORS: Scenario = Scenario {
    name: "a visitor cancels, a reaper comes",
    roles: &[Role::Canceller, Role::Reaper],
    budget: Budget {
        owner_killed: true,
        keeper_killed: true,
        keeper_stopped: true,
        number_reused: true,
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

pub const ROBBED: Scenario = Scenario {
    name: "a bot that sleeps is robbed, and wakes",
    roles: &[Role::Thief],
    budget: Budget {
        owner_stopped: true,
        owner_killed: true,
        lease_runs_out: true,
        forks: false,
        checkpoints: 2,
        ..NOTHING
    },
    ..PLAIN
};

pub const BLIND: Scenario = Scenario {
    name: "bots that cannot see each other",
    is_kept: true,
    is_blind: true,
    roles: &[Role::Adopter],
    budget: Budget {
        owner_stopped: true,
        owner_killed: true,
        lease_runs_out: true,
        forks: false,
        checkpoints: 1,
        ..NOTHING
    },
    ..PLAIN
};
