/**
 * Which costs are constant, and which grow: with the size of the bot, the number of live runs, the
 * number of registry entries, the size of a tree, and the number of other processes on the host.
 */

import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { captureStartToken } from 'spawn-owned'
import { anonymousKb, availableMb, sum, threads } from '../lib/proc.mjs'
import { reapTheDead } from '../lib/reaping.mjs'
import { pick, timedRuns } from '../lib/runs.mjs'
import { tokenOfTheDead } from '../lib/seed.mjs'
import { median } from '../lib/stats.mjs'
import { NODE, OURS } from '../lib/subjects.mjs'
import { cancelTree, compileTree, TREE_KILL } from '../lib/trees.mjs'
import { interleave, withWorkers } from '../lib/workers.mjs'
import { besideCrowd, compileCrowd } from './crowd.mjs'
import {
  besideOthers,
  cancelOne,
  hold,
  holdRegistered,
  listAll,
  registerOne,
  release,
  seed,
} from './measured-bot.mjs'

const RESIDENT_MB = [50, 128, 256, 512, 1024, 2048]
const LIVE = [1, 10, 100, 300, 1000]
const ENTRIES = [1, 10, 100, 1000, 10_000]
/**
 * 1, 10, 100, 300 and 1,000 processes. tree-kill starts as many processes to find them, so it gets
 * 300 at most.
 */
const TREES = [
  { middle: 0, leaves: 0 },
  { middle: 3, leaves: 2 },
  { middle: 9, leaves: 10 },
  { middle: 23, leaves: 12 },
  { middle: 27, leaves: 36 },
]
const TREE_KILL_MOST = 300
const FOREIGN = [100, 300, 1000, 2000, 5000]
/** Processes that the idle bot has registered. */
const REGISTERED = 20
const IDLE_MS = 1500
/** Smaller differences mean nothing. */
const NOISE = { kb: 256, cpuMs: 0.1 }

export const name = 'growth'
export const worker = {
  timedRuns,
  cancelTree,
  anonymousKb,
  hold,
  cancelOne,
  release,
  registerOne,
  listAll,
  seed,
  reapTheDead,
  holdRegistered,
  besideOthers,
}

const DIMENSIONS = {
  'resident size': bySize,
  'live runs': byLiveRuns,
  entries: byEntries,
  'tree size': byTree,
  'foreign processes': byHost,
}

/** Panels as `curves` draws them. `only` names one dimension. */
export async function growth({ quick, progress, only }) {
  const panels = []
  for (const [what, measure] of Object.entries(DIMENSIONS)) {
    if (only !== undefined && only !== what) continue
    progress(what)
    panels.push(...(await measure(quick)))
  }
  return panels
}

const ours = (name, points) => ({ name, colour: 'ours', points })
const theirs = (name, points) => ({ name, colour: 'theirs', points })

async function bySize(quick) {
  const stall = { [OURS]: [], [NODE]: [] }
  for (const residentMb of quick ? [50, 512] : RESIDENT_MB) {
    if (residentMb * 2.4 > availableMb()) continue
    await withWorkers(import.meta.url, [OURS, NODE], { residentMb }, async (workers) => {
      await interleave(workers, 1, 'timedRuns', { count: 5 })
      const runs = pick(await interleave(workers, quick ? 4 : 10, 'timedRuns', { count: 5 }, 15_000), 'call')
      for (const subject of [OURS, NODE]) stall[subject].push([residentMb, median(runs[subject])])
    })
  }
  return [
    {
      title: 'A spawn call blocks the event loop',
      x: 'MB resident',
      unit: 'ms',
      curves: [ours(OURS, stall[OURS]), theirs(NODE, stall[NODE])],
    },
  ]
}

async function byLiveRuns(quick) {
  const found = { call: {}, close: {}, cancel: {}, memory: {}, cpu: {} }
  const note = (what, subject, live, value) => {
    found[what][subject] ??= []
    found[what][subject].push([live, value])
  }
  const options = { residentMb: 50, execArgv: ['--expose-gc'] }
  await withWorkers(import.meta.url, [OURS, NODE], options, async (workers) => {
    const before = {}
    for (const { label, call } of workers) before[label] = await call('anonymousKb')
    for (const live of quick ? [1, 100] : LIVE) {
      for (const { call } of workers) await call('hold', { live })
      const runs = await interleave(workers, quick ? 3 : 8, 'timedRuns', { count: 5 }, 15_000)
      const cancels = await interleave(workers, quick ? 3 : 8, 'cancelOne', { count: 3 }, 15_000)
      for (const { label, call, pid } of workers) {
        note('call', label, live, median(runs[label].map((run) => run.call)))
        note('close', label, live, median(runs[label].map((run) => run.close)))
        note('cancel', label, live, median(cancels[label]))
        note('memory', label, live, Math.max(NOISE.kb, (await call('anonymousKb')) - before[label]))
        note('cpu', label, live, Math.max(NOISE.cpuMs, await idleCpuMs(pid)))
      }
    }
    for (const { call } of workers) await call('release')
  })
  const panel = (what, title, unit) => ({
    title,
    x: 'live runs',
    unit,
    curves: [ours(OURS, found[what][OURS]), theirs(NODE, found[what][NODE])],
  })
  return [
    panel('call', 'A spawn call blocks the event loop', 'ms'),
    panel('close', 'Spawn → close of /bin/true', 'ms'),
    panel('cancel', 'One run is ended: cancel() resolves; kill(), then exit', 'ms'),
    panel('memory', 'The bot has grown by', 'kB'),
    panel('cpu', `CPU of the idle bot in ${IDLE_MS / 1000} s`, 'ms'),
  ]
}

