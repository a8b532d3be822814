// The command line in scripts: its tables and JSON, its exit codes, and its effect on processes.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { appendFileSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { createInterface } from 'node:readline'
import { describe, test } from 'node:test'
import { createSupervisor } from 'spawn-owned'
import { assertAlive, assertGone, freshRegistry, startBot } from '../support/bots.mjs'
import { cli, spawnOwnedCli as so } from '../support/cli.mjs'
import { program } from '../support/fixtures.mjs'
import {
  linuxOnly,
  NO_REAL_TIME,
  NO_SESSIONS,
  NO_SHELL,
  NO_SIGNALS,
  NO_TTY,
  posixOnly,
} from '../support/system.mjs'
import { openWitness } from '../support/witness.mjs'

const options = { timeout: 60_000 }
const version = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')).version

/** A supervisor with a run that stays until it is ended. */
async function withRun(t, more = {}) {
  const registryPath = freshRegistry()
  const witness = openWitness(t)
  const supervisor = createSupervisor({ registryPath })
  const child = supervisor.spawnOwned(program('stays'), [witness.path], { stdio: 'ignore', ...more })
  t.after(() => child.cancel({ graceMs: 0 }))
  await witness.ready(1)
  return { registryPath, witness, supervisor, child }
}

describe('help', options, () => {
  test('lists the commands, and each command has its own help', async () => {
    const { code, stdout } = await so('unused', ['--help'])
    assert.equal(code, 0)
    const names = [...stdout.matchAll(/^ {2}(\w+) {2,}/gm)].map(([, name]) => name)
    assert.ok(names.includes('ps') && names.includes('run') && names.includes('doctor'), stdout)
    const helps = await Promise.all(names.map((name) => so('unused', [name, '--help'])))
    for (const [index, { code, stdout }] of helps.entries()) {
      assert.equal(code, 0)
      assert.match(stdout, new RegExp(`^Usage: spawn-owned ${names[index]}\\b`))
      assert.match(stdout, /--registry PATH/)
      assert.match(stdout, /Examples:\n {2}spawn-owned/)
    }
  })

  test('prints the version for --version', async () => {
    assert.equal((await so('unused', ['--version'])).stdout, `${version}\n`)
  })

  test('is the same for help, --help and -h, also twice', async () => {
    const overview = (await so('unused', ['--help'])).stdout
    const words = ['help', '--help', '-h']
    for (const args of [...words.map((word) => [word]), ...words.map((word) => ['help', word])]) {
      const { code, stdout } = await so('unused', args)
      assert.deepEqual([code, stdout], [0, overview], args.join(' '))
    }
    const [one, other] = await Promise.all([so('unused', ['help', 'ps']), so('unused', ['ps', '--help'])])
    assert.equal(one.stdout, other.stdout)
  })

  test('is printed on stderr when no command is given', async () => {
    const { code, stdout, stderr } = await so('unused', [])
    assert.deepEqual([code, stdout], [2, ''])
    assert.match(stderr, /^Usage:/)
  })
})

describe('the command line explains and refuses the invalid words', options, () => {
  for (const [args, complaint] of [
    [['pss'], /unknown command "pss"; did you mean "ps"\?/],
    [['ps', '--sesion', 'x'], /"ps" has no option --sesion; did you mean "--session"\?/],
    [['ps', '--session'], /--session needs a value: --session ID/],
    [['ps', '--json=yes'], /--json takes no value/],
    [['ps', '--session', 'a', '--session', 'b'], /--session is given twice/],
    [['ps', 'word'], /unexpected argument "word" of "ps"/],
    [['ps', '--label', 'nonsense'], /--label must be KEY=VALUE, got "nonsense"/],
    [['show'], /an argument is missing\. Usage: spawn-owned show RUN\./],
    [['cancel'], /RUN, --session, --scope or --label is required/],
    [['cancel', 'x', '--session', 'y'], /RUN and --session cannot be combined\. Pass one of them/],
    [['cancel', ''], /an argument of "cancel" is empty/],
    [['cancel', 'x', '--grace', 'soon'], /--grace must be a duration such as 90s, 5m or 250ms, got "soon"/],
    [['run', '--memory', 'much', '--', 'true'], /--memory must be a size such as 512M or 2G, got "much"/],
    [['run', '--processes', '-1', '--', 'true'], /--processes (must be a whole number|needs a value)/],
    [['run'], /an argument is missing\. Usage: spawn-owned run \[OPTIONS\] -- COMMAND/],
    [['run', '--pty', '--no-pty', '--', 'true'], /--pty and --no-pty cannot be combined/],
    [['top'], /"top" needs a terminal/],
    [['completion', 'tcsh'], /unknown shell "tcsh"/],
    [['--json', 'ps'], /the command must come before its options/],
  ]) {
    test(args.join(' '), async () => {
      const { code, stdout, stderr } = await so(freshRegistry(), args)
      assert.match(stderr, complaint)
      assert.match(stderr, /Try "spawn-owned .*--help"/)
      assert.equal(stdout, '')
      assert.equal(code, 2)
    })
  }
})

describe('ps', options, () => {
  test('prints a table', async (t) => {
    const { registryPath, child } = await withRun(t, { runId: 'a-run', sessionId: 'chat-17' })
    const { code, lines } = await so(registryPath, ['ps'])
    assert.equal(code, 0)
    const [header, row, ...others] = lines()
    assert.deepEqual(header.split(/\s+/), [
      'RUN',
      'SESSION',
      'STATE',
      'AGE',
      'CPU',
      'MEM',
      'PROCS',
      'CONTAINMENT',
      'OWNER',
      'COMMAND',
    ])
    assert.deepEqual(others, [])
    const [run, session, state, age, cpu, mem, procs, tier, owner] = row.split(/\s+/)
    assert.deepEqual(
      [run, session, state, procs, owner],
      ['a-run', 'chat-17', 'running', '1', String(process.pid)],
    )
    assert.match(age, /^\d+s$/)
    assert.match(cpu, /^0\.\d\ds$/)
    assert.match(mem, /^[\d.]+[KM]$/)
    assert.match(tier, /^(keeper|job)$/)
    assert.ok(header.indexOf('COMMAND') === row.indexOf(child.spawnfile), 'the columns are aligned')
  })

  test('prints the record and the processes with --json', async (t) => {
    const { registryPath, child } = await withRun(t, { labels: { agent: 'x' } })
    const { runs } = (await so(registryPath, ['ps', '--json', '--label', 'agent=x'])).json()
    assert.equal(runs.length, 1)
    const { runId, pid, owner, processes, members, labels } = runs[0]
    assert.deepEqual(
      { runId, pid, owner, processes },
      { runId: child.runId, pid: child.pid, owner: 'alive', processes: 1 },
    )
    assert.deepEqual(labels, { agent: 'x' })
    assert.equal(members[0].pid, child.pid)
    const none = await so(registryPath, ['ps', '--json', '--label', 'agent=y'])
    assert.deepEqual(none.json(), { runs: [] })
  })

  test('reports on stderr that no run exists', async () => {
    const { code, stdout, stderr } = await so(freshRegistry(), ['ps'])
    assert.deepEqual([code, stdout], [0, ''])
    assert.match(stderr, /^No runs in /)
    const filtered = await so(freshRegistry(), ['ps', '--session', 's', '--label', 'a=b'])
    assert.match(filtered.stderr, /^No run in .+ matches --session s --label a=b\.$/m)
  })

  test('prints no control characters of a session id', async (t) => {
    const { registryPath } = await withRun(t, { sessionId: 'x\x1b[2J\x07y' })
    const { stdout } = await so(registryPath, ['ps'])
    assert.match(stdout, /x.\[2J.y/)
    assert.ok(!stdout.includes('\x1b'))
  })

  test('uses colour with FORCE_COLOR, and never with NO_COLOR', async (t) => {
    const { registryPath } = await withRun(t)
    const coloured = await so(registryPath, ['ps'], { env: { FORCE_COLOR: '1' } })
    assert.ok(coloured.stdout.includes('\x1b[32mrunning\x1b[0m'))
    const plain = await so(registryPath, ['ps'], { env: { FORCE_COLOR: '1', NO_COLOR: '1' } })
    assert.ok(!plain.stdout.includes('\x1b'))
  })

  test('marks a run whose bot is dead', async (t) => {
    const registryPath = freshRegistry()
    const witness = openWitness(t)
    const bot = await startBot(t, registryPath)
    await bot.ask('spawn', program('stays'), [witness.path], { onOwnerExit: 'keep', runId: 'left' })
    await witness.ready(1)
    await bot.kill()
    const { stdout } = await so(registryPath, ['ps'])
    assert.match(stdout, new RegExp(`left .* kept .* ${bot.pid} dead`))
    const reaped = await so(registryPath, ['reap', '--json'])
    assert.equal(reaped.code, 0)
    assert.equal(reaped.json().killed.length, 1)
    assertGone(witness)
  })
})

describe('tree and show', options, () => {
  test(
    'draw parents and children, and mark processes that left the session',
    posixOnly(NO_SESSIONS),
    async (t) => {
      const registryPath = freshRegistry()
      const witness = openWitness(t)
      const stays = `'${program('stays')}' '${witness.path}'`
      const supervisor = createSupervisor({ registryPath })
      const child = supervisor.spawnOwned('sh', ['-c', `${stays} & setsid ${stays} & wait`], {
        runId: 'family',
      })
      t.after(() => child.cancel({ graceMs: 0 }))
      await witness.ready(2)
      const { lines } = await so(registryPath, ['tree'])
      const drawn = lines().map((line) => line.replace(/\d+/g, 'N').replace(/ {2}N[sm].*?( {2}left|$)/, '$1'))
      assert.deepEqual(drawn[0].slice(0, 'family  running  bot N'.length), 'family  running  bot N')
      assert.deepEqual(drawn.slice(1, 2), ['└─ N sh'])
      assert.deepEqual(
        drawn
          .slice(2)
          .map((line) => line.replace(/[├└]/, '*'))
          .toSorted(),
        ['   *─ N stays', '   *─ N stays  left the session'],
      )
      const shown = await so(registryPath, ['show', 'fam'])
      assert.match(shown.stdout, /^run +family$/m)
      assert.match(shown.stdout, /^containment +keeper$/m)
      assert.match(shown.stdout, /^uses +3 processes/m)
    },
  )

  test('exit with 3 if no run has the name', async (t) => {
    const { registryPath } = await withRun(t, { runId: 'abc-1' })
    const { code, stderr } = await so(registryPath, ['show', 'xyz'])
    assert.equal(code, 3)
    assert.match(stderr, /no run "xyz" is in the registry\. "spawn-owned ps -a" lists all runs/)
  })

  test('and cancel refuse a prefix that matches two runs', async (t) => {
    const { registryPath, supervisor } = await withRun(t, { runId: 'abc-1' })
    const other = supervisor.spawnOwned('cat', [], { runId: 'abc-2' })
    t.after(() => other.cancel())
    const { code, stderr } = await so(registryPath, ['cancel', 'abc'])
    assert.equal(code, 3)
    assert.match(stderr, /"abc" matches 2 runs: abc-1, abc-2/)
  })
})

describe('cancel', options, () => {
  test('prints what it ends and which bot recorded it, and leaves no process', async (t) => {
    const { registryPath, witness, child } = await withRun(t, { sessionId: 'chat-1' })
    const { code, lines } = await so(registryPath, ['cancel', '--session', 'chat-1'])
    assertGone(witness)
    assert.equal(code, 0)
    const [before, after] = lines()
    assert.match(
      before,
      new RegExp(`^ending ${child.runId}: .*\\(pid ${child.pid}, 1 process; owner bot ${process.pid}`),
    )
    assert.equal(after, `${child.runId}: cancelled`)
    assert.equal((await child.wait()).reason, 'manual-cancel')
  })

  test('finishes although its stdout is closed', async (t) => {
    const { registryPath, witness, child } = await withRun(t)
    const env = { ...process.env, SPAWN_OWNED_REGISTRY: registryPath }
    const stdio = ['ignore', 'pipe', 'inherit']
    const it = spawn(process.execPath, [cli, 'cancel', child.runId], { env, stdio })
    it.stdout.destroy()
    assert.deepEqual(await once(it, 'exit'), [0, null])
    assertGone(witness)
  })

  test('--dry-run ends nothing', async (t) => {
    const { registryPath, witness, child } = await withRun(t)
    const { code, stdout } = await so(registryPath, ['cancel', child.runId.slice(0, 8), '--dry-run'])
    assert.equal(code, 0)
    assert.match(stdout, /^would end /)
    assertAlive(witness)
  })

  test('exits with 3 if its filter matches no run, and signals no process', async (t) => {
    const { registryPath, witness } = await withRun(t)
    const { code, stderr } = await so(registryPath, ['cancel', '--session', 'another'])
    assert.equal(code, 3)
    assert.match(stderr, /no run matches --session another\./)
    assertAlive(witness)
  })
})

describe('run', options, () => {
  test('passes the streams and the exit code on', posixOnly(NO_SHELL), async () => {
    const script = 'read line; echo "out $line"; echo err >&2; exit 7'
    const { code, stdout, stderr } = await so(freshRegistry(), ['run', '--', 'sh', '-c', script], {
      input: 'in\n',
    })
    assert.deepEqual({ code, stdout, stderr }, { code: 7, stdout: 'out in\n', stderr: 'err\n' })
  })

  test('needs no -- if the command does not start with a dash', async () => {
    const { code, stdout } = await so(freshRegistry(), ['run', '--session', 's', 'echo', '--json', '-n'])
    assert.deepEqual({ code, stdout }, { code: 0, stdout: '--json -n\n' })
  })

  test(
    'exits with 127 if the command does not exist, and 126 if it is not executable',
    posixOnly(NO_SIGNALS),
    async () => {
      const missing = await so(freshRegistry(), ['run', '--', 'no-such-command'])
      assert.equal(missing.code, 127)
      assert.match(missing.stderr, /no-such-command.*ENOENT/)
      const folder = await so(freshRegistry(), ['run', '--', '/etc/passwd'])
      assert.equal(folder.code, 126)
    },
  )

  test(
    'exits with 125 and starts no process if the registry cannot be written',
    posixOnly(NO_SIGNALS),
    async (t) => {
      const witness = openWitness(t)
      const { code, stderr } = await so('/proc/nowhere/r.json', ['run', '--', program('stays'), witness.path])
      assert.equal(code, 125)
      assert.match(stderr, /^spawn-owned: /)
      assert.equal(witness.count('r'), 0)
    },
  )

  test('exits with 124 after a timeout, and ends the whole tree', posixOnly(NO_SESSIONS), async (t) => {
    const witness = openWitness(t)
    const stays = `'${program('stays')}' '${witness.path}'`
    const line = `setsid ${stays} & ${stays} < /dev/null`
    const { code, stderr } = await so(freshRegistry(), ['run', '--timeout', '1s', '--', 'sh', '-c', line])
    witness.release()
    assertGone(witness)
    assert.equal(code, 124)
    assert.match(stderr, /timed out after 1s/)
  })

  test('exits with 128 plus the number of the signal', posixOnly(NO_SIGNALS), async () => {
    const { code } = await so(freshRegistry(), ['run', '--', 'sh', '-c', 'kill -KILL $$'])
    assert.equal(code, 137)
  })

  test('exits with 128 plus the number of a real-time signal, too', linuxOnly(NO_REAL_TIME), async () => {
    const { code } = await so(freshRegistry(), ['run', '--', 'sh', '-c', 'kill -40 $$'])
    assert.equal(code, 168)
  })

  test(
    'with --pty and a pipe as stdin types the input, and sends Ctrl-D at its end',
    posixOnly(NO_TTY),
    async () => {
      const { code, stdout } = await so(freshRegistry(), ['run', '--pty', '--', 'cat'], { input: 'typed\n' })
      assert.equal(code, 0)
      assert.match(stdout, /typed\r\ntyped\r\n/)
    },
  )

  test('with --json prints the result on stderr', async () => {
    const { code, stdout, stderr } = await so(freshRegistry(), ['run', '--json', '--', 'echo', 'out'])
    assert.deepEqual([code, stdout], [0, 'out\n'])
    const { reason, exitCode, survivors } = JSON.parse(stderr)
    assert.deepEqual({ reason, exitCode, survivors }, { reason: 'exit', exitCode: 0, survivors: [] })
  })

  test('records the given run id, session and labels', async () => {
    const registryPath = freshRegistry()
    const names = ['--run-id', 'mine', '--session', 's', '--label', 'a=b', '--label', 'c=d']
    const itself = [process.execPath, cli, 'ps', '--json']
    const { code, json } = await so(registryPath, ['run', ...names, '--', ...itself])
    assert.equal(code, 0)
    const [entry] = json().runs
    assert.deepEqual([entry.runId, entry.sessionId, entry.labels], ['mine', 's', { a: 'b', c: 'd' }])
  })
})

describe('the JSON', options, () => {
  test('of tree and show has the same fields as that of ps', async (t) => {
    const { registryPath } = await withRun(t, { runId: 'one' })
    const [ps, tree, show] = await Promise.all(
      [['ps'], ['tree', 'one'], ['show', 'one']].map((args) => so(registryPath, [...args, '--json'])),
    )
    const names = Object.keys(ps.json().runs[0])
    for (const name of ['runId', 'owner', 'processes', 'cpuMs', 'rssBytes', 'members'])
      assert.ok(names.includes(name), name)
    assert.deepEqual(Object.keys(tree.json().runs[0]), names)
    assert.deepEqual(Object.keys(show.json()), names)
  })

  test('of metrics has the same values as the text', async (t) => {
    const { registryPath } = await withRun(t)
    const { metrics } = (await so(registryPath, ['metrics', '--json'])).json()
    const runs = metrics.find(({ name }) => name === 'spawn_owned_runs')
    assert.deepEqual(
      runs.values.find(({ labels }) => labels.state === 'running'),
      { labels: { state: 'running' }, value: 1 },
    )
  })

  test('of cancel has the outcome of each run', async (t) => {
    const { registryPath, child } = await withRun(t)
    const { dryRun, results } = (await so(registryPath, ['cancel', child.runId, '--json'])).json()
    assert.deepEqual([dryRun, results.map(({ outcome }) => outcome)], [false, ['cancelled']])
  })
})

test('events -f prints runs that appear and runs that end', options, async (t) => {
  const registryPath = freshRegistry()
  const args = [cli, 'events', '-f', '--json', '--registry', registryPath]
  const it = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] })
  t.after(() => it.kill('SIGKILL'))
  const lines = createInterface({ input: it.stdout })[Symbol.asyncIterator]()
  const seen = []
  const until = async (what) => {
    while (seen.at(-1)?.what !== what) seen.push(JSON.parse((await lines.next()).value))
  }
  // It does not print runs that exist at its start, so start runs until it prints one.
  const supervisor = createSupervisor({ registryPath })
  const children = []
  const timer = setInterval(() => children.push(supervisor.spawnOwned('cat')), 200)
  await until('appeared')
  clearInterval(timer)
  const { runId, type } = seen.at(-1)
  assert.equal(type, 'run')
  await Promise.all(children.map((child) => child.cancel()))
  await until('gone')
  assert.ok(children.some((child) => child.runId === runId))
})