async function idleCpuMs(pid) {
  const cpu = () => sum([...threads(pid).values()].map(({ cpuMs }) => cpuMs))
  const before = cpu()
  await delay(IDLE_MS)
  return cpu() - before
}

async function byEntries(quick) {
  const found = { register: [], unregister: [], list: [], listOne: [], reap: [], behind: [] }
  const directory = mkdtempSync(join(tmpdir(), 'spawn-owned-bench-'))
  try {
    const dead = await tokenOfTheDead()
    for (const entries of quick ? [1, 1000] : ENTRIES) {
      const path = join(directory, String(entries), 'process-registry.json')
      const subject = { name: OURS, label: OURS, env: { SPAWN_OWNED_REGISTRY: path } }
      await withWorkers(import.meta.url, [subject], {}, async ([bot]) => {
        await bot.call('seed', { path, entries, ownerToken: captureStartToken(process.pid) })
        const pairs = await bot.call('registerOne', { count: quick ? 20 : 60 })
        const lists = await bot.call('listAll', { count: quick ? 5 : 15, entries })
        for (const what of ['register', 'unregister', 'behind'])
          found[what].push([entries, median(pairs.map((pair) => pair[what]))])
        found.list.push([entries, median(lists.map(({ all }) => all))])
        found.listOne.push([entries, median(lists.map(({ one }) => one))])
      })
      const samples = []
      for (let round = 0; round < (quick ? 1 : 3); round++) {
        await withWorkers(import.meta.url, [subject], {}, async ([bot]) => {
          await bot.call('seed', { path, entries, ownerToken: dead })
          samples.push((await bot.call('reapTheDead', { path, entries })).ms)
        })
      }
      found.reap.push([entries, median(samples)])
    }
  } finally {
    rmSync(directory, { recursive: true, force: true })
  }
  return [
    {
      title: 'A registry of others’ entries',
      x: 'entries',
      unit: 'ms',
      curves: [
        ours('registerProcess()', found.register),
        { name: 'unregisterProcess()', colour: 'third', points: found.unregister },
        { name: 'list()', colour: 'fourth', points: found.list },
        { name: 'list({ runId })', colour: 'target', points: found.listOne },
        { name: 'the file follows', colour: 'execa', points: found.behind },
        theirs('reapOrphans()', found.reap),
      ],
    },
  ]
}

async function byTree(quick) {
  const directory = mkdtempSync(join(tmpdir(), 'spawn-owned-bench-'))
  const found = { [OURS]: [], [TREE_KILL]: [] }
  try {
    const program = compileTree(directory)
    const subjects = [OURS, TREE_KILL].map((label) => ({
      name: label === OURS ? OURS : NODE,
      label,
      env: { BENCH_CANCEL: label },
    }))
    await withWorkers(import.meta.url, subjects, { residentMb: 50 }, async (workers) => {
      for (const shape of quick ? TREES.slice(0, 3) : TREES) {
        const processes = 1 + shape.middle * (1 + shape.leaves)
        const asked = processes <= TREE_KILL_MOST ? workers : workers.slice(0, 1)
        const args = { program, directory, ...shape }
        const samples = await interleave(asked, quick ? 2 : 4, 'cancelTree', args, 15_000)
        for (const { label } of asked)
          found[label].push([processes, median(samples[label].map(({ ms }) => ms))])
      }
    })
  } finally {
    rmSync(directory, { recursive: true, force: true })
  }
  return [
    {
      title: 'A tree is ended, and verified to be gone',
      x: 'processes',
      unit: 'ms',
      curves: [ours('cancel()', found[OURS]), theirs(TREE_KILL, found[TREE_KILL])],
    },
  ]
}

async function byHost(quick) {
  const directory = mkdtempSync(join(tmpdir(), 'spawn-owned-bench-'))
  const found = { spawn: [], cancel: [], register: [], end: [], list: [], reap: [], cpu: [] }
  try {
    const program = compileCrowd(directory)
    for (const foreign of quick ? [100, 1000] : FOREIGN) {
      const path = join(directory, String(foreign), 'process-registry.json')
      const subject = { name: OURS, label: OURS, env: { SPAWN_OWNED_REGISTRY: path } }
      await besideCrowd(program, foreign, () =>
        withWorkers(import.meta.url, [subject], { residentMb: 50 }, async ([bot]) => {
          const runs = await bot.call('timedRuns', { count: quick ? 10 : 30 })
          found.spawn.push([foreign, median(runs.map(({ call }) => call))])
          found.cancel.push([foreign, median(await bot.call('cancelOne', { count: quick ? 5 : 15 }))])
          const samples = await bot.call('besideOthers', { count: quick ? 5 : 15 })
          for (const what of ['register', 'end', 'list', 'reap'])
            found[what].push([foreign, median(samples.map((sample) => sample[what]))])
          await bot.call('holdRegistered', { count: REGISTERED })
          found.cpu.push([foreign, Math.max(NOISE.cpuMs, await idleCpuMs(bot.pid))])
        }),
      )
    }
  } finally {
    rmSync(directory, { recursive: true, force: true })
  }
  const x = 'foreign processes'
  return [
    {
      title: 'On a host with other processes',
      x,
      unit: 'ms',
      curves: [
        ours('spawnOwned()', found.spawn),
        { name: 'cancel() of a run', colour: 'third', points: found.cancel },
        { name: 'registerProcess()', colour: 'fourth', points: found.register },
        { name: 'cancel() of a registered process', colour: 'execa', points: found.end },
        { name: 'list()', colour: 'target', points: found.list },
        theirs('reapOrphans()', found.reap),
      ],
    },
    {
      title: `CPU of a bot with ${REGISTERED} registered processes, idle for ${IDLE_MS / 1000} s`,
      x,
      unit: 'ms',
      curves: [ours(OURS, found.cpu)],
    },
  ]
}