test('events -f misses no line when the log is rotated', options, async (t) => {
  const registryPath = freshRegistry([])
  const log = join(dirname(registryPath), 'orphan-events.log')
  const line = (pid) =>
    `2026-01-02T03:04:05.678Z KILLED pid=${pid} cmd="x" age=1s status=confirmed reason="y"\n`
  writeFileSync(log, line(1))
  const args = [cli, 'events', '-f', '--registry', registryPath]
  const it = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] })
  t.after(() => it.kill('SIGKILL'))
  const lines = createInterface({ input: it.stdout })[Symbol.asyncIterator]()
  assert.equal((await lines.next()).value, line(1).trimEnd())
  // Without a pause, as the log does it, so the second line is unread when the file is renamed.
  writeFileSync(`${log}.next`, line(3))
  appendFileSync(log, line(2))
  renameSync(log, `${log}.1`)
  renameSync(`${log}.next`, log)
  assert.equal((await lines.next()).value, line(2).trimEnd())
  assert.equal((await lines.next()).value, line(3).trimEnd())
})

test('the man page has every command and every option', async () => {
  const page = readFileSync(new URL('../../dist/spawn-owned.1', import.meta.url), 'utf8')
  const { stdout } = await so('unused', ['--help'])
  for (const [, name] of stdout.matchAll(/^ {2}(\w+) {2,}/gm)) {
    assert.match(page, new RegExp(`^\\.SS "${name}\\b`, 'm'))
    const help = (await so('unused', [name, '--help'])).stdout
    for (const [flag] of help.matchAll(/--[a-z-]+(?= [A-Z]| {2})/g))
      assert.ok(page.includes(flag.replaceAll('-', '\\-')), `${name} ${flag}`)
  }
})

describe('reports:', options, () => {
  test('metrics prints the Prometheus format', async (t) => {
    const { registryPath } = await withRun(t)
    const { stdout } = await so(registryPath, ['metrics'])
    assert.match(stdout, /^spawn_owned_runs{state="running"} 1$/m)
    assert.match(stdout, /^spawn_owned_processes 1$/m)
    for (const line of stdout.trimEnd().split('\n'))
      assert.match(line, /^(# (HELP|TYPE) \w+ .+|\w+({\w+="[^"]*"(,\w+="[^"]*")*})? [\d.e+-]+)$/)
  })

  test('events prints the lines of the log, or objects with --json', async (t) => {
    const registryPath = freshRegistry()
    const witness = openWitness(t)
    const bot = await startBot(t, registryPath)
    await bot.ask('spawn', program('stays'), [witness.path], { onOwnerExit: 'keep', runId: 'left' })
    await witness.ready(1)
    await bot.kill()
    await so(registryPath, ['reap'])
    assertGone(witness)
    const { lines } = await so(registryPath, ['events'])
    assert.deepEqual(
      lines().map((line) => line.split(' ')[1]),
      ['DETECTED', 'KILLED'],
    )
    const objects = (await so(registryPath, ['events', '--json', '-n', '1']))
      .lines()
      .map((line) => JSON.parse(line))
    assert.equal(objects.length, 1)
    assert.equal(objects[0].what, 'KILLED')
    assert.equal(objects[0].type, 'orphan')
  })

  test('doctor finds no problem on this machine', async () => {
    const { code, json } = await so(freshRegistry(), ['doctor', '--json'])
    const { ok, checks } = json()
    assert.deepEqual([code, ok], [0, true])
    assert.equal(checks.find(({ name }) => name === 'trial').status, 'ok')
    assert.ok(checks.some(({ name }) => name === 'keeper' || name === 'job'))
  })

  test('doctor reports a registry that is not valid', posixOnly(NO_SHELL), async () => {
    const registryPath = freshRegistry([])
    writeFileSync(registryPath, 'nonsense')
    const { code, stdout } = await so(registryPath, ['doctor'])
    assert.equal(code, 1)
    assert.match(stdout, /^XX {2}registry/m)
  })

  test('doctor warns of a registry file that was set aside as corrupt', async () => {
    const registryPath = freshRegistry([])
    writeFileSync(`${registryPath}.corrupt-1`, 'nonsense')
    const { json } = await so(registryPath, ['doctor', '--json'])
    const { status, detail } = json().checks.find(({ name }) => name === 'set aside')
    assert.equal(status, 'warning')
    assert.match(detail, /^process-registry\.json\.corrupt-1: could not be read and/)
  })
})

describe('the completions', options, () => {
  test('of bash complete commands and options', posixOnly(NO_SHELL), async () => {
    const { stdout } = await so('unused', ['completion', 'bash'])
    const complete = async (...words) => {
      const script = `${stdout}\nCOMP_WORDS=(${words.join(' ')}); COMP_CWORD=${words.length - 1}; _spawn_owned; echo "\${COMPREPLY[@]}"`
      return (await so(freshRegistry(), ['run', '--', 'bash', '-c', script])).stdout.trim()
    }
    assert.equal(await complete('spawn-owned', 'doc'), 'doctor')
    assert.equal(await complete('spawn-owned', 'ps', '--ses'), '--session')
  })

  test('of zsh and fish contain the same options', async () => {
    for (const shell of ['zsh', 'fish']) {
      const { code, stdout } = await so('unused', ['completion', shell])
      assert.equal(code, 0)
      assert.match(stdout, /no-output-timeout/)
    }
  })
})
